"""The dead letters at a broker, for a command that a person waits for: one at a time, each confirmed.

The connection is ours (any vhost, TLS, errors translated), the rest is aio-pika's.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import aio_pika
from aio_pika.abc import UnderlayConnection
from aio_pika.exceptions import ChannelNotFoundEntity, DeliveryError
from aio_pika.tools import OneShotCallback
from yarl import URL

from blobmap.errors import RefusedError, UnavailableError
from consumer.amqp_faults import in_session
from consumer.broker import connect
from consumer.letters import Letter, read_letter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiormq
    from aio_pika.abc import AbstractChannel, AbstractExchange, AbstractIncomingMessage, AbstractQueue

    from consumer.address import Address
    from consumer.records import Message

# A broker under an alarm confirms nothing.
_CONFIRM_S = 30.0

# The broker gives no sign when messages are back in their queue; and somebody else may take them from there at once.
_GIVE_BACK_S = 5.0
_LOOK_S = 0.02


class _Connection(aio_pika.Connection):
    """aio-pika on a connection that is open already."""

    def __init__(self, opened: aiormq.Connection) -> None:
        super().__init__(URL("amqp://"))
        closed = OneShotCallback(self._on_connection_close)
        opened.closing.add_done_callback(closed)
        self.transport = UnderlayConnection(opened, closed)
        self.connected.set()


class BrokerLetters:
    """The queue of the dead letters. Use `open_broker_letters`."""

    def __init__(self, connection: _Connection, queue: AbstractQueue) -> None:
        self._connection = connection
        self._queue = queue
        self._outgoing: AbstractChannel | None = None
        self._unsettled = 0

    async def count(self) -> int:
        """How many lie there now, those with a consumer not counted."""
        with in_session(f"queue {self._queue.name!r}"):
            return (await self._queue.declare()).message_count or 0

    async def held(self, most: int) -> AsyncIterator[_BrokerLetter]:
        """Gives the letters, oldest first, at most so many. What is not settled goes back with the connection."""
        for _ in range(most):
            with in_session(f"queue {self._queue.name!r}"):
                message = await self._queue.get(fail=False, timeout=_CONFIRM_S)
            if message is None:
                return
            self._unsettled += 1
            yield _BrokerLetter(self, message)

    async def settle(self, message: AbstractIncomingMessage) -> None:
        """Takes one away for good."""
        with in_session(f"queue {self._queue.name!r}"):
            await message.ack()
        self._unsettled -= 1

    async def give_back(self) -> None:
        """Gives back what is not settled, and waits until it is there, or the next command would find less."""
        if not self._unsettled:
            return
        with in_session(f"queue {self._queue.name!r}"):
            channel = await self._queue.channel.get_underlay_channel()
            await channel.basic_nack(0, multiple=True, requeue=True)
        for _ in range(round(_GIVE_BACK_S / _LOOK_S)):
            if await self.count() >= self._unsettled:
                return
            await asyncio.sleep(_LOOK_S)

    async def publish(self, letter: Letter) -> None:
        """Publishes the body of a letter as it was published first. Returns when a queue has it.

        Raises:
            RefusedError: it is not known where that was, or the exchange is gone.
            UnavailableError: no queue took it.
            LostError: the connection is gone.
        """
        if letter.exchange is None:
            raise RefusedError("it is not known where it was published")
        place = f"exchange {letter.exchange!r} with routing key {letter.routing_key!r}"
        with in_session(place):
            try:
                await self._publish(letter, letter.exchange)
            except DeliveryError as error:
                raise UnavailableError(f"{place}: no queue takes it") from error
            except ChannelNotFoundEntity as error:  # closes the channel
                self._outgoing = None
                raise RefusedError(f"{place}: there is no such exchange") from error

    async def tell(self, message: Message) -> None:
        """See `letters.DeadLetters`."""
        place = f"queue {message.queue!r}"
        with in_session(place):
            try:
                exchange = await self._exchange("")
                await exchange.publish(_message(message), message.queue, mandatory=True, timeout=_CONFIRM_S)
            except DeliveryError as error:
                raise UnavailableError(f"{place} does not take the message") from error

    async def _publish(self, letter: Letter, exchange_name: str) -> None:
        exchange = await self._exchange(exchange_name)
        message = aio_pika.Message(
            letter.body,
            content_type="application/json",
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            timestamp=None if letter.first_seen is None else datetime.fromisoformat(letter.first_seen),
        )
        await exchange.publish(message, letter.routing_key, mandatory=True, timeout=_CONFIRM_S)

    async def _exchange(self, name: str) -> AbstractExchange:
        if self._outgoing is None:
            self._outgoing = self._connection.channel(publisher_confirms=True, on_return_raises=True)
            await self._outgoing.initialize()
        return await self._outgoing.get_exchange(name, ensure=True) if name else self._outgoing.default_exchange


def _message(message: Message) -> aio_pika.Message:
    return aio_pika.Message(
        message.body,
        content_type="application/json",
        type=message.schema,
        headers=dict(message.headers),
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        timestamp=datetime.now(UTC),
    )


class _BrokerLetter:
    """One letter, which nobody else is given meanwhile."""

    def __init__(self, letters: BrokerLetters, message: AbstractIncomingMessage) -> None:
        self._letters = letters
        self._message = message
        self.letter = read_letter(message.headers, message.body)

    async def requeue(self) -> None:
        """See `letters.HeldLetter`: published and confirmed first, so that an interruption leaves two, never none."""
        await self._letters.publish(self.letter)
        await self.drop()

    async def drop(self) -> None:
        """See `letters.HeldLetter`."""
        await self._letters.settle(self._message)


@asynccontextmanager
async def open_broker_letters(address: Address, queue: str) -> AsyncIterator[BrokerLetters]:
    """Connects as long as the context lasts.

    Args:
        address: where the broker is.
        queue: queue of the dead letters.

    Raises:
        UnavailableError: the broker cannot be reached, or there is no such queue.
        RefusedError: the broker does not serve us.
    """
    async with connect(address) as opened:
        connection = _Connection(opened)
        try:
            with in_session(f"queue {queue!r}"):
                channel = connection.channel(publisher_confirms=False)
                await channel.initialize()
                found = await channel.get_queue(queue)
            letters = BrokerLetters(connection, found)
            yield letters
            await letters.give_back()
        finally:
            await connection.close()
