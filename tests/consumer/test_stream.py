"""Deliveries and everything else on one connection to a real broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from consumer.address import parse_address
from consumer.broker import connect
from consumer.declare import declare
from consumer.intake import BrokerSource
from consumer.outlet import BrokerSink
from consumer.ports import LostError
from consumer.topology import Names, topology
from tests.services.relay import relay
from tests.support.amqp import bench
from tests.support.port_contracts import SOON_S, take

if TYPE_CHECKING:
    from aiormq.abc import DeliveredMessage

pytestmark = pytest.mark.services

# More than a frame of the broker's takes: 131072 bytes with its head and its end.
LARGE = bytes(range(256)) * 2000


async def test_bodies_of_any_size_come_whole_and_in_order(amqp_url: str) -> None:
    bodies = [b"", b"small", LARGE, b"", LARGE[:131_064], LARGE[:131_065], b"last"]
    async with bench(amqp_url) as at, connect(parse_address(amqp_url)) as connection:
        await at.channel.queue_declare("q", durable=True)
        await at.publish(bodies, routing_key="q")
        source = await BrokerSource.open(connection, "q", prefetch=100)
        got = await take(source, len(bodies))
        assert [delivery.body for delivery in got] == bodies
        assert [delivery.tag for delivery in got] == list(range(1, len(bodies) + 1))
        await source.acknowledge(got[-1].tag)
        await source.close(timeout_s=SOON_S)
        assert await at.drain("q") == []


async def test_another_consumer_on_the_same_connection_is_served_by_aiormq(amqp_url: str) -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def hear(message: DeliveredMessage) -> None:
        await heard.put(message.body)

    async with bench(amqp_url) as at, connect(parse_address(amqp_url)) as connection:
        for queue in ("q", "other"):
            await at.channel.queue_declare(queue, durable=True)
        source = await BrokerSource.open(connection, "q", prefetch=100)
        channel = await connection.channel(publisher_confirms=False)
        await channel.basic_consume("other", hear, no_ack=True)
        for body in (b"1", LARGE, b"2"):
            await at.publish([b"mine " + body], routing_key="q")
            await at.publish([b"theirs " + body], routing_key="other")
        async with asyncio.timeout(SOON_S):
            assert [await heard.get() for _ in range(3)] == [b"theirs 1", b"theirs " + LARGE, b"theirs 2"]
        assert [delivery.body for delivery in await take(source, 3)] == [b"mine 1", b"mine " + LARGE, b"mine 2"]


async def test_a_frame_that_does_not_end_where_it_says_ends_the_session(amqp_url: str) -> None:
    port = urlsplit(amqp_url).port or 0
    async with bench(amqp_url) as at, relay(port) as between:
        await at.channel.queue_declare("q", durable=True)
        through = amqp_url.replace(f":{port}", f":{between.port}", 1)
        async with connect(parse_address(through)) as connection:
            closing = connection.closing
            source = await BrokerSource.open(connection, "q", prefetch=100)
            between.spoil()
            await at.publish([b"spoilt"], routing_key="q")
            async with asyncio.timeout(SOON_S):
                with pytest.raises(LostError, match="is no AMQP"):
                    await source.take()
                with pytest.raises(LostError):
                    await source.acknowledge(1)
                await asyncio.wait([closing])


async def test_a_connection_that_is_gone_is_lost_for_whoever_wants_a_channel(amqp_url: str) -> None:
    async with connect(parse_address(amqp_url)) as connection:
        await connection.close()
        with pytest.raises(LostError, match="the connection was closed"):
            await declare(connection, topology(Names()))
        with pytest.raises(LostError, match="the connection was closed"):
            await BrokerSink.open(connection, topology(Names()))
        with pytest.raises(LostError, match="the connection was closed"):
            await BrokerSource.open(connection, "q", prefetch=1)
