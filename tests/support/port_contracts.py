"""What every source and every sink must do, whatever is behind it. Run by a subclass that brings a harness."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from consumer.records import Message

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from consumer.ports import Delivery, Journal, Sink, Source

SOON_S = 60.0


class SourceHarness(Protocol):
    """The other side of a source."""

    async def put(self, *bodies: bytes) -> None:
        """Leaves messages for it."""

    def open(self, prefetch: int = 100) -> AbstractAsyncContextManager[Source]:
        """A session; what it has not acknowledged comes again in the next."""


class SinkHarness(Protocol):
    """The other side of a sink."""

    def open(self) -> AbstractAsyncContextManager[Sink]:
        """A session."""

    async def read(self, queue: str) -> list[Message]:
        """What came into a queue; takes it out, or is asked once."""


class JournalHarness(Protocol):
    """The other side of a journal."""

    def open(self) -> AbstractAsyncContextManager[Journal]:
        """A session."""

    async def read(self) -> list[bytes]:
        """Bodies of all that it holds, oldest first; they stay there."""


async def take(source: Source, count: int) -> list[Delivery]:
    """Takes at least so many deliveries."""
    taken: list[Delivery] = []
    async with asyncio.timeout(SOON_S):
        while len(taken) < count:
            taken += await source.take()
    return taken


class SourceContract:
    async def test_gives_every_message_once_in_a_session(self, harness: SourceHarness) -> None:
        bodies = [b"%d" % number for number in range(30)]
        async with harness.open() as source:
            await harness.put(*bodies)
            taken = await take(source, 30)
        assert [delivery.body for delivery in taken] == bodies

    async def test_tags_only_grow(self, harness: SourceHarness) -> None:
        await harness.put(*(b"%d" % number for number in range(10)))
        async with harness.open() as source:
            tags = [delivery.tag for delivery in await take(source, 10)]
        assert tags == sorted(set(tags))

    async def test_bodies_are_bytes_as_they_came(self, harness: SourceHarness) -> None:
        bodies = [b"", b"\x00\xff", b"x" * 300_000, "é".encode()]
        await harness.put(*bodies)
        async with harness.open() as source:
            assert [delivery.body for delivery in await take(source, 4)] == bodies

    async def test_waits_for_the_first_message(self, harness: SourceHarness) -> None:
        async with harness.open() as source:
            waiting = asyncio.ensure_future(source.take())
            await asyncio.wait([waiting], timeout=0.05)
            assert not waiting.done()
            await harness.put(b"first")
            async with asyncio.timeout(SOON_S):
                assert [delivery.body for delivery in await waiting] == [b"first"]

    async def test_what_is_acknowledged_never_comes_again(self, harness: SourceHarness) -> None:
        await harness.put(*(b"%d" % number for number in range(10)))
        async with harness.open() as source:
            taken = await take(source, 10)
            await source.acknowledge(taken[6].tag)
        async with harness.open() as source:
            assert [delivery.body for delivery in await take(source, 3)] == [b"7", b"8", b"9"]

    async def test_what_is_not_acknowledged_comes_again_and_is_counted(self, harness: SourceHarness) -> None:
        await harness.put(b"x")
        for count in (1, 2, 3):
            async with harness.open() as source:
                (delivery,) = await take(source, 1)
                assert (delivery.body, delivery.deliveries) == (b"x", count)

    async def test_no_more_than_the_prefetch_is_unacknowledged(self, harness: SourceHarness) -> None:
        await harness.put(*(b"%d" % number for number in range(10)))
        async with harness.open(prefetch=4) as source:
            assert source.prefetch == 4
            taken = await take(source, 4)
            assert len(taken) == 4
            waiting = asyncio.ensure_future(source.take())
            await asyncio.wait([waiting], timeout=0.05)
            assert not waiting.done()
            await source.acknowledge(taken[1].tag)
            async with asyncio.timeout(SOON_S):
                assert [delivery.body for delivery in await waiting][:1] == [b"4"]

    async def test_a_stopped_source_gives_nothing_and_still_acknowledges(self, harness: SourceHarness) -> None:
        await harness.put(*(b"%d" % number for number in range(6)))
        async with harness.open(prefetch=3) as source:
            taken = await take(source, 3)
            await source.stop()
            assert await source.take() == []
            await source.acknowledge(taken[0].tag)
        async with harness.open() as source:
            assert {delivery.body for delivery in await take(source, 5)} == {b"1", b"2", b"3", b"4", b"5"}

    async def test_stopping_ends_a_wait(self, harness: SourceHarness) -> None:
        async with harness.open() as source:
            waiting = asyncio.ensure_future(source.take())
            await asyncio.wait([waiting], timeout=0.05)
            await source.stop()
            async with asyncio.timeout(SOON_S):
                assert await waiting == []


class SinkContract:
    MESSAGES: Sequence[Message] = (
        Message("blobmap.flags", "blobmap.flags.v1", b'{"schema":"blobmap.flags.v1"}'),
        Message("blobmap.dead", None, b"\x00\xff not JSON", {"reason": "not JSON: é", "routing_key": ""}),
        Message("blobmap.flags", "blobmap.flags.v1", b"y" * 300_000),
    )

    async def test_what_was_published_is_there(self, harness: SinkHarness) -> None:
        async with harness.open() as sink:
            for message in self.MESSAGES:
                await sink.publish(message)
            assert await harness.read("blobmap.flags") == [self.MESSAGES[0], self.MESSAGES[2]]
            assert await harness.read("blobmap.dead") == [self.MESSAGES[1]]

    async def test_many_at_once(self, harness: SinkHarness) -> None:
        messages = [Message("blobmap.flags", "blobmap.flags.v1", b"%d" % number) for number in range(200)]
        async with harness.open() as sink:
            await asyncio.gather(*map(sink.publish, messages))
            assert {message.body for message in await harness.read("blobmap.flags")} == {m.body for m in messages}

    async def test_what_was_published_outlives_the_session(self, harness: SinkHarness) -> None:
        async with harness.open() as sink:
            await sink.publish(self.MESSAGES[0])
        async with harness.open():
            assert await harness.read("blobmap.flags") == [self.MESSAGES[0]]


class JournalContract:
    async def test_keeps_what_was_appended_in_order(self, harness: JournalHarness) -> None:
        async with harness.open() as journal:
            for number in range(5):
                await journal.append(_journalled(number))
            assert await harness.read() == [_journalled(number).body for number in range(5)]

    async def test_many_at_once(self, harness: JournalHarness) -> None:
        async with harness.open() as journal:
            await asyncio.gather(*(journal.append(_journalled(number)) for number in range(100)))
            assert set(await harness.read()) == {_journalled(number).body for number in range(100)}

    async def test_what_was_appended_outlives_the_session(self, harness: JournalHarness) -> None:
        async with harness.open() as journal:
            await journal.append(_journalled(1))
        async with harness.open() as journal:
            await journal.append(_journalled(2))
            assert await harness.read() == [_journalled(1).body, _journalled(2).body]


def _journalled(number: int) -> Message:
    return Message("blobmap.journal", "blobmap.journal.v1", b'{"schema":"blobmap.journal.v1","n":%d}' % number)
