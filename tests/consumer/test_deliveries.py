"""Deliveries out of a real queue in a file, handled one after the other."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from blobmap.errors import UnavailableError, UsageError
from consumer.aside import Aside
from consumer.deliveries import Deliveries, PatientSink
from consumer.embedded import EmbeddedQueue
from consumer.open_sink import OpenSink
from consumer.outputs import StuckError
from consumer.ports import LostError, Status
from consumer.records import Message
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from consumer.embedded_source import EmbeddedSource
    from consumer.ports import Delivery, Sink


class Handled:
    """Handles messages as they say: what they are, or an error some times before that."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.seen: list[bytes] = []
        self.begun = asyncio.Event()
        self.free = asyncio.Event()
        self.free.set()
        self.cancelled = False

    async def handle(self, body: bytes, sink: Sink) -> None:
        self.begun.set()
        try:
            await self.free.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        if self.errors:
            raise self.errors.pop(0)
        self.seen.append(body)
        await sink.publish(Message("out", None, body))


class Cut:
    """A source whose session is over when the test says so."""

    def __init__(self, source: EmbeddedSource) -> None:
        self._source = source
        self.lost = asyncio.Event()
        self.prefetch = 1

    async def take(self) -> Sequence[Delivery]:
        taking, losing = asyncio.ensure_future(self._source.take()), asyncio.ensure_future(self.lost.wait())
        try:
            await asyncio.wait((taking, losing), return_when=asyncio.FIRST_COMPLETED)
            if self.lost.is_set():
                raise LostError("gone")
            return taking.result()
        finally:
            taking.cancel()
            losing.cancel()

    async def acknowledge(self, tag: int) -> None:
        await self._source.acknowledge(tag)

    async def stop(self) -> None:
        await self._source.stop()


@asynccontextmanager
async def queued(path: Path, *bodies: bytes) -> AsyncIterator[EmbeddedQueue]:
    queue = await EmbeddedQueue.open(path / "q.sqlite", prefetch=1)
    try:
        for body in bodies:
            await queue.publish(Message("in", None, body))
        yield queue
    finally:
        await queue.close()


async def run_until(queue: EmbeddedQueue, handler: Handled, *, left: int, patience_s: float = 60) -> None:
    """Runs until so many messages are left in the queue."""
    stop = asyncio.Event()
    deliveries = Deliveries(handler, aside=Aside("dead", "alerts", Status()), patience_s=patience_s)
    running = asyncio.ensure_future(deliveries.run(queue.source("in"), queue, stop))

    async def as_few() -> bool:
        return running.done() or len(await queue.messages("in")) == left

    await eventually(as_few, what=f"{left} messages are left")
    stop.set()
    await running


async def test_what_is_handled_is_acknowledged_in_order(tmp_path: Path) -> None:
    async with queued(tmp_path, b"1", b"2", b"3") as queue:
        handler = Handled()
        await run_until(queue, handler, left=0)
        assert [message.body for message in await queue.messages("out")] == [b"1", b"2", b"3"]


async def test_what_cannot_be_read_is_set_aside_and_the_next_one_handled(tmp_path: Path) -> None:
    async with queued(tmp_path, b"bad", b"good") as queue:
        handler = Handled(UsageError("not JSON"))
        await run_until(queue, handler, left=0)
        assert handler.seen == [b"good"]
        (letter,) = await queue.messages("dead")
        assert (letter.body, letter.headers["code"], letter.headers["reason"]) == (b"bad", "unreadable", "not JSON")


async def test_what_fails_for_now_is_tried_again(tmp_path: Path) -> None:
    async with queued(tmp_path, b"1") as queue:
        handler = Handled(UnavailableError("away"), UnavailableError("away"))
        await run_until(queue, handler, left=0)
        assert handler.seen == [b"1"]


@pytest.mark.parametrize("error", [LostError("gone"), StuckError("full", ()), UnavailableError("away")])
async def test_what_fails_for_too_long_ends_the_session_and_stays(tmp_path: Path, error: Exception) -> None:
    async with queued(tmp_path, b"1") as queue:
        with pytest.raises(type(error)):
            await run_until(queue, Handled(error), left=0, patience_s=0.01)
        assert len(await queue.messages("in")) == 1


async def test_a_session_that_is_over_ends_what_is_at_work(tmp_path: Path) -> None:
    async with queued(tmp_path, b"1") as queue:
        handler = Handled()
        handler.free.clear()
        source = Cut(queue.source("in"))
        deliveries = Deliveries(handler, aside=Aside("dead", "alerts", Status()), patience_s=60)
        running = asyncio.ensure_future(deliveries.run(source, queue, asyncio.Event()))
        await handler.begun.wait()
        source.lost.set()
        with pytest.raises(LostError):
            await running
        assert handler.cancelled
        assert len(await queue.messages("in")) == 1


async def test_a_stop_finishes_what_is_at_work_and_takes_no_more(tmp_path: Path) -> None:
    async with queued(tmp_path, b"1", b"2") as queue:
        handler, stop = Handled(), asyncio.Event()
        handler.free.clear()
        running = asyncio.ensure_future(
            Deliveries(handler, aside=Aside("dead", "alerts", Status()), patience_s=60).run(
                queue.source("in"), queue, stop
            )
        )
        await handler.begun.wait()
        stop.set()
        await asyncio.sleep(0)
        handler.free.set()
        await running
        assert handler.seen == [b"1"]
        assert [message.body for message in await queue.messages("in")] == [b"2"]


async def test_an_open_sink_waits_for_a_session_and_announces_in_one(tmp_path: Path) -> None:
    announced: list[tuple[str, str, int]] = []

    class Announcing:
        async def announce(self, bucket: str, scope: str, epoch: int) -> None:
            announced.append((bucket, scope, epoch))

    sink = OpenSink()
    async with queued(tmp_path) as queue:
        waiting = asyncio.ensure_future(sink.publish(Message("out", None, b"1")))
        await sink.announce("b", "nobody hears it", 1)
        await asyncio.sleep(0)
        assert not waiting.done()
        with sink.within(queue, Announcing()):
            await waiting
            with sink.within(PatientSink(queue, Status(), patience_s=1), Announcing()):
                await sink.publish(Message("out", None, b"2"))
            await sink.publish(Message("out", None, b"3"))
            await sink.announce("b", "s", 2)
        assert [message.body for message in await queue.messages("out")] == [b"1", b"2", b"3"]
    assert announced == [("b", "s", 2)]
