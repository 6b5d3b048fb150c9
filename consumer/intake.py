"""Raw deliveries from a queue at a broker, without a task for each.

aiormq starts a task for every delivery. At the rates here that costs more than decoding and routing together, so the
frames of a delivery are put together as they come off the connection, and everything else goes aiormq's way.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiormq
from pamqp import commands
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from consumer.amqp_faults import in_session
from consumer.ports import Delivery, LostError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiormq.abc import DeliveredMessage

# Between two looks at the clock and the network, so that handling what has come does not hold up heartbeats.
_TAKE = 500

_CANCEL_S = 5.0

# A connection of ours has one channel.
_CHANNEL = 1


class _Frames(asyncio.Queue[Any]):
    """Where a connection puts the frames of a channel; keeps those of deliveries and passes on the rest.

    The frames of a delivery follow each other on their channel: the method, a header, and as many bodies as the header
    says (AMQP 0-9-1, section 4.2.6).
    """

    def __init__(self, room: int, deliver: Callable[[Delivery], None], closed: Callable[[str], None]) -> None:
        super().__init__(room)
        self._deliver = deliver
        self._closed = closed
        self._method: commands.Basic.Deliver | None = None
        self._header: ContentHeader | None = None
        self._bodies: list[bytes] = []
        self._missing = 0

    async def put(self, item: Any) -> None:
        """Takes one frame, as a pair of its weight and itself."""
        frame = item[1]
        if self._method is None:
            if isinstance(frame, commands.Basic.Deliver):
                self._method = frame
            else:
                if isinstance(frame, commands.Channel.Close):  # the reason, which aiormq may tell later or not at all
                    self._closed(str(frame.reply_text))
                await super().put(item)
            return
        if isinstance(frame, ContentHeader):
            self._header = frame
            self._missing = frame.body_size
        elif isinstance(frame, ContentBody):
            self._bodies.append(frame.value)
            self._missing -= len(frame.value)
        if self._header is not None and self._missing <= 0:
            self._deliver(_delivery(self._method, self._header, b"".join(self._bodies)))
            self._method = self._header = None
            self._bodies = []


class _Channel(aiormq.Channel):
    """A channel whose deliveries are not aiormq's business."""

    def __init__(
        self, connection: aiormq.Connection, deliver: Callable[[Delivery], None], closed: Callable[[str], None]
    ) -> None:
        super().__init__(connection, _CHANNEL, publisher_confirms=False, frame_buffer=connection.FRAME_BUFFER_SIZE)
        self.frames = _Frames(
            connection.FRAME_BUFFER_SIZE, deliver, closed
        )  # before the reader of the old one has begun


class BrokerSource:
    """A queue at a broker. Use `open`."""

    def __init__(self, connection: aiormq.Connection, queue: str, prefetch: int) -> None:
        self._channel = _Channel(connection, self._deliver, self._closed)
        connection.channels[_CHANNEL] = self._channel
        self._queue = queue
        self._prefetch = prefetch
        self._waiting: list[Delivery] = []
        self._wake = asyncio.Event()
        self._stopped = False
        self._lost: str | None = None
        self._consumer_tag: str | None = None

    @classmethod
    async def open(cls, connection: aiormq.Connection, queue: str, *, prefetch: int) -> BrokerSource:
        """Begins to consume.

        Args:
            connection: an open connection without a channel.
            queue: name of the queue.
            prefetch: how many deliveries may be unacknowledged.

        Raises:
            LostError: the queue or the connection is gone.
        """
        source = cls(connection, queue, prefetch)
        with in_session(f"queue {queue!r}"):
            await source._consume()
        return source

    @property
    def prefetch(self) -> int:
        """How many deliveries it gives at most before one is acknowledged."""
        return self._prefetch

    async def take(self) -> Sequence[Delivery]:
        """Waits for deliveries and gives those that are there; none once it was stopped.

        Raises:
            LostError: the session is over.
        """
        while not self._stopped:
            if self._lost is not None:
                raise LostError(self._lost)
            if self._waiting:
                taken, self._waiting = self._waiting[:_TAKE], self._waiting[_TAKE:]
                await asyncio.sleep(0)
                return taken
            self._wake.clear()
            await self._wake.wait()
        return []

    async def acknowledge(self, tag: int) -> None:
        """Acknowledges every delivery up to this tag, on the channel that gave it.

        Raises:
            LostError: the session is over.
        """
        if self._lost is not None:
            raise LostError(self._lost)
        with in_session(f"queue {self._queue!r}"):
            await self._channel.basic_ack(tag, multiple=True, wait=False)

    async def stop(self) -> None:
        """Cancels the consumer. What was not taken goes back to the queue with `close`."""
        self._stopped = True
        self._wake.set()
        if self._consumer_tag is not None and self._lost is None:
            with in_session(f"queue {self._queue!r}"):
                await self._channel.basic_cancel(self._consumer_tag, timeout=_CANCEL_S)

    async def check(self, *, timeout_s: float) -> None:
        """Asks the broker, on the channel that consumes, for the consumers of the queue.

        The answer proves that this channel lives, that the queue is there and that it is consumed. It does not say by
        whom; that we are no consumer any more the broker tells by itself, with `basic.cancel`, before it answers.

        Raises:
            LostError: we do not consume.
        """
        if self._stopped:
            return
        with in_session(f"queue {self._queue!r}"):
            try:
                async with asyncio.timeout(timeout_s):
                    found = await self._channel.queue_declare(self._queue, passive=True)
            except TimeoutError:
                raise LostError(f"queue {self._queue!r}: no answer for {timeout_s:g} s") from None
        if not found.consumer_count and not self._stopped:
            raise LostError(f"queue {self._queue!r} has no consumer any more")

    async def close(self, *, timeout_s: float) -> None:
        """Gives back what was not acknowledged, after the acknowledgements that are still on their way."""
        if self._lost is not None:
            return
        try:
            with in_session(f"queue {self._queue!r}"):
                await self._channel.close(timeout=timeout_s)
        except LostError:
            return

    def end(self, reason: str) -> None:
        """Makes known that the session is over; only the first reason counts."""
        if self._lost is None:
            self._lost = reason
        self._wake.set()

    async def _consume(self) -> None:
        await self._channel.open()
        self._channel.on_consumer_cancel_callbacks.add(self._cancelled)
        self._channel.closing.add_done_callback(lambda _: self._closed("for no reason given"))
        # Per consumer: a quorum queue refuses a global limit.
        await self._channel.basic_qos(prefetch_count=self._prefetch)
        begun = await self._channel.basic_consume(self._queue, _never)
        self._consumer_tag = begun.consumer_tag

    def _deliver(self, delivery: Delivery) -> None:
        self._waiting.append(delivery)
        self._wake.set()

    def _closed(self, why: str) -> None:
        self.end(f"the channel of queue {self._queue!r} was closed: {why}")

    def _cancelled(self, _: commands.Basic.Cancel) -> None:
        self.end(f"the broker cancelled the consumer of queue {self._queue!r}: was the queue deleted?")


async def _never(_: DeliveredMessage) -> None:
    """What aiormq would call with deliveries, if it saw any."""


def _delivery(method: commands.Basic.Deliver, header: ContentHeader, body: bytes) -> Delivery:
    properties = header.properties
    count = properties.headers.get("x-delivery-count") if properties.headers else None
    return Delivery(
        tag=method.delivery_tag or 0,
        body=body,
        exchange=method.exchange,
        routing_key=method.routing_key or "",
        deliveries=1 + (count if isinstance(count, int) else int(bool(method.redelivered))),
        first_seen=properties.timestamp,
    )
