"""The worker: takes flags and tasks, one of each at a time, and does what is too slow for those who route events."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import structlog

from blobmap.errors import UsageError
from consumer import assembly
from consumer.aside import Aside
from consumer.backfill import Backfills
from consumer.broker import CLOSE_S
from consumer.catalog import Catalog
from consumer.deliveries import Deliveries, PatientSink
from consumer.finder import Finder
from consumer.open_sink import OpenSink
from consumer.owing import Owing
from consumer.partitioner import Partitioner
from consumer.ports import Announcer, Journal, Sink, Status
from consumer.records import OBJECTS_SCHEMA
from consumer.sorted_sink import SortedSink
from consumer.store_alerts import StoreAlerts
from consumer.supervision import Supervisor
from consumer.until import in_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from consumer.broker import Session
    from consumer.deliveries import Handler
    from consumer.ports import Source
    from consumer.records import Message
    from consumer.settings import Amqp, Settings

_log = structlog.get_logger(__name__)

# Of the time that a stop may take; what is left is for closing connections.
_SHARE_OF_GRACE = 0.6
_SHARE_OF_CLOSING = 0.05


class KeepingSink(Sink, Journal, Protocol):
    """Where messages go, and where it is written down what movers were told."""


class Worker:
    """What works off flags and tasks, whatever they come from.

    Args:
        settings: the configuration.
        catalog: the manifests in force; somebody else keeps them fresh.
        status: where to say how it goes.
        lines: where object records go, None where that is a queue, too.

    Attributes:
        handlers: by the name of their queue.
        sink: publishes in the session that is open.
    """

    def __init__(self, settings: Settings, catalog: Catalog, status: Status, *, lines: Sink | None) -> None:
        self.sink = OpenSink()
        self._lines = lines
        self._settings = settings
        self._status = status
        self._aside = Aside(settings.topology.dead, settings.topology.alerts, status)
        self._finder = Finder(assembly.data(settings), trust_s=0)
        data = assembly.data(settings)
        alerts = StoreAlerts(settings.topology.alerts, self.sink, catalog)
        backfills = Backfills(assembly.backfill_plan(settings), catalog, data, sink=self.sink)
        flags = Partitioner(
            assembly.settling(settings),
            data=data,
            catalog=catalog,
            finder=self._finder,
            alerts=alerts,
            announcer=self.sink,
            backfills=backfills,
        )
        self._owing = Owing(catalog, backfills, alerts)
        self.handlers: Mapping[str, Handler] = {settings.topology.flags: flags, settings.topology.tasks: backfills}

    async def keep(self, stop: asyncio.Event) -> None:
        """Finds out what is owed, until told to stop; the manifests must be loaded."""
        await self._owing.keep(stop)

    async def work(
        self, queue: str, source: Source, sink: KeepingSink, announcer: Announcer, stop: asyncio.Event
    ) -> None:
        """Works off one queue in one session, and ends that in the time that a stop may take.

        Args:
            queue: name of the queue.
            source: gives its deliveries, one at a time.
            sink: publishes in the same session.
            announcer: announces in the same session.
            stop: set to stop.

        Raises:
            LostError: the session is over.
            StuckError: a queue took nothing for as long as patience lasts.
        """
        settings = self._settings
        patience_s = assembly.patience_s(settings)
        deliveries = Deliveries(self.handlers[queue], aside=self._aside, patience_s=patience_s)
        sorted_ = SortedSink(objects=self._lines or sink, journal=sink, others=sink)
        patient = PatientSink(sorted_, self._status, patience_s=patience_s)
        with self.sink.within(patient, announcer):
            await in_time(deliveries.run(source, patient, stop), stop, settings.grace_s * _SHARE_OF_GRACE)

    def close(self) -> None:
        """Lets go of threads."""
        self._finder.close()


class WorkerDaemon:
    """What `blobmap-consumer partition` runs.

    Args:
        settings: the configuration.

    Raises:
        UsageError: it leaves out what a worker needs.
    """

    def __init__(self, settings: Settings) -> None:
        if settings.amqp is None:
            raise UsageError("partition needs [amqp]: with [embedded], run does this work too")
        blind = [bucket.name for bucket in settings.bucket if bucket.data is None]
        if blind:
            raise UsageError(f"bucket {blind[0]!r}: data is missing; partition has to look at the objects")
        self.status = Status()
        self._settings = settings
        self._amqp: Amqp = settings.amqp
        self._catalog = Catalog(
            assembly.manifest_roots(settings),
            refresh_s=settings.manifests.refresh_s,
            lease_s=settings.manifests.lease_s,
            give_up_s=settings.manifests.give_up_s,
        )

    def reload(self) -> None:
        """Asks for the manifests to be compared; the old ones hold until the new ones are there."""
        self._catalog.ask()

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until told to stop, or until it cannot go on.

        Args:
            stop: set to stop in order: what is at work is finished where that does not take too long.

        Raises:
            UnavailableError: broker or manifests could not be reached for as long as the configuration allows.
            BlobmapError: something else that nobody but a person can mend.
        """
        _log.info("starting", buckets=[bucket.name for bucket in self._settings.bucket])
        with assembly.open_lines(self._settings) as lines:
            worker = Worker(self._settings, self._catalog, self.status, lines=lines)
            try:
                async with self._catalog.kept(stop):
                    if not stop.is_set():
                        await self._supervise_all(worker, lines, stop)
            finally:
                worker.close()
        _log.info("stopped")

    async def _supervise_all(self, worker: Worker, lines: Sink | None, stop: asyncio.Event) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(worker.keep(stop))
                for queue in worker.handlers:
                    tasks.create_task(self._supervise(worker, queue, lines, stop))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from group

    async def _supervise(self, worker: Worker, queue: str, lines: Sink | None, stop: asyncio.Event) -> None:
        supervisor = Supervisor(
            self._amqp.address(),
            assembly.laid_out(self._settings),
            queue=queue,
            prefetch=1,
            give_up_s=self._amqp.give_up_s,
            close_s=min(CLOSE_S, self._settings.grace_s * _SHARE_OF_CLOSING),
            status=self.status,
            on_announcement=self._catalog.ask,
        )

        async def work(session: Session) -> None:
            self._catalog.ask()  # what was announced while there was no session nobody has heard
            await worker.work(queue, session.source, session.sink, session.sink, stop)

        async def send(sink: Sink, message: Message) -> None:
            await (lines or sink if message.schema == OBJECTS_SCHEMA else sink).publish(message)

        await supervisor.run(work, send, stop, ready=self._catalog.fresh)
