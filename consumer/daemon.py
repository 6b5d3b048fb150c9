"""The daemon: its parts put together from the settings, started, and stopped in order."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import structlog

from blobmap.errors import BlobmapError, UnavailableError
from consumer import assembly
from consumer.broker import open_session
from consumer.catalog import load_catalog
from consumer.embedded import EmbeddedQueue
from consumer.flags import FlagBook
from consumer.ndjson import NdjsonSink
from consumer.pipeline import Pipeline
from consumer.ports import Status
from consumer.retry import growing_delays, persist
from consumer.settings import Http
from consumer.topology import topology
from consumer.web import health_routes, serve_http
from consumer.webhook import events_route

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from aiohttp.web import AbstractRouteDef

    from blobmap.resolve import Trie
    from consumer.broker import Session
    from consumer.ports import Sink, Source
    from consumer.settings import Amqp, Embedded, Settings

T = TypeVar("T")

_log = structlog.get_logger(__name__)

# Of the time that a stop may take; what is left is for closing connections.
_SHARE_OF_GRACE = 0.6

# A session that lasted this long has worked: the next loss begins with short delays again.
_WORKED_S = 60.0


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
        self._tries: dict[str, Trie] = {}
        self._flags = FlagBook(settings.topology.flags, reflag_s=settings.flags.reflag_s)
        self._reload = asyncio.Event()

    def reload(self) -> None:
        """Asks for the manifests to be read again; the old ones hold until the new ones are there."""
        self._reload.set()

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
        if settings.embedded is not None:
            await self._run_embedded(settings.embedded, stop)
        elif settings.amqp is not None:
            await self._run_with_broker(settings.amqp, stop)
        _log.info("stopped", **self.status.counts)

    # --- the two modes

    async def _run_embedded(self, embedded: Embedded, stop: asyncio.Event) -> None:
        """Everything in this process; events are taken from the first moment, as a gateway does not repeat them."""
        http = self._settings.http or Http()
        queue = await EmbeddedQueue.open(embedded.path, prefetch=self._settings.source.prefetch)
        try:
            inbox = events_route(queue, token=http.token.get_secret_value())
            async with self._http(http, inbox), self._manifests(stop):
                if not stop.is_set():
                    await self._pump(queue, queue, stop)
        finally:
            await queue.close()

    async def _run_with_broker(self, amqp: Amqp, stop: asyncio.Event) -> None:
        async with self._http(self._settings.http), self._manifests(stop):
            delays = growing_delays()
            while not stop.is_set():
                opened = await until(stop, self._reach(amqp))
                if opened is None:
                    return
                closing, session = opened
                began_s = asyncio.get_running_loop().time()
                try:
                    async with closing:
                        await self._pump(session.source, session.sink, stop)
                except UnavailableError as error:
                    _log.warning("session lost", reason=str(error))
                    if asyncio.get_running_loop().time() - began_s > _WORKED_S:
                        delays = growing_delays()
                    await until(stop, asyncio.sleep(next(delays)))

    async def _reach(self, amqp: Amqp) -> tuple[AsyncExitStack, Session]:
        """Opens a session, as soon as the broker is there."""
        address = amqp.address()
        laid_out = topology(assembly.names(self._settings), assembly.movers(self._settings))
        source = self._settings.source

        async def attempt() -> tuple[AsyncExitStack, Session]:
            closing = AsyncExitStack()
            session = await closing.enter_async_context(
                open_session(address, laid_out, queue=source.queue, prefetch=source.prefetch)
            )
            _log.info("consuming", broker=str(address), queue=source.queue)
            return closing, session

        return await persist(attempt, what="reach the broker", give_up_s=amqp.give_up_s)

    # --- what both have

    async def _pump(self, source: Source, sink: Sink, stop: asyncio.Event) -> None:
        """Runs the pipeline for one session, and ends it in the time that a stop may take."""
        plain = self._settings.sink
        kind = plain.kind or ("amqp" if self._settings.amqp is not None else "ndjson")
        lines = NdjsonSink(plain.path) if kind == "ndjson" else None
        pipeline = Pipeline(
            assembly.plan(self._settings),
            source=source,
            objects=lines or sink,
            others=sink,
            tries=self._tries,
            flags=self._flags,
            status=self.status,
        )
        try:
            await _in_time(pipeline.run(stop), stop, self._settings.grace_s * _SHARE_OF_GRACE)
        finally:
            if lines is not None:
                lines.close()

    @asynccontextmanager
    async def _http(self, http: Http | None, *routes: AbstractRouteDef) -> AsyncIterator[None]:
        if http is None:
            yield
            return
        served = [*health_routes(self.status), *routes]
        async with serve_http(served, host=http.host, port=http.port, max_body=http.max_body) as port:
            _log.info("listening", host=http.host, port=port)
            self.port.set_result(port)
            yield

    @asynccontextmanager
    async def _manifests(self, stop: asyncio.Event) -> AsyncIterator[None]:
        """Reads the manifests, and again whenever asked to."""
        loaded = await until(stop, self._load())
        if loaded is None:
            yield
            return
        self._tries.update(loaded)
        reloading = asyncio.create_task(self._reload_when_asked())
        try:
            yield
        finally:
            reloading.cancel()
            await asyncio.gather(reloading, return_exceptions=True)

    async def _load(self) -> dict[str, Trie]:
        give_up_s = self._settings.manifests.give_up_s
        return dict(await load_catalog(assembly.manifest_roots(self._settings), give_up_s=give_up_s))

    async def _reload_when_asked(self) -> None:
        while True:
            await self._reload.wait()
            self._reload.clear()
            try:
                self._tries.update(await self._load())
            except BlobmapError as error:
                _log.error("manifests not reloaded", reason=str(error))


async def until(stop: asyncio.Event, work: Coroutine[object, object, T]) -> T | None:
    """Awaits work, or gives it up when told to stop.

    Args:
        stop: set to give up.
        work: what is awaited; cancelled when it is given up.

    Returns:
        What the work returned, None where it was given up.
    """
    task = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for one in (task, stopping):
            one.cancel()
        await asyncio.gather(task, stopping, return_exceptions=True)


async def _in_time(run: Coroutine[object, object, None], stop: asyncio.Event, grace_s: float) -> None:
    """Awaits a run that ends by itself some time after `stop`, and ends it if it does not in time."""
    task = asyncio.ensure_future(run)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
        _, late = await asyncio.wait((task,), timeout=grace_s if stop.is_set() else None)
        if late:
            _log.warning("stopped before everything was confirmed", waited_s=grace_s)
            return
        task.result()
    finally:
        for one in (task, stopping):
            one.cancel()
        await asyncio.gather(task, stopping, return_exceptions=True)
