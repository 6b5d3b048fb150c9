"""Messages to queues at a broker: persistent, through the default exchange, each one confirmed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aiormq.exceptions import DeliveryError, PublishError
from pamqp import commands

from blobmap.errors import UnavailableError
from consumer.amqp_faults import in_session
from consumer.declare import declare_queue

if TYPE_CHECKING:
    import aiormq
    from aiormq.abc import AbstractChannel

    from consumer.records import Message
    from consumer.topology import Topology

_PERSISTENT = 2

# A broker under an alarm confirms nothing; how long that may last is the pipeline's to decide, not one publish's.
_CONFIRM_S = 30.0


class BrokerSink:
    """A connection that publishes. Use `open`."""

    def __init__(self, connection: aiormq.Connection, channel: AbstractChannel, topology: Topology) -> None:
        self._connection = connection
        self._channel = channel
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
            UnavailableError: the queue did not take it, or nothing was confirmed in time.
        """
        properties = commands.Basic.Properties(
            content_type="application/json",
            delivery_mode=_PERSISTENT,
            message_type=message.schema,
            headers=dict(message.headers),
            timestamp=datetime.now(UTC),
        )
        with in_session(f"queue {message.queue!r}"):
            try:
                async with asyncio.timeout(_CONFIRM_S):
                    await self._channel.basic_publish(
                        message.body, routing_key=message.queue, properties=properties, mandatory=True
                    )
            except PublishError as error:
                await self._declare_again(message.queue)
                raise UnavailableError(f"queue {message.queue!r} was not there") from error
            except DeliveryError as error:
                raise UnavailableError(f"queue {message.queue!r} refused the message") from error
            except TimeoutError as error:
                raise UnavailableError(f"the broker has not confirmed for {_CONFIRM_S:g} s") from error

    async def _declare_again(self, name: str) -> None:
        queue = self._topology.queue(name)
        if queue is not None:
            await declare_queue(self._connection, queue)
