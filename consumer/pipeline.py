"""From deliveries to acknowledgements: what a message causes is confirmed first, then the message is acknowledged.

One `Pipeline` lives as long as one session of its source; what outlives a session (manifests, flags, counts) is handed
in.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from consumer.aside import Aside
from consumer.batches import Batches
from consumer.events import Dialect, ObjectEvent, Parsed, Refusal, parse_message
from consumer.flagging import Flagging
from consumer.journal import journal_message
from consumer.ledger import Ledger
from consumer.often import OFTEN, Often
from consumer.outputs import Outputs, StuckError
from consumer.ports import LostError
from consumer.records import object_record, objects_message
from consumer.route import Document, Emit, Ignore, Outcome, Relist, Rules, Unclaimed, Withheld, route
from consumer.until import until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from consumer import journal
    from consumer.finder import Finder
    from consumer.ledger import Entry
    from consumer.ports import Delivery, Flags, Journal, Manifests, Sink, Source, Status
    from consumer.records import EventName, Message


@dataclass(frozen=True, slots=True)
class Plan:
    """What of the configuration the pipeline needs.

    Attributes:
        dialect: spelling of the gateway.
        rules: what decides about events beside the manifests.
        movers: for each bucket the names of the movers that want it, each with its queue.
        events: queue that deliveries come from.
        alerts: queue of the alerts.
        dead: queue of the dead letters.
        journal: name of the journal.
        batch_objects: records in a message at most.
        batch_s: seconds that a record waits for others at most.
        patience_s: seconds after which an output that nobody takes, or manifests that are stale, end the session.
    """

    dialect: Dialect
    rules: Rules
    movers: Mapping[str, Mapping[str, str]]
    events: str
    alerts: str
    dead: str
    journal: str
    batch_objects: int
    batch_s: float
    patience_s: float


_OF_MANIFESTS = Ignore("manifest-bucket")


@dataclass(slots=True, eq=False)
class _Told:
    """One record on its way.

    Attributes:
        entry: the delivery that waits for it.
        record: what the movers get; empty where none does.
        shared: what its line in the journal has in common with others.
        line: its line in the journal.
        open_movers: how many have not confirmed it.
    """

    entry: Entry
    record: bytes
    shared: journal.Shared
    line: journal.Entry
    open_movers: int


class Pipeline:
    """One session.

    Args:
        plan: what the configuration says.
        source: where deliveries come from.
        objects: where object records go.
        others: where flags, alerts and dead letters go.
        journal: where it is written down what movers were told.
        manifests: what decides about keys.
        flags: what was flagged.
        finder: finds the stores of unclaimed objects.
        status: where to say how it goes.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        source: Source,
        objects: Sink,
        others: Sink,
        journal: Journal,
        manifests: Manifests,
        flags: Flags,
        finder: Finder,
        status: Status,
    ) -> None:
        self._plan = plan
        self._source = source
        self._objects = objects
        self._others = others
        self._journal = journal
        self._manifests = manifests
        self._status = status
        self._outputs = Outputs(status, patience_s=plan.patience_s)
        self._ledger = Ledger()
        self._progress = asyncio.Event()
        self._draining = False
        self._tasks = asyncio.TaskGroup()
        self._aside = Aside(plan.dead, plan.alerts, status)
        self._often = Often(plan.events, plan.alerts, sink=others, status=status, tasks=self._tasks)
        self._batches = Batches[_Told](most=plan.batch_objects, wait_s=plan.batch_s, send=self._tell, tasks=self._tasks)
        self._flagging = Flagging(
            finder, flags, publish=self._publish, release=self._release, tasks=self._tasks, status=status
        )
        self._movers = {bucket: tuple(queues) for bucket, queues in plan.movers.items()}
        self._queues = {bucket: tuple(queues.values()) for bucket, queues in plan.movers.items()}

    async def run(self, stop: asyncio.Event) -> None:
        """Handles deliveries until told to stop, then finishes what was begun.

        Args:
            stop: set to stop. What is taken by then is handled, confirmed and acknowledged; the rest is left.

        Raises:
            LostError: the session is over.
            StuckError: a queue took nothing, or manifests were stale, for as long as patience lasts.
            Exception: whatever else a source or a sink raised. What was not acknowledged is delivered again.
        """
        try:
            async with self._tasks:
                self._tasks.create_task(self._acknowledge())
                self._tasks.create_task(self._stop_on(stop))
                self._status.consuming = True
                while deliveries := await self._source.take():
                    if not self._manifests.is_fresh:
                        await until(stop, self._until_fresh())
                        if stop.is_set():
                            break
                    for delivery in deliveries:
                        self._handle(delivery)
                    if len(self._ledger) >= self._source.prefetch:  # no further record can come to fill a batch
                        self._batches.close()
                    self._progress.set()
                self._draining = True
                self._batches.close()
                self._progress.set()
        except BaseExceptionGroup as group:
            raise _to_show(group) from group
        finally:
            self._status.consuming = False
            self._batches.discard()

    async def _until_fresh(self) -> None:
        """Waits with what was taken, but not for longer than for an output."""
        try:
            async with asyncio.timeout(self._plan.patience_s):
                await self._manifests.fresh()
        except TimeoutError:
            raise StuckError("the manifests are stale", ()) from None

    async def _stop_on(self, stop: asyncio.Event) -> None:
        await stop.wait()
        await self._source.stop()

    def _handle(self, delivery: Delivery) -> None:
        entry = self._ledger.enter(delivery.tag)
        if delivery.deliveries >= OFTEN:
            self._often.note(delivery)
        letters: list[Message] = []
        for parsed in parse_message(delivery.body, self._plan.dialect):
            outcome = route(parsed, self._manifests.tries, self._plan.rules)
            self._count(parsed, outcome)
            if isinstance(outcome, Emit):
                self._emit(outcome, entry)
            elif isinstance(outcome, Withheld):
                self._withhold(outcome, entry)
            elif isinstance(outcome, Unclaimed):
                self._flagging.unclaimed(outcome, entry)
            elif isinstance(outcome, Document):
                self._flagging.document(outcome, entry)
            elif outcome == _OF_MANIFESTS and isinstance(parsed, ObjectEvent):
                self._manifests.noticed(parsed.bucket, parsed.key)
            elif isinstance(outcome, Refusal):
                letters += self._aside.letters(delivery, code=outcome.code, reason=outcome.reason, body=outcome.body)
        if letters:
            entry.open_outputs += 1
            self._tasks.create_task(self._set_aside(letters, entry))

    def _count(self, parsed: Parsed, outcome: Outcome) -> None:
        counts = self._status.counts
        counts["events"] += 1
        if isinstance(parsed, ObjectEvent) and parsed.corrected:
            counts["corrected"] += 1
        match outcome:
            case Emit():
                counts["emitted"] += 1
            case Withheld():
                counts["ignored own-principal"] += 1
            case Ignore():
                counts[f"ignored {outcome.reason}"] += 1
            case Document():
                counts["ignored metadata"] += 1
            case Relist():
                counts[f"relist {outcome.reason}"] += 1
                self._status.relist[outcome.event.bucket] += 1
            case Unclaimed():
                counts["unclaimed"] += 1
            case Refusal():
                counts[f"refused {outcome.code}"] += 1

    # --- object records

    def _emit(self, outcome: Emit, entry: Entry) -> None:
        event = outcome.event
        what: EventName = "created" if event.kind == "created" else "removed"
        record = object_record(
            bucket=event.bucket,
            key=event.key,
            event=what,
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
        queues = self._queues[event.bucket]
        shared = (event.bucket, outcome.scope, self._movers[event.bucket])
        told = _Told(entry, record, shared, _line(event, outcome.blob_id, what), len(queues))
        entry.open_outputs += 1
        for queue in queues:
            self._batches.add(queue, told)

    def _withhold(self, outcome: Withheld, entry: Entry) -> None:
        event = outcome.event
        entry.open_outputs += 1
        line = _line(event, outcome.blob_id, "ignored")
        self._batches.add(self._plan.journal, _Told(entry, b"", (event.bucket, outcome.scope, ()), line, 1))

    async def _tell(self, queue: str, batch: list[_Told]) -> None:
        """Sees one batch through: publishes it, writes down what all movers have now, lets go of its deliveries."""
        if queue != self._plan.journal:
            message = objects_message(queue, [told.record for told in batch])
            await self._outputs.publish(self._objects.publish, message)
        for told in batch:
            told.open_movers -= 1
        done = [told for told in batch if not told.open_movers]
        if done:
            lines = ((told.shared, told.line) for told in done)
            await self._outputs.publish(
                self._journal.append, journal_message(self._plan.journal, datetime.now(UTC), lines)
            )
            self._release(told.entry for told in done)

    # --- dead letters

    async def _set_aside(self, letters: Sequence[Message], entry: Entry) -> None:
        for letter in letters:
            await self._publish(letter)
        self._release([entry])

    # --- outputs and acknowledgements

    async def _publish(self, message: Message) -> None:
        await self._outputs.publish(self._others.publish, message)

    def _release(self, entries: Iterable[Entry]) -> None:
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
                self._often.acknowledged(tag)
        self._often.end()


def _line(event: ObjectEvent, blob_id: str, what: journal.JournalEvent) -> journal.Entry:
    confirmed = event.kind == "created"  # a removal is a hint until a listing shows it
    return event.key, what, confirmed, blob_id, event.etag, event.version_id, event.size, event.event_time


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
