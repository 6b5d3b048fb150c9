"""From deliveries to acknowledgements: what a message causes is confirmed first, then the message is acknowledged.

One `Pipeline` lives as long as one session of its source; what outlives a session (manifests, flags, counts) is handed
in.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from blobmap.errors import UnavailableError
from consumer.events import Dialect, Refusal, parse_message
from consumer.ledger import Entry, Ledger
from consumer.ports import LostError
from consumer.records import Message, dead_letter, object_record, objects_message
from consumer.retry import growing_delays
from consumer.route import Emit, Ignore, Outcome, Rules, Unclaimed, route

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from blobmap.resolve import Trie
    from consumer.ports import Delivery, Flags, Sink, Source, Status

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """What of the configuration the pipeline needs.

    Attributes:
        dialect: spelling of the gateway.
        rules: what decides about events beside the manifests.
        queues: for each bucket the queues of the movers that want it.
        dead: queue of the dead letters.
        batch_objects: records in a message at most.
        batch_s: seconds that a record waits for others at most.
    """

    dialect: Dialect
    rules: Rules
    queues: Mapping[str, tuple[str, ...]]
    dead: str
    batch_objects: int
    batch_s: float


@dataclass(slots=True, eq=False)
class _Batch:
    """Records that wait to be one message, and the deliveries that wait for it."""

    full: asyncio.Event = field(default_factory=asyncio.Event)
    records: list[bytes] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)


class Pipeline:
    """One session.

    Args:
        plan: what the configuration says.
        source: where deliveries come from.
        objects: where object records go.
        others: where flags and dead letters go.
        tries: the manifests in force, by bucket.
        flags: what was flagged.
        status: where to say how it goes.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        source: Source,
        objects: Sink,
        others: Sink,
        tries: Mapping[str, Trie],
        flags: Flags,
        status: Status,
    ) -> None:
        self._plan = plan
        self._source = source
        self._objects = objects
        self._others = others
        self._tries = tries
        self._flags = flags
        self._status = status
        self._ledger = Ledger()
        self._batches: dict[str, _Batch] = {}
        self._waiting_for_flag: dict[str, list[Entry]] = {}
        self._progress = asyncio.Event()
        self._draining = False
        self._tasks = asyncio.TaskGroup()

    async def run(self, stop: asyncio.Event) -> None:
        """Handles deliveries until told to stop, then finishes what was begun.

        Args:
            stop: set to stop. What is taken by then is handled, confirmed and acknowledged; the rest is left.

        Raises:
            UnavailableError: the session is over.
            Exception: whatever else a source or a sink raised. What was not acknowledged is delivered again.
        """
        try:
            async with self._tasks:
                self._tasks.create_task(self._acknowledge())
                self._tasks.create_task(self._stop_on(stop))
                self._status.consuming = True
                while deliveries := await self._source.take():
                    for delivery in deliveries:
                        self._handle(delivery)
                    if len(self._ledger) >= self._source.prefetch:  # no further record can come to fill a batch
                        self._close_batches()
                    self._progress.set()
                self._draining = True
                self._close_batches()
                self._progress.set()
        except BaseExceptionGroup as group:
            raise _to_show(group) from group
        finally:
            self._status.consuming = False

    async def _stop_on(self, stop: asyncio.Event) -> None:
        await stop.wait()
        await self._source.stop()

    def _handle(self, delivery: Delivery) -> None:
        entry = self._ledger.enter(delivery.tag)
        letters = []
        for parsed in parse_message(delivery.body, self._plan.dialect):
            outcome = route(parsed, self._tries, self._plan.rules)
            self._count(outcome)
            if isinstance(outcome, Emit):
                self._emit(outcome, entry)
            elif isinstance(outcome, Unclaimed):
                self._flag(outcome, entry)
            elif isinstance(outcome, Refusal):
                letters.append(self._letter(outcome, delivery))
        if letters:
            entry.open_outputs += 1
            self._tasks.create_task(self._set_aside(letters, entry))

    def _count(self, outcome: Outcome) -> None:
        counts = self._status.counts
        counts["events"] += 1
        if isinstance(outcome, Emit):
            counts["emitted"] += 1
            if outcome.event.corrected:
                counts["corrected"] += 1
        elif isinstance(outcome, Ignore):
            counts[f"ignored {outcome.reason}"] += 1
        elif isinstance(outcome, Unclaimed):
            counts["unclaimed"] += 1
        else:
            counts[f"refused {outcome.code}"] += 1

    # --- object records

    def _emit(self, outcome: Emit, entry: Entry) -> None:
        event = outcome.event
        record = object_record(
            bucket=event.bucket,
            key=event.key,
            event="created" if event.kind == "created" else "removed",
            confirmed=event.kind == "created",  # a removal is a hint until a listing shows it
            scope=outcome.scope,
            blob_id=outcome.blob_id,
            epoch=outcome.epoch,
            size=event.size,
            etag=event.etag,
            version_id=event.version_id,
            event_time=event.event_time,
            source="event",
        )
        for queue in self._plan.queues[event.bucket]:
            batch = self._batches.get(queue)
            if batch is None:
                batch = self._batches[queue] = _Batch()
                self._tasks.create_task(self._tell(queue, batch))
            batch.records.append(record)
            batch.entries.append(entry)
            entry.open_outputs += 1
            if len(batch.records) >= self._plan.batch_objects:
                self._close_batch(queue)

    def _close_batch(self, queue: str) -> None:
        self._batches.pop(queue).full.set()

    def _close_batches(self) -> None:
        for queue in tuple(self._batches):
            self._close_batch(queue)

    async def _tell(self, queue: str, batch: _Batch) -> None:
        """Sees one batch through: waits for its records, publishes it, lets go of its deliveries."""
        try:
            async with asyncio.timeout(self._plan.batch_s):
                await batch.full.wait()
        except TimeoutError:
            if self._batches.get(queue) is batch:
                self._close_batch(queue)
        await self._publish(self._objects, objects_message(queue, batch.records))
        self._release(batch.entries)

    # --- flags

    def _flag(self, outcome: Unclaimed, entry: Entry) -> None:
        subject = self._flags.note(outcome.event, outcome.scope)
        if subject is None:
            return
        entry.open_outputs += 1
        waiting = self._waiting_for_flag.get(subject)
        if waiting is not None:
            waiting.append(entry)
            return
        self._waiting_for_flag[subject] = [entry]
        self._tasks.create_task(self._raise_flag(subject, self._flags.message(subject)))

    async def _raise_flag(self, subject: str, message: Message) -> None:
        await self._publish(self._others, message)
        self._status.counts["flags"] += 1
        self._flags.confirmed(subject)
        self._release(self._waiting_for_flag.pop(subject))

    # --- dead letters

    def _letter(self, refusal: Refusal, delivery: Delivery) -> Message:
        _log.warning("refused", code=refusal.code, reason=refusal.reason)
        return dead_letter(
            self._plan.dead,
            delivery.body if refusal.body is None else refusal.body,
            code=refusal.code,
            reason=refusal.reason,
            first_seen=delivery.first_seen or datetime.now(UTC),
            deliveries=delivery.deliveries,
            exchange=delivery.exchange,
            routing_key=delivery.routing_key,
        )

    async def _set_aside(self, letters: Sequence[Message], entry: Entry) -> None:
        for letter in letters:
            await self._publish(self._others, letter)
        self._release([entry])

    # --- outputs and acknowledgements

    async def _publish(self, sink: Sink, message: Message) -> None:
        """Publishes until it is safe; what depends on it stays unacknowledged meanwhile."""
        for delay in growing_delays():
            try:
                await sink.publish(message)
            except LostError:
                raise
            except UnavailableError as error:
                self._trouble(message.queue, str(error))
                await asyncio.sleep(delay)
            else:
                self._trouble(message.queue, None)
                return

    def _trouble(self, queue: str, reason: str | None) -> None:
        """Keeps what is wrong with a queue, and says it when that changes."""
        before = self._status.troubles.pop(queue, None)
        if reason is not None:
            self._status.troubles[queue] = reason
        if (before is None) != (reason is None):
            _log.warning("output", queue=queue, works=reason is None, reason=reason or before)

    def _release(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            entry.open_outputs -= 1
        self._progress.set()

    async def _acknowledge(self) -> None:
        """Acknowledges what is done, from one place, so that tags only grow."""
        while not self._draining or self._ledger:
            await self._progress.wait()
            self._progress.clear()
            tag = self._ledger.settled()
            if tag is not None:
                await self._source.acknowledge(tag)


def _to_show(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error that says why a session ended; a loss only where nothing else is wrong."""
    errors = list(_leaves(group))
    return next((error for error in errors if not isinstance(error, LostError)), errors[0])


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
