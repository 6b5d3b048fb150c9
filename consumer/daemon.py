"""The daemon: its parts put together from the settings, started, and stopped in order."""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog

from blobmap.policy import parse_size
from consumer import assembly
from consumer.bridge import bridging
from consumer.broker import CLOSE_S
from consumer.catalog import Catalog
from consumer.embedded import EmbeddedQueue
from consumer.finder import Finder
from consumer.flags import FlagBook
from consumer.manifest_alerts import ManifestAlerts
from consumer.pipeline import Pipeline
from consumer.ports import Status
from consumer.records import OBJECTS_SCHEMA
from consumer.settings import Http
from consumer.stalls import telling_stalls
from consumer.supervision import Supervisor
from consumer.until import in_time
from consumer.web import health_routes, serve_http
from consumer.webhook import events_route
from consumer.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp.web import AbstractRouteDef

    from consumer.broker import Session
    from consumer.ports import Journal, Sink, Source
    from consumer.records import Message
    from consumer.settings import Amqp, Embedded, Settings
    from consumer.topology import Topology

_log = structlog.get_logger(__name__)

# Of the time that a stop may take; what is left is for closing connections.
_SHARE_OF_GRACE = 0.6

# For each step of closing a session.
_SHARE_OF_CLOSING = 0.05


class Daemon:
    """What `blobmap-consumer run` runs.

    Args:
        settings: the configuration.

    Attributes:
        status: how it goes.
        port: port of its HTTP server, as soon as it listens.
    """

    def __init__(self, settings: Settings) -> None:
        self.status = Status()
        self.port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._settings = settings
        self._alerts = ManifestAlerts(settings.topology.alerts, self.status)
        self._catalog = Catalog(
            assembly.manifest_roots(settings),
            refresh_s=settings.manifests.refresh_s,
            lease_s=settings.manifests.lease_s,
            give_up_s=self._patience_s(settings.manifests.give_up_s),
            alert=self._alerts.tell,
        )
        self._flags = FlagBook(settings.topology.flags, reflag_s=settings.flags.reflag_s)
        self._finder = Finder(assembly.data(settings))
        self.status.guessed = self._finder.guessed

    def reload(self) -> None:
        """Asks for the manifests to be compared; the old ones hold until the new ones are there."""
        self._catalog.ask()

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until told to stop, or until it cannot go on.

        Args:
            stop: set to stop in order: what was begun is finished, the rest is left where it is.

        Raises:
            UnavailableError: broker or manifests could not be reached for as long as the configuration allows.
            BlobmapError: something else that nobody but a person can mend.
        """
        settings = self._settings
        _log.info("starting", buckets=[bucket.name for bucket in settings.bucket], dialect=settings.source.dialect)
        try:
            async with telling_stalls(self.status):
                if settings.embedded is not None:
                    await self._run_embedded(settings.embedded, stop)
                elif settings.amqp is not None:
                    await self._run_with_broker(settings.amqp, stop)
        finally:
            self._finder.close()
        _log.info("stopped", longest_stall_s=round(self.status.longest_stall_s, 3), **self.status.counts)

    # --- the two modes

    async def _run_embedded(self, embedded: Embedded, stop: asyncio.Event) -> None:
        """Everything in this process; events are taken from the first moment, as a gateway does not repeat them."""
        http = self._settings.http or Http()
        prefetch = self._settings.source.prefetch
        queue = await EmbeddedQueue.open(embedded.path, prefetch=prefetch, status=self.status)
        queue.lay_out(assembly.laid_out(self._settings))
        try:
            inbox = events_route(queue, token=http.token.get_secret_value())
            with assembly.open_lines(self._settings) as lines:
                async with self._http(http, inbox), self._catalog.kept(stop):
                    if not stop.is_set():
                        await self._pump_and_work(queue, lines, stop)
        finally:
            await queue.close()

    async def _pump_and_work(self, queue: EmbeddedQueue, lines: Sink | None, stop: asyncio.Event) -> None:
        """Routes events, and does what workers would do; when one of these ends, all do."""
        worker = Worker(self._settings, self._catalog, self.status, lines=lines)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pump(queue, queue, queue, lines, stop))
                tasks.create_task(worker.keep(stop))
                for name in worker.handlers:
                    tasks.create_task(worker.work(name, queue.source(name), queue, self._catalog, stop))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from group
        finally:
            worker.close()

    async def _run_with_broker(self, amqp: Amqp, stop: asyncio.Event) -> None:
        settings = self._settings
        laid_out = assembly.laid_out(settings)
        supervisor = Supervisor(
            amqp.address(),
            laid_out,
            queue=settings.source.queue,
            prefetch=settings.source.prefetch,
            give_up_s=self._patience_s(amqp.give_up_s),
            close_s=min(CLOSE_S, settings.grace_s * _SHARE_OF_CLOSING),
            status=self.status,
            on_announcement=self._catalog.ask,
        )
        with assembly.open_lines(settings) as lines:

            async def pump(session: Session) -> None:
                self._catalog.ask()  # what was announced while there was no session nobody has heard
                await self._pump(session.source, session.sink, session.sink, lines, stop)

            async def send(sink: Sink, message: Message) -> None:
                await (lines or sink if message.schema == OBJECTS_SCHEMA else sink).publish(message)

            async with self._posts(amqp, laid_out, stop), self._catalog.kept(stop):
                await supervisor.run(pump, send, stop, ready=self._catalog.fresh)

    @asynccontextmanager
    async def _posts(self, amqp: Amqp, laid_out: Topology, stop: asyncio.Event) -> AsyncIterator[None]:
        """Listens, and where events are posted keeps and forwards them; from the first moment, as in embedded mode."""
        source, http = self._settings.source, self._settings.http
        if source.spool is None:
            async with self._http(http):
                yield
            return
        http = http or Http()
        spooled = bridging(
            source.spool,
            amqp.address(),
            laid_out,
            exchange=source.exchange,
            most_bytes=parse_size(source.spool_max),
            status=self.status,
            stop=stop,
        )
        async with spooled as spool, self._http(http, events_route(spool, token=http.token.get_secret_value())):
            yield

    def _patience_s(self, give_up_s: float) -> float:
        """How long to wait for others: without end where events are posted, as nobody else would take them."""
        posted = self._settings.embedded is not None or self._settings.source.spool is not None
        return math.inf if posted else give_up_s

    # --- what both have

    async def _pump(
        self, source: Source, sink: Sink, journal: Journal, lines: Sink | None, stop: asyncio.Event
    ) -> None:
        """Runs the pipeline for one session, and ends it in the time that a stop may take."""
        pipeline = Pipeline(
            assembly.plan(self._settings),
            source=source,
            objects=lines or sink,
            others=sink,
            journal=journal,
            manifests=self._catalog,
            flags=self._flags,
            finder=self._finder,
            status=self.status,
        )
        async with self._alerts.published(sink):
            await in_time(pipeline.run(stop), stop, self._settings.grace_s * _SHARE_OF_GRACE)

    @asynccontextmanager
    async def _http(self, http: Http | None, *routes: AbstractRouteDef) -> AsyncIterator[None]:
        if http is None:
            yield
            return
        served = [*health_routes(self.status, self._catalog.stale), *routes]
        async with serve_http(served, host=http.host, port=http.port, max_body=http.max_body) as port:
            _log.info("listening", host=http.host, port=port)
            self.port.set_result(port)
            yield
