"""What the journal says: which object was told to whom, in few bytes, for there is a line for every object.

Pure. An entry is an array, its columns are `COLUMNS`, and what many entries share stands once before them. The record
id is left out, because it follows from the columns (`records.record_id`; of an entry that has neither tag nor version,
but size and time, these name the state).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import orjson

from consumer.records import Message

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from consumer.records import EventName

JOURNAL_SCHEMA = "blobmap.journal.v1"

JournalEvent: TypeAlias = "EventName | Literal['ignored']"

# What entries share: bucket, scope, and the movers that have confirmed them.
Shared: TypeAlias = tuple[str, str, tuple[str, ...]]

# Key, event, confirmed, blob id, entity tag, version, bytes, time of the event (UTC).
Entry: TypeAlias = "tuple[str, JournalEvent, bool, str, str | None, str | None, int | None, datetime | None]"

COLUMNS = ("key", "event", "confirmed", "blob_id", "etag", "version_id", "size", "event_time")


def journal_message(queue: str, at: datetime, entries: Iterable[tuple[Shared, Entry]]) -> Message:
    """Writes one `blobmap.journal.v1` message.

    Args:
        queue: name of the journal.
        at: UTC; when the movers had confirmed.
        entries: what was told, in order, or kept from the movers: `ignored`, and no movers.

    Returns:
        The message. Entries that share bucket, scope and movers are put together, in the order of the first of each.
    """
    groups: dict[Shared, list[Entry]] = {}
    for shared, entry in entries:
        groups.setdefault(shared, []).append(entry)
    body = {
        "schema": JOURNAL_SCHEMA,
        "at": at,
        "told": [
            {"bucket": bucket, "scope": scope, "movers": movers, "entries": lines}
            for (bucket, scope, movers), lines in groups.items()
        ],
    }
    return Message(queue, JOURNAL_SCHEMA, orjson.dumps(body, option=orjson.OPT_UTC_Z))
