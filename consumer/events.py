"""Notification bytes of any gateway become `ObjectEvent`s; every producer's spelling ends here.

Pure: no I/O and no clock. What a key, a size or an event name means in each dialect is decided in this file, so that
the rest of the program knows one language only. Nothing is guessed: the dialect is stated by the configuration.

Where the facts come from: the sources of versitygw (`s3event/`), MinIO (`internal/event/`) and Ceph (`rgw_notify.cc`),
and the "Event message structure" and "Supported event types" pages of the S3 user guide.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args
from urllib.parse import unquote_to_bytes

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Dialect: TypeAlias = Literal["versitygw", "minio", "ceph", "aws"]
DIALECTS: tuple[Dialect, ...] = get_args(Dialect)

Kind: TypeAlias = Literal["created", "removed", "other"]

RefusalCode: TypeAlias = Literal["unreadable", "wrapped", "no-records", "bad-record"]

# MinIO and AWS put the key through a form encoder, versitygw and Ceph write the object's name as it is.
_FORM_ENCODED: frozenset[Dialect] = frozenset({"minio", "aws"})

_ARN_PREFIX = "arn:aws:s3:::/"

# What Go's JSON writes for each byte that is not UTF-8 (encoding/json): the true name cannot be had from it.
_LOST_BYTE = "\N{REPLACEMENT CHARACTER}"

# Announced as "created" by MinIO although no byte of the object changed.
_CREATED_IN_NAME_ONLY = frozenset({"puttagging", "deletetagging", "putretention", "putlegalhold"})

# Ends of versions, markers and uploads that take no object out of a listing.
_REMOVED_IN_NAME_ONLY = frozenset({"noop", "abortmpu", "abortmultipartupload"})

_REMOVING_FAMILIES = frozenset({"objectremoved", "lifecycleexpiration"})

# versitygw announces 0 for these because it does not know the size, and for no other reason.
_SIZE_UNKNOWN = frozenset({"objectcreated:copy", "objectcreated:completemultipartupload"})


class ObjectEvent(NamedTuple):  # made for every record, at a fraction of what a frozen data class costs
    """One thing that a gateway says happened to one object.

    Attributes:
        bucket: name of the bucket.
        key: name of the object as a listing shows it; empty where the gateway lost it, and where it is no news.
        kind: `created` (there are new bytes), `removed` (a listing may no longer show it: a delete, a delete marker,
            an expiry, the removal of one version) or `other` (no news for us).
        name: event name without a leading `s3:`, in lower case.
        size: bytes, None where the gateway does not say or does not know.
        etag: entity tag without its quotes, None where there is none. Opaque: not an MD5 in general.
        version_id: as announced, None where there is none.
        event_time: UTC, None where it cannot be read. A gateway's clock, and the time of sending in some.
        principal: access key or user who did it, None where nobody is named.
        corrected: bucket or key were taken from the ARN, because the fields disagreed with it (versitygw only).
    """

    bucket: str
    key: str
    kind: Kind
    name: str
    size: int | None = None
    etag: str | None = None
    version_id: str | None = None
    event_time: datetime | None = None
    principal: str | None = None
    corrected: bool = False


@dataclass(frozen=True, slots=True)
class GatewayTest:
    """A gateway tries its target: at each of its starts (versitygw), or when it is configured (AWS)."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message, or one record of it, that nothing can be made of.

    Attributes:
        code: one of few words, fit for counting.
        reason: one line for a person.
        body: a message with nothing but the refused record, which can be handled again once the fault is mended; None
            where the whole message is refused.
    """

    code: RefusalCode
    reason: str
    body: bytes | None = None


Parsed: TypeAlias = ObjectEvent | GatewayTest | Refusal


class _BadRecordError(Exception):
    """Why one record cannot be understood; the text is the reason."""


def parse_message(body: bytes, dialect: Dialect) -> tuple[Parsed, ...]:
    """Reads one message.

    Args:
        body: what the broker or the HTTP client delivered.
        dialect: the gateway's spelling, as configured.

    Returns:
        One entry a record, in record order. A message without records gives an empty tuple, a message that is no
        notification a single `Refusal` without record. Never raises on any bytes.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return (Refusal("unreadable", f"not JSON: {error}"),)
    records = _records(document)
    if isinstance(records, list):
        return tuple(_parse_records(records, dialect))
    return (records,)


