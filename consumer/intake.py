"""Raw deliveries from a queue at a broker, without a task for each."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from consumer.amqp_faults import in_session
from consumer.ports import LostError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiormq.abc import AbstractChannel, DeliveredMessage
    from pamqp import commands

    from consumer.ports import Delivery
    from consumer.stream import Connection

# Between two looks at the clock and the network, so that handling what has come does not hold up heartbeats.
_TAKE = 500

_CANCEL_S = 5.0

# Unique within its channel, where nobody else consumes.
_CONSUMER_TAG = "blobmap"


class BrokerSource:
    """A queue at a broker. Use `open`."""

    def __init__(self, channel: AbstractChannel, queue: str, prefetch: int) -> None:
        self._channel = channel
        self._queue = queue
        self._prefetch = prefetch
        self._waiting: list[Delivery] = []
        self._wake = asyncio.Event()
        self._stopped = False
        self._lost: str | None = None

    @classmethod
    async def open(cls, connection: Connection, queue: str, *, prefetch: int) -> BrokerSource:
        """Begins to consume.

        Args:
            connection: an open connection; the only source on it.
            queue: name of the queue.
            prefetch: how many deliveries may be unacknowledged.

        Raises:
            LostError: the queue or the connection is gone.
        """
        with in_session(f"queue {queue!r}"):
            channel = await connection.channel(publisher_confirms=False)
            source = cls(channel, queue, prefetch)
            connection.receive(channel.number, _CONSUMER_TAG, source)
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
        if self._lost is None:
            with in_session(f"queue {self._queue!r}"):
                await self._channel.basic_cancel(_CONSUMER_TAG, timeout=_CANCEL_S)

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
                async with asyncio.timeout(timeout_s):
                    await self._channel.close()
        except LostError:
            return

    def end(self, reason: str) -> None:
        """Makes known that the session is over; only the first reason counts."""
        if self._lost is None:
            self._lost = reason
        self._wake.set()

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Takes what has come from the queue."""
        self._waiting += deliveries
        self._wake.set()

    def closed(self, reason: str) -> None:
        """Makes known that the broker has closed the channel."""
        self.end(f"the channel of queue {self._queue!r} was closed: {reason}")

    async def _consume(self) -> None:
        self._channel.on_consumer_cancel_callbacks.add(self._cancelled)
        self._channel.closing.add_done_callback(lambda _: self.closed("for no reason given"))
        # Per consumer: a quorum queue refuses a global limit.
        await self._channel.basic_qos(prefetch_count=self._prefetch)
        await self._channel.basic_consume(self._queue, _never, consumer_tag=_CONSUMER_TAG)

    def _cancelled(self, _: commands.Basic.Cancel) -> None:
        self.end(f"the broker cancelled the consumer of queue {self._queue!r}: was the queue deleted?")


async def _never(_: DeliveredMessage) -> None:
    """What aiormq would call with deliveries, if it saw any."""
