"""Hearing, at a broker, what other processes announce."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer.amqp_faults import declaring
from consumer.announcements import read_announcement
from consumer.topology import LISTENING

if TYPE_CHECKING:
    from collections.abc import Callable

    import aiormq
    from aiormq.abc import DeliveredMessage

    from consumer.topology import Topology


async def listen(
    connection: aiormq.Connection,
    topology: Topology,
    heard: Callable[[str, str], None],
    ended: Callable[[str], None],
) -> None:
    """Listens as long as a connection lasts, with a queue of its own.

    What is announced before this returns may be missed.

    Args:
        connection: an open connection.
        topology: names the exchange.
        heard: called with bucket and scope of what has changed.
        ended: called with the reason when nothing can be heard any more.

    Raises:
        RefusedError: we may not have such a queue.
        LostError: the connection is gone.
    """

    async def hear(message: DeliveredMessage) -> None:
        subject = read_announcement(message.body)
        if subject is not None:
            heard(*subject)

    with declaring("queue of announcements"):
        channel = await connection.channel(publisher_confirms=False)
        declared = await channel.queue_declare("", durable=True, arguments=dict(LISTENING))
        name = str(declared.queue)  # the broker has chosen it
        await channel.queue_bind(name, topology.announcements)
        channel.on_consumer_cancel_callbacks.add(lambda _: ended("the queue of announcements is gone"))
        await channel.basic_consume(name, hear, no_ack=True)
    channel.closing.add_done_callback(lambda _: ended("the channel of announcements was closed"))