def _records(document: object) -> list[object] | GatewayTest | Refusal:
    """Finds the records of a message, or says what it is instead."""
    if isinstance(document, list):  # older gateways send the records bare
        return document
    if not isinstance(document, dict):
        return Refusal("no-records", f"expected an object with Records, got {_json_type(document)}")
    records = _field(document, "Records", _ABSENT)
    if records is _ABSENT:
        return _without_records(document)
    if records is None:
        return []
    if isinstance(records, list):
        return records
    return Refusal("no-records", f"Records is {_json_type(records)}, expected a list")


def _parse_records(records: list[object], dialect: Dialect) -> Iterator[Parsed]:
    for record in records:
        try:
            yield _parse_record(record, dialect)
        except _BadRecordError as error:
            yield Refusal("bad-record", str(error), _alone(record))


def _alone(record: object) -> bytes | None:
    """Gives one record a message of its own; None where it is nested deeper than can be written again."""
    try:
        return orjson.dumps({"Records": [record]})
    except orjson.JSONEncodeError:
        return None


def _without_records(document: Mapping[str, object]) -> GatewayTest | Refusal:
    """Says what a JSON object is that has no Records."""
    event = _field(document, "Event")
    if isinstance(event, str) and event.lower().removeprefix("s3:") == "testevent":
        return GatewayTest()
    if _field(document, "Message", _ABSENT) is not _ABSENT and (
        _field(document, "TopicArn") is not None or _field(document, "Type") is not None
    ):
        return Refusal("wrapped", "wrapped by SNS: switch on raw message delivery for this subscription")
    if _field(document, "detail-type") is not None or _field(document, "source") == "aws.s3":
        return Refusal("wrapped", "wrapped by EventBridge: send S3 event notifications to the queue instead")
    return Refusal(
        "no-records", f"no Records in this message; its fields are {_shown(', '.join(sorted(document)[:5]))}"
    )


def _parse_record(record: object, dialect: Dialect) -> ObjectEvent:
    if not isinstance(record, dict):
        raise _BadRecordError(f"record is {_json_type(record)}, expected an object")
    name = _field(record, "eventName")
    if not isinstance(name, str) or not name:
        raise _BadRecordError(f"eventName is {_shown(name)}, expected a name such as ObjectCreated:Put")
    name = name.lower().removeprefix("s3:")
    kind = _kind(name)
    if kind == "other":
        return _no_news(record, name)
    s3 = _part(record, "s3")
    if s3 is None:
        raise _BadRecordError(f"s3 is {_shown(_field(record, 's3'))}, expected an object")
    thing = _part(s3, "object") or {}
    bucket, key, corrected = _place(_part(s3, "bucket") or {}, thing, dialect)
    identity = _part(record, "userIdentity") or {}
    return ObjectEvent(
        bucket=bucket,
        key=key,
        kind=kind,
        name=name,
        size=_size(_field(thing, "size"), name, dialect) if kind == "created" else None,
        etag=_etag(_field(thing, "eTag")),
        version_id=_text(_field(thing, "versionId")),
        event_time=_time(_field(record, "eventTime")),
        principal=_text(_field(identity, "principalId")),
        corrected=corrected,
    )


def _no_news(record: Mapping[str, object], name: str) -> ObjectEvent:
    """An event that is counted and dropped, so that its shape, which may be any, must not matter."""
    bucket = _field(_part(_part(record, "s3") or {}, "bucket") or {}, "name")
    return ObjectEvent(bucket=_text(bucket) or "", key="", kind="other", name=name)


def _kind(name: str) -> Kind:
    """Sorts an event name by its family.

    The families are open: a gateway's own `ObjectRemoved:DeleteObjects` is a removal as any other.
    """
    family, _, what = name.partition(":")
    if family == "objectcreated":
        return "other" if what in _CREATED_IN_NAME_ONLY else "created"
    if family in _REMOVING_FAMILIES:
        return "other" if what in _REMOVED_IN_NAME_ONLY else "removed"
    if family == "objectlifecycle" and what.startswith("expiration:"):
        return "other" if what.removeprefix("expiration:") in _REMOVED_IN_NAME_ONLY else "removed"
    if family == "objectsynced":  # Ceph: another zone's write has arrived in this one
        return "created" if what == "create" else "removed"
    return "other"


