"""A broker as a test uses it: publish, look into a queue, take everything out of it."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import aiormq
from aiormq.exceptions import ChannelNotFoundEntity
from pamqp import commands

from tests.support.waiting import LONG_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from aiormq.abc import AbstractChannel, DeliveredMessage


@dataclass(frozen=True)
class Got:
    """One message out of a queue."""

    body: bytes
    schema: str | None
    headers: Mapping[str, object]
    content_type: str | None
    delivery_mode: int | None
    redelivered: bool = field(compare=False)


class Bench:
    """A connection of a test."""

    def __init__(self, connection: aiormq.Connection, channel: AbstractChannel) -> None:
        self.connection = connection
        self.channel = channel

    async def publish(self, bodies: Iterable[bytes], *, exchange: str = "", routing_key: str = "") -> int:
        """Publishes messages, each confirmed and routed; says how many."""
        count = 0
        for body in bodies:
            await self.channel.basic_publish(body, exchange=exchange, routing_key=routing_key, mandatory=True)
            count += 1
        return count

    async def drain(self, queue: str) -> list[Got]:
        """Takes every ready message out of a queue."""
        got: list[Got] = []
        while True:
            message = await self.channel.basic_get(queue, no_ack=True)
            if isinstance(message.delivery, commands.Basic.GetEmpty):
                return got
            properties = message.header.properties
            got.append(
                Got(
                    message.body,
                    properties.message_type,
                    {name: value for name, value in (properties.headers or {}).items() if name != "x-delivery-count"},
                    properties.content_type,
                    properties.delivery_mode,
                    bool(message.redelivered),
                )
            )

    async def ready(self, queue: str) -> int:
        """How many messages of a queue are with nobody."""
        return (await self._look(queue)).message_count or 0

    async def read_stream(self, queue: str) -> list[bytes]:
        """Bodies of all that a stream holds now, oldest first; they stay in it.

        A stream does not say where it ends, so a message of our own, which is left out, marks the end.
        """
        mark = secrets.token_bytes(16)
        channel = await self.connection.channel()
        await channel.basic_publish(mark, routing_key=queue, mandatory=True)
        bodies: list[bytes] = []
        done = asyncio.Event()

        async def collect(message: DeliveredMessage) -> None:
            bodies.append(message.body)
            await channel.basic_ack(message.delivery_tag or 0, wait=False)
            if message.body == mark:
                done.set()

        await channel.basic_qos(prefetch_count=1000)
        await channel.basic_consume(queue, collect, arguments={"x-stream-offset": "first"})
        async with asyncio.timeout(LONG_S):
            await done.wait()
        await channel.close()
        return [body for body in bodies if len(body) != len(mark)]

    async def consumers(self, queue: str) -> int:
        """How many consumers a queue has; -1: there is no such queue."""
        try:
            return (await self._look(queue)).consumer_count or 0
        except ChannelNotFoundEntity:
            return -1

    async def _look(self, queue: str) -> commands.Queue.DeclareOk:
        channel = await self.connection.channel()  # of its own: a missing queue closes it
        found = await channel.queue_declare(queue, passive=True)
        await channel.close()
        return found


@asynccontextmanager
async def bench(url: str) -> AsyncIterator[Bench]:
    """Connects as long as the context lasts."""
    connection = await aiormq.connect(url)
    try:
        yield Bench(connection, await connection.channel())
    finally:
        await connection.close()
