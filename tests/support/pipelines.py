"""A pipeline over a real queue in a file, and sinks that fail or wait in front of it."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from consumer.embedded import EmbeddedQueue
from consumer.finder import Finder
from consumer.flags import FlagBook
from consumer.pipeline import Pipeline, Plan
from consumer.ports import Status
from consumer.route import Rules
from tests.support.manifests import AlwaysFresh, manifest, trie
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from consumer.ports import Manifests, Sink
    from consumer.records import Message

PLAN = Plan(
    dialect="versitygw",
    rules=Rules(own_principals=frozenset({"svc-tape"})),
    movers={"b": {"one": "objects.one", "two": "objects.two"}, "c": {"one": "objects.one"}},
    events="events",
    alerts="alerts",
    dead="dead",
    journal="journal",
    batch_objects=10,
    batch_s=0.02,
    patience_s=600,
)
TRIES = {"b": trie(manifest("s.zarr", epoch=4)), "c": trie()}


class Daemon:
    """A pipeline over a real queue in a file; a test can put a sink of its own before the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.plan = PLAN
        self.prefetch = 100
        self.status = Status()
        self.flags = FlagBook("flags", reflag_s=3600)
        self.finder = Finder({})
        self.stop = asyncio.Event()
        self.manifests: Manifests = AlwaysFresh(TRIES)
        self.objects: Sink | None = None
        self.others: Sink | None = None
        self.queue: EmbeddedQueue | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[EmbeddedQueue]:
        self.queue = await EmbeddedQueue.open(self.path, prefetch=self.prefetch)
        try:
            yield self.queue
        finally:
            await self.queue.close()

    def pipeline(self, queue: EmbeddedQueue) -> Pipeline:
        return Pipeline(
            self.plan,
            source=queue,
            objects=self.objects or queue,
            others=self.others or queue,
            journal=queue,
            manifests=self.manifests,
            flags=self.flags,
            finder=self.finder,
            status=self.status,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[EmbeddedQueue]:
        """Runs until the test is done with it, then stops it in order."""
        async with self.opened() as queue, asyncio.timeout(30):
            run = asyncio.ensure_future(self.pipeline(queue).run(self.stop))
            try:
                yield queue
                self.stop.set()
                await run
            finally:
                run.cancel()
                await asyncio.gather(run, return_exceptions=True)

    async def handle(self, *bodies: bytes) -> None:
        """Handles messages and stops when all of them are acknowledged."""
        async with self.running() as queue:
            await asyncio.gather(*map(queue.put, bodies))
            await eventually(self.nothing_left, what="every message is acknowledged")

    async def nothing_left(self) -> bool:
        return await self.left() == 0

    async def left(self) -> int:
        assert self.queue is not None
        ((count,),) = await self.queue._run(lambda: list(self.queue._database.execute("SELECT count(*) FROM events")))  # type: ignore[union-attr]  # set above
        return int(count)

    async def read(self, name: str) -> list[Message]:
        async with self.opened() as queue:
            return await queue.messages(name)

    async def records(self, name: str) -> list[dict[str, Any]]:
        return [record for m in await self.read(name) for record in json.loads(m.body)["records"]]


class FaultySink:
    """A sink that fails some times before it hands on to a real one."""

    def __init__(self, daemon: Daemon, *errors: Exception) -> None:
        self._daemon = daemon
        self._errors = list(errors)
        self.tried: list[Message] = []

    async def publish(self, message: Message) -> None:
        self.tried.append(message)
        if self._errors:
            raise self._errors.pop(0)
        assert self._daemon.queue is not None
        await self._daemon.queue.publish(message)


class HeldSink(FaultySink):
    """A sink that confirms nothing until it is told to."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon)
        self.free = asyncio.Event()

    async def publish(self, message: Message) -> None:
        self.tried.append(message)
        await self.free.wait()
        assert self._daemon.queue is not None
        await self._daemon.queue.publish(message)
