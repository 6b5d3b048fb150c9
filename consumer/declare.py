"""The topology, brought to a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer.amqp_faults import declaring

if TYPE_CHECKING:
    import aiormq

    from consumer.topology import Queue, Topology


async def declare(connection: aiormq.Connection, topology: Topology) -> None:
    """Declares exchanges, queues and bindings; what is there already must be the same.

    Args:
        connection: an open connection.
        topology: what has to exist.

    Raises:
        UsageError: something exists with other arguments.
        RefusedError: we may not declare it.
        LostError: the connection is gone.
    """
    with declaring("topology"):
        channel = await connection.channel()
    for exchange in topology.exchanges:
        with declaring(f"exchange {exchange.name!r}"):
            await channel.exchange_declare(exchange.name, exchange_type=exchange.kind, durable=True)
    for queue in topology.queues:
        await declare_queue(connection, queue)
    for binding in topology.bindings:
        with declaring(f"binding of queue {binding.queue!r} to exchange {binding.exchange!r}"):
            await channel.queue_bind(binding.queue, binding.exchange, binding.routing_key)
    with declaring("topology"):
        await channel.close()


async def declare_queue(connection: aiormq.Connection, queue: Queue) -> None:
    """Declares one queue, on a channel of its own, as a difference closes the channel. Raises as `declare`."""
    with declaring(f"queue {queue.name!r}"):
        channel = await connection.channel()
        await channel.queue_declare(queue.name, durable=True, arguments=dict(queue.arguments))
        await channel.close()
