"""The messages that leave us: object records, flags and dead letters, and the bytes they are made of.

Pure. The JSON Schemas beside this file (`schemas/`) say the same for other programs; a test holds the two together.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

OBJECTS_SCHEMA = "blobmap.objects.v1"
FLAGS_SCHEMA = "blobmap.flags.v1"

EventName: TypeAlias = Literal["created", "removed"]
Origin: TypeAlias = Literal["event", "backfill", "reconcile"]
FlagReason: TypeAlias = Literal["new-store", "unclaimed-array", "hot-outgrown"]

# 128 bits: two states of one key never meet, and nobody can make them meet by choosing names.
_ID_DIGITS = 32


@dataclass(frozen=True, slots=True)
class Message:
    """What a sink is given to publish.

    Attributes:
        queue: name of the queue it is for.
        schema: name of the body's schema, None for what somebody else wrote (a dead letter).
        body: the bytes.
        headers: text beside the body.
        key: its subject, where a later message about the same subject says all that this one says; else None.
    """

    queue: str
    schema: str | None
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None


@dataclass(frozen=True, slots=True)
class FlagSubject:
    """What a flag is about.

    Attributes:
        bucket: name of the bucket.
        prefix: root of the store as far as it is known, relative to the bucket.
        scope: what has to be partitioned, None where somebody has to look first.
        reason: what is wrong.
    """

    bucket: str
    prefix: str
    scope: str | None
    reason: FlagReason


def record_id(
    *,
    bucket: str,
    key: str,
    event: EventName,
    confirmed: bool,
    etag: str | None,
    version_id: str | None,
    scope: str,
    blob_id: str,
    stat: str | None = None,
) -> str:
    """Names the state that a record tells of.

    The hash is SHA-256 over the UTF-8 bytes of a JSON array without blanks, in which nothing but `"`, the backslash and
    control characters is escaped::

        [bucket, key, event, confirmed, KIND, VALUE, scope, blob_id]

    KIND and VALUE are `"etag"` and the unquoted entity tag; where there is none, `"version"` and the version; where
    there is neither, `"stat"` and what `stat_text` makes of size and modification time, which a listing of files has;
    else `null` and `null`. Two different inputs give two different arrays. The first 32 hex digits serve.

    Returns:
        32 lower-case hex digits. Frozen: the same state has the same id in every release.
    """
    if etag is not None:
        state: tuple[str, str] | tuple[None, None] = ("etag", etag)
    elif version_id is not None:
        state = ("version", version_id)
    elif stat is not None:
        state = ("stat", stat)
    else:
        state = (None, None)
    text = orjson.dumps((bucket, key, event, confirmed, *state, scope, blob_id))
    return hashlib.sha256(text).hexdigest()[:_ID_DIGITS]


def stat_text(size: int, modified: datetime) -> str:
    """Names the state of a file, where no tag of the gateway is known for it.

    Args:
        size: bytes.
        modified: UTC; when it was written last.

    Returns:
        `SIZE/TIME`: both as in the record that tells of it, `size` and `event_time`. Frozen, as it is part of ids.
    """
    return f"{size}/{utc_text(modified)}"


def object_record(
    *,
    bucket: str,
    key: str,
    event: EventName,
    confirmed: bool,
    scope: str,
    blob_id: str,
    epoch: int,
    size: int | None,
    etag: str | None,
    version_id: str | None,
    event_time: datetime | None,
    source: Origin,
    stat: str | None = None,
) -> bytes:
    """Writes one record of `blobmap.objects.v1`.

    Args:
        bucket: name of the bucket.
        key: name of the object.
        event: `created` or `removed`.
        confirmed: whether a listing has shown it; an event alone is a hint where it tells of a removal.
        scope: scope of the claim.
        blob_id: blob of the claim.
        epoch: epoch of the manifest that made it.
        size: bytes, None where unknown.
        etag: entity tag without quotes, None where unknown.
        version_id: version, None where unknown.
        event_time: UTC, None where unknown.
        source: who noticed.
        stat: for the id, where neither tag nor version is known: what `stat_text` makes of the file.

    Returns:
        A JSON object as UTF-8.
    """
    return orjson.dumps(
        {
            "id": record_id(
                bucket=bucket,
                key=key,
                event=event,
                confirmed=confirmed,
                etag=etag,
                version_id=version_id,
                scope=scope,
                blob_id=blob_id,
                stat=stat,
            ),
            "bucket": bucket,
            "scope": scope,
            "blob_id": blob_id,
            "key": key,
            "epoch": epoch,
            "event": event,
            "confirmed": confirmed,
            "size": size,
            "etag": etag,
            "version_id": version_id,
            "event_time": event_time,
            "source": source,
        },
        option=orjson.OPT_UTC_Z,
    )


def objects_message(queue: str, records: Sequence[bytes]) -> Message:
    """Puts records into one message for a mover.

    Args:
        queue: the mover's queue.
        records: what `object_record` wrote, in order; at least one.

    Returns:
        A message with all of them.
    """
    body = b'{"schema":"%b","records":[%b]}' % (OBJECTS_SCHEMA.encode(), b",".join(records))
    return Message(queue, OBJECTS_SCHEMA, body)


def flag_message(
    queue: str,
    *,
    bucket: str,
    scope: str | None,
    reason: FlagReason,
    prefix: str,
    first_object: str,
    first_seen: datetime,
    last_seen: datetime,
) -> Message:
    """Writes one `blobmap.flags.v1` message: here is something that no rule covers.

    Args:
        queue: queue of the flags.
        bucket: name of the bucket.
        scope: what has to be partitioned: the longest existing scope above it, else the root of the store; None where
            somebody has to look first, as there was no zarr document above the object, or no time to find it.
        reason: what is wrong.
        prefix: root of the store as far as it is known, relative to the bucket.
        first_object: key of the first unclaimed object that no earlier flag stood for.
        first_seen: when that was.
        last_seen: when the latest one was seen.

    Returns:
        The message. Its `key` is the same for every flag about the same store.
    """
    key = f"{bucket}/{prefix}"
    body = {
        "schema": FLAGS_SCHEMA,
        "key": key,
        "bucket": bucket,
        "scope": scope,
        "reason": reason,
        "prefix": prefix,
        "first_object": first_object,
        "first_seen": utc_text(first_seen),
        "last_seen": utc_text(last_seen),
    }
    return Message(queue, FLAGS_SCHEMA, orjson.dumps(body), key=key)


def dead_letter(
    queue: str,
    body: bytes,
    *,
    code: str,
    reason: str,
    first_seen: datetime,
    deliveries: int,
    exchange: str,
    routing_key: str,
) -> Message:
    """Sets a message aside that cannot be handled, with all that is needed to handle it later.

    Args:
        queue: queue of the dead letters.
        body: as it came, or one record of it in an envelope of its own.
        code: kind of fault, one of few words.
        reason: the fault, one line.
        first_seen: when the message was published, as far as the broker knows, else when it came to us.
        deliveries: how often it was delivered.
        exchange: exchange that it was published to.
        routing_key: routing key that it was published with.

    Returns:
        The message, its headers being text throughout.
    """
    headers = {
        "reason": reason,
        "code": code,
        "first_seen": utc_text(first_seen),
        "deliveries": str(deliveries),
        "exchange": exchange,
        "routing_key": routing_key,
    }
    return Message(queue, None, body, headers)


def utc_text(time: datetime) -> str:
    """Spells a UTC time as RFC 3339 with `Z`, with fractions of a second only where it has any."""
    return time.isoformat().removesuffix("+00:00") + "Z"