def _place(holder: Mapping[str, object], thing: Mapping[str, object], dialect: Dialect) -> tuple[str, str, bool]:
    """Reads which object of which bucket a record is about.

    Args:
        holder: the record's `s3.bucket`.
        thing: its `s3.object`.
        dialect: the gateway's spelling.

    Returns:
        Bucket, key, and whether the ARN had to correct them.

    Raises:
        _BadRecordError: where they cannot be known.
    """
    bucket = _field(holder, "name")
    if not isinstance(bucket, str) or not bucket:
        raise _BadRecordError(f"s3.bucket.name is {_shown(bucket)}, expected the name of a bucket")
    raw = _field(thing, "key")
    if not isinstance(raw, str):
        raise _BadRecordError(f"s3.object.key is {_shown(raw)}, expected a text")
    if dialect in _FORM_ENCODED:
        return bucket, _form_decoded(raw), False
    if dialect == "versitygw":
        bucket, key, corrected = _believe_arn(_field(holder, "arn"), bucket, raw)
        return bucket, "" if _LOST_BYTE in key else key, corrected
    return bucket, raw, False


def _believe_arn(arn: object, bucket: str, key: str) -> tuple[str, str, bool]:
    """Compares bucket and key with versitygw's ARN, and believes the ARN.

    versitygw writes the whole path of the request into the ARN. It is a copy, while bucket and key are views into a
    buffer that the next request may already have overwritten. For bulk deletes and form uploads the path ends at the
    bucket; the key of a bulk delete comes from the request's body and is a copy.
    """
    if not isinstance(arn, str) or not arn.startswith(_ARN_PREFIX):
        return bucket, key, False
    arn_bucket, _, arn_key = arn.removeprefix(_ARN_PREFIX).partition("/")
    right = (arn_bucket or bucket, arn_key or key)
    return (*right, right != (bucket, key))


def _form_decoded(text: str) -> str:
    """Undoes one form encoding: `+` is a space, then %XX are bytes of UTF-8.

    Raises:
        _BadRecordError: the text is not form-encoded, so that the configured dialect is not the sender's.
    """
    if "%" not in text:
        return text.replace("+", " ")
    if any(not _is_hex(piece[:2]) for piece in text.split("%")[1:]):
        raise _BadRecordError(f"s3.object.key {_shown(text)} is not form-encoded: is source.dialect the sender's?")
    try:
        return unquote_to_bytes(text.replace("+", " ")).decode()
    except UnicodeDecodeError:
        raise _BadRecordError(f"s3.object.key {_shown(text)} does not decode to UTF-8") from None


def _is_hex(pair: str) -> bool:
    return len(pair) == 2 and all(digit in "0123456789abcdefABCDEF" for digit in pair)


def _size(value: object, name: str, dialect: Dialect) -> int | None:
    """Bytes of a new object; Ceph's documentation shows a text where its code writes a number."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        return None
    if value == 0 and dialect == "versitygw" and name in _SIZE_UNKNOWN:
        return None
    return value


def _etag(value: object) -> str | None:
    """The entity tag without the quotes of its HTTP form, which versitygw leaves in the value."""
    text = _text(value)
    if text is not None and len(text) >= 2 and text[0] == text[-1] == '"':
        text = text[1:-1]
    return text or None


def _time(value: object) -> datetime | None:
    """RFC 3339 in any zone (versitygw writes its local one) becomes UTC."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
        if time.tzinfo is UTC:
            return time
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


_ABSENT = object()


def _field(mapping: Mapping[str, object], name: str, default: object = None) -> object:
    """A field by its name in any case: versitygw writes `PrincipalId` where others write `principalId`."""
    if name in mapping:
        return mapping[name]
    for found in mapping:
        if len(found) == len(name) and found.lower() == name.lower():
            return mapping[found]
    return default


def _part(mapping: Mapping[str, object], name: str) -> Mapping[str, object] | None:
    value = _field(mapping, name)
    return value if isinstance(value, dict) else None


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    return {str: "a text", bool: "a truth value", list: "a list", dict: "an object"}.get(type(value), "a number")


def _shown(value: object) -> str:
    """A value for a message: short, and on one line."""
    text = repr(value) if isinstance(value, str) else _json_type(value)
    return text if len(text) <= 120 else text[:117] + "..."
