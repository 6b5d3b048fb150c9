"""Messages to queues at a broker: persistent, through the default exchange, each one confirmed."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aiormq.exceptions import DeliveryError, PublishError
from pamqp import commands

from blobmap.errors import UnavailableError
from consumer.amqp_faults import in_session
from consumer.announcements import ANNOUNCEMENTS_SCHEMA, announcement
from consumer.declare import declare_queue
from consumer.ports import LostError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    import aiormq
    from aiormq.abc import AbstractChannel

    from consumer.records import Message
    from consumer.topology import Topology

_PERSISTENT = 2

# A broker under an alarm confirms nothing; how long that may last is the pipeline's to decide, not one publish's.
_CONFIRM_S = 30.0

# Nobody is told twice, and nobody waits for it.
_ANNOUNCE_S = 5.0

# A broker that answers nothing any more is somebody else's to find out.
_CLOSE_S = 1.0

_BLOCKED = "the broker is blocked: memory or disk is short there"


@dataclass(slots=True, eq=False)
class _Lent:
    """A channel, and how many wait for an answer on it."""

    channel: AbstractChannel
    borrowers: int = 0


class BrokerSink:
    """A connection that publishes. Use `open`.

    A quorum queue that was full goes on refusing a channel that it has refused, where there is room again because the
    bound was lifted (tried with RabbitMQ 3.10.8): so after a refusal another channel is opened.
    """

    def __init__(self, connection: aiormq.Connection, channel: AbstractChannel, topology: Topology) -> None:
        self._connection = connection
        self._lent = _Lent(channel)
        self._replacing = asyncio.Lock()
        self._topology = topology

    @classmethod
    async def open(cls, connection: aiormq.Connection, topology: Topology) -> BrokerSink:
        """Opens a channel that confirms.

        Args:
            connection: an open connection.
            topology: our queues; one of them that is gone is declared again.

        Raises:
            LostError: the connection is gone.
        """
        with in_session("the broker"):
            return cls(connection, await connection.channel(publisher_confirms=True), topology)

    async def publish(self, message: Message) -> None:
        """Publishes a message. Returns when the broker has confirmed that a queue has it.

        Raises:
            LostError: the connection is gone; the message may have been published.
            UnavailableError: the queue did not take it, the broker is blocked, or nothing was confirmed in time.
        """
        blocked = await self.blocked()
        if blocked is not None:  # or it would pile up in the socket, and come out many times
            raise UnavailableError(blocked)
        properties = _properties(message.schema, message.headers)
        with in_session(f"queue {message.queue!r}"):
            try:
                async with asyncio.timeout(_CONFIRM_S), self._borrowed() as channel:
                    await channel.basic_publish(
                        message.body, routing_key=message.queue, properties=properties, mandatory=True
                    )
            except PublishError as error:
                await self._declare_again(message.queue)
                raise UnavailableError(f"queue {message.queue!r} was not there") from error
            except DeliveryError as error:
                raise UnavailableError(f"queue {message.queue!r} refused the message") from error
            except TimeoutError as error:
                reason = await self.blocked() or f"the broker has not confirmed for {_CONFIRM_S:g} s"
                raise UnavailableError(reason) from error

    async def announce(self, bucket: str, scope: str, epoch: int) -> None:
        """Tells every process that listens which epoch a scope has now; see `ports.Announcer`."""
        with suppress(LostError, DeliveryError, TimeoutError), in_session(f"exchange {self._topology.announcements!r}"):
            async with asyncio.timeout(_ANNOUNCE_S), self._borrowed() as channel:
                await channel.basic_publish(
                    announcement(bucket, scope, epoch),
                    exchange=self._topology.announcements,
                    properties=_properties(ANNOUNCEMENTS_SCHEMA, {}),
                )

    async def append(self, message: Message) -> None:
        """Publishes a message to the journal, which is a stream. Raises as `publish`."""
        await self.publish(message)

    async def blocked(self) -> str | None:
        """Why the broker takes nothing from anybody, None where it does; as the broker itself has said."""
        try:
            async with asyncio.timeout(0):
                await self._connection.ready()  # returns without waiting, unless the broker has said that it is blocked
        except TimeoutError:
            return _BLOCKED
        return None

    async def check(self, *, timeout_s: float) -> None:
        """Asks the broker something that changes nothing.

        Raises:
            LostError: it does not answer in that time, without having said that it is blocked.
        """
        with in_session("the publishing connection"):
            try:
                async with asyncio.timeout(timeout_s), self._borrowed() as channel:
                    await channel.confirm_delivery()
            except TimeoutError:
                if await self.blocked() is None:
                    raise LostError(f"the publishing connection: no answer for {timeout_s:g} s") from None

    @asynccontextmanager
    async def _borrowed(self) -> AsyncIterator[AbstractChannel]:
        """Gives the channel to publish on, which is not closed meanwhile; after a refusal there is another."""
        lent = self._lent
        lent.borrowers += 1
        try:
            yield lent.channel
        except PublishError:  # there was no queue that could have refused it
            raise
        except DeliveryError:
            await self._replace(lent)
            raise
        finally:
            lent.borrowers -= 1
            if lent is not self._lent and not lent.borrowers:
                await self._close(lent.channel)

    async def _replace(self, refused: _Lent) -> None:
        async with self._replacing:
            if refused is self._lent:
                self._lent = _Lent(await self._connection.channel(publisher_confirms=True))

    async def _close(self, channel: AbstractChannel) -> None:
        with suppress(LostError, TimeoutError), in_session("the publishing connection"):
            async with asyncio.timeout(_CLOSE_S):
                await channel.close()

    async def _declare_again(self, name: str) -> None:
        queue = self._topology.queue(name)
        if queue is not None:
            await declare_queue(self._connection, queue)


def _properties(schema: str | None, headers: Mapping[str, str]) -> commands.Basic.Properties:
    return commands.Basic.Properties(
        content_type="application/json",
        delivery_mode=_PERSISTENT,
        message_type=schema,
        headers=dict(headers),
        timestamp=datetime.now(UTC),
    )
