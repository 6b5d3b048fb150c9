"""Messages that wait in the file of embedded mode, and come out of it again."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from consumer.embedded import EmbeddedQueue
from consumer.records import Message
from consumer.topology import Names, topology, wait_queue
from tests.support.port_contracts import SOON_S, SourceContract, take

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from consumer.embedded_source import EmbeddedSource

FLAGS = "blobmap.flags"
TASKS = "blobmap.tasks"
SOON, LATE = wait_queue(FLAGS, 0.2), wait_queue(FLAGS, 3600)
LAID_OUT = topology(Names(), flag_waits_s=(0.2, 3600), task_waits_s=(3600,))


def message(body: bytes, queue: str = FLAGS, key: str | None = None) -> Message:
    return Message(queue, None, body, key=key)


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[EmbeddedQueue]:
    file = await EmbeddedQueue.open(path, prefetch=100)
    file.lay_out(LAID_OUT)
    try:
        yield file
    finally:
        await file.close()


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[EmbeddedQueue]:
    async with opened(tmp_path / "queue.sqlite") as at:
        yield at


class Harness:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: EmbeddedQueue | None = None

    @asynccontextmanager
    async def open(self, prefetch: int = 100) -> AsyncIterator[EmbeddedSource]:
        async with opened(self._path) as self._file:
            yield self._file.source(FLAGS, prefetch=prefetch)
        self._file = None

    async def put(self, *bodies: bytes) -> None:
        if self._file is None:
            async with opened(self._path) as file:
                for body in bodies:
                    await file.publish(message(body))
        else:
            for body in bodies:
                await self._file.publish(message(body))


class TestSource(SourceContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        return Harness(tmp_path / "queue.sqlite")


async def nothing_comes(source: EmbeddedSource) -> bool:
    """Whether a source gives nothing, as far as one look at the file can tell."""
    waiting = asyncio.ensure_future(source.take())
    await asyncio.wait([waiting], timeout=0.1)
    nothing = not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    return nothing


async def test_a_source_gives_one_message_at_a_time(file: EmbeddedQueue) -> None:
    source = file.source(FLAGS)
    for body in (b"1", b"2"):
        await file.publish(message(body))
    (first,) = await source.take()
    assert await nothing_comes(source)
    await source.acknowledge(first.tag)
    (second,) = await source.take()
    assert (first.body, second.body) == (b"1", b"2")


async def test_each_queue_has_its_own(file: EmbeddedQueue) -> None:
    flags, tasks = file.source(FLAGS), file.source(TASKS)
    await file.publish(message(b"task", TASKS))
    await file.publish(message(b"task that waits", wait_queue(TASKS, 3600)))
    (task,) = await take(tasks, 1)
    assert task.body == b"task"
    assert await nothing_comes(flags)


async def test_what_waits_comes_out_of_the_queue_it_waits_for_when_it_is_time(file: EmbeddedQueue) -> None:
    source = file.source(FLAGS, prefetch=10)
    began_s = time.time()
    await file.publish(message(b"late", LATE))
    await file.publish(message(b"soon", SOON))
    taken = await take(source, 1)
    assert [delivery.body for delivery in taken] == [b"soon"]
    assert time.time() - began_s >= 0.2
    assert [waiting.body for waiting in await file.messages(LATE)] == [b"late"]


async def test_what_waits_outlives_the_process(tmp_path: Path) -> None:
    async with opened(tmp_path / "queue.sqlite") as file:
        await file.publish(message(b"soon", SOON))
    async with opened(tmp_path / "queue.sqlite") as file:
        (delivery,) = await take(file.source(FLAGS), 1)
        assert delivery.body == b"soon"
        assert delivery.first_seen is not None
        assert delivery.first_seen.tzinfo is not None


async def test_what_is_published_again_while_it_is_worked_on_comes_again(file: EmbeddedQueue) -> None:
    """The later one says all that the one under way says, and is not done with it."""
    source = file.source(FLAGS)
    await file.publish(message(b"1", key="b/s.zarr"))
    (first,) = await source.take()
    await file.publish(message(b"2", key="b/s.zarr"))
    await source.acknowledge(first.tag)
    (second,) = await source.take()
    assert second.body == b"2"


async def test_what_waits_is_not_replaced_by_what_does_not(file: EmbeddedQueue) -> None:
    source = file.source(FLAGS, prefetch=10)
    await file.publish(message(b"waits", SOON, key="b/s.zarr"))
    await file.publish(message(b"now", key="b/s.zarr"))
    assert {delivery.body for delivery in await take(source, 2)} == {b"waits", b"now"}


async def test_a_message_that_somebody_else_put_there_is_found(tmp_path: Path) -> None:
    async with opened(tmp_path / "queue.sqlite") as file:
        source = file.source(FLAGS)
        waiting = asyncio.ensure_future(source.take())
        await asyncio.wait([waiting], timeout=0.1)
        await file._run(
            lambda: file._insert(message(b"by another process"))  # which wakes nobody
        )
        async with asyncio.timeout(SOON_S):
            (delivery,) = await waiting
    assert delivery.body == b"by another process"
