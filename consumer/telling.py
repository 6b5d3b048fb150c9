"""From a listing to movers and journal: which objects are told, what is said of them, and how far that is confirmed."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from consumer.journal import journal_message
from consumer.records import object_record, objects_message, stat_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from blobmap.objects import Entry
    from blobmap.resolve import Resolution
    from consumer import journal
    from consumer.ports import Sink
    from consumer.records import Origin

# Batches under way at once: enough that confirms are not waited for, few enough that memory stays small.
_UNDER_WAY = 8


@dataclass(frozen=True, slots=True)
class Addressees:
    """Who is told what lies in a bucket.

    Attributes:
        bucket: its name.
        movers: names of the movers, each with its queue.
        journal: where it is written down.
        batch_objects: records in a message at most.
    """

    bucket: str
    movers: Mapping[str, str]
    journal: str
    batch_objects: int


@dataclass(frozen=True, slots=True)
class Told:
    """One object to tell of.

    Attributes:
        record: what movers get.
        shared: what its line in the journal has in common with others.
        line: its line in the journal.
    """

    record: bytes
    shared: journal.Shared
    line: journal.Entry


def told(to: Addressees, entry: Entry, resolution: Resolution, *, source: Origin, tagged: bool) -> Told:
    """Says of a listed object that it is there.

    Args:
        to: who is told.
        entry: the object, as listed.
        resolution: the blob that it belongs to.
        source: why it was listed.
        tagged: whether the listing's tags are those of the gateway; of plain files they are not.

    Returns:
        Its record and its line in the journal.
    """
    tag = (entry["e_tag"] or "").strip('"') if tagged else ""
    etag = tag or None
    key, size, modified = entry["path"], entry["size"], entry["last_modified"]
    scope, blob_id, epoch = resolution.scope, resolution.blob_id, resolution.epoch
    if scope is None or blob_id is None or epoch is None:
        raise ValueError(f"{key!r} belongs to no blob")
    record = object_record(
        bucket=to.bucket,
        key=key,
        event="created",
        confirmed=True,
        scope=scope,
        blob_id=blob_id,
        epoch=epoch,
        size=size,
        etag=etag,
        version_id=None,
        event_time=modified,
        source=source,
        stat=stat_text(size, modified),
    )
    shared = (to.bucket, scope, tuple(to.movers))
    return Told(record, shared, (key, "created", True, blob_id, etag, None, size, modified))


class Telling:
    """Tells in batches, several at once, and knows up to where all is confirmed. Use `telling`."""

    def __init__(self, to: Addressees, sink: Sink) -> None:
        self._to = to
        self._sink = sink
        self._waiting: list[Told] = []
        self._under_way: deque[tuple[asyncio.Task[None], str]] = deque()
        self.count = 0
        self.reached: str | None = None

    async def add(self, found: Sequence[Told], upto: str) -> None:
        """Takes what a part of the listing has shown; waits where much is under way.

        Args:
            found: what is told, in the order of the listing.
            upto: the last key of that part.

        Raises:
            LostError: the session is over.
            UnavailableError: something was not taken.
        """
        self._waiting += found
        self.count += len(found)
        most = self._to.batch_objects
        while len(self._waiting) >= most:
            batch, self._waiting = self._waiting[:most], self._waiting[most:]
            await self._send(batch, batch[-1].line[0] if self._waiting else upto)
        if not self._waiting and not self._under_way:
            self.reached = upto
        await self._confirm(lambda: bool(self._under_way) and self._under_way[0][0].done())

    async def finish(self, upto: str | None) -> None:
        """Returns when everything is confirmed. Raises as `add`."""
        if self._waiting and upto is not None:
            batch, self._waiting = self._waiting, []
            await self._send(batch, upto)
        await self._confirm(lambda: bool(self._under_way))
        if upto is not None:
            self.reached = upto

    async def stop(self) -> None:
        """Gives up what is under way."""
        tasks = [task for task, _ in self._under_way]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, batch: Sequence[Told], upto: str) -> None:
        await self._confirm(lambda: len(self._under_way) >= _UNDER_WAY)
        self._under_way.append((asyncio.create_task(self._tell(batch)), upto))

    async def _confirm(self, more: Callable[[], bool]) -> None:
        """Waits for the oldest batch, as long as there has to be one less."""
        while more():
            task, upto = self._under_way[0]
            await task
            self._under_way.popleft()
            self.reached = upto

    async def _tell(self, batch: Sequence[Told]) -> None:
        """Sees one batch through: every mover has it, then it is written down."""
        records = [one.record for one in batch]
        for queue in self._to.movers.values():
            await self._sink.publish(objects_message(queue, records))
        lines = ((one.shared, one.line) for one in batch)
        await self._sink.publish(journal_message(self._to.journal, datetime.now(UTC), lines))


@asynccontextmanager
async def telling(to: Addressees, sink: Sink) -> AsyncIterator[Telling]:
    """Tells as long as the context lasts; what is not confirmed by then is given up.

    Args:
        to: who is told.
        sink: publishes messages to movers, and to the journal.
    """
    one = Telling(to, sink)
    try:
        yield one
    finally:
        await one.stop()
