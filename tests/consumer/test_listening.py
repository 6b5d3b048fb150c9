"""Announcements at a real broker."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from consumer.address import parse_address
from consumer.broker import open_session
from consumer.ports import LostError, Status
from consumer.topology import Names, topology
from tests.support.amqp import bench
from tests.support.port_contracts import SOON_S
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from consumer.broker import Session
    from tests.services.rabbitmq import RabbitMQ

pytestmark = pytest.mark.services

TOPOLOGY = topology(Names())

Heard = list[tuple[str, str]]


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[tuple[Session, Heard]]:
    heard: Heard = []
    async with open_session(
        parse_address(url),
        TOPOLOGY,
        queue="blobmap.events",
        prefetch=1,
        status=Status(),
        on_announcement=lambda bucket, scope: heard.append((bucket, scope)),
    ) as session:
        yield session, heard


async def until_heard(heard: Heard, *wanted: tuple[str, str]) -> None:
    async def all_of_them() -> bool:
        return heard == list(wanted)

    await eventually(all_of_them, what=f"{wanted} is heard")


async def test_everybody_who_listens_hears_it_the_announcer_too(amqp_url: str) -> None:
    async with listening(amqp_url) as (session, first), listening(amqp_url) as (_, second):
        await session.sink.announce("b", "s.zarr", 3)
        await session.sink.announce("b", "", 1)
        for heard in (first, second):
            await until_heard(heard, ("b", "s.zarr"), ("b", ""))


async def test_what_is_no_announcement_is_passed_over(amqp_url: str) -> None:
    async with listening(amqp_url) as (session, heard), bench(amqp_url) as at:
        await at.publish([b"\xff", b"{}"], exchange="blobmap.manifests")
        await session.sink.announce("b", "s.zarr", 3)
        await until_heard(heard, ("b", "s.zarr"))


def own_queues(rabbitmq: RabbitMQ, url: str) -> list[str]:
    """The queues of those who listen: name, type and arguments."""
    vhost = url.rpartition("/")[2]
    told = rabbitmq.ctl("list_queues", "--silent", "--no-table-headers", "-p", vhost, "name", "type", "arguments")
    return [line for line in told.splitlines() if line.startswith("amq.gen")]


async def test_its_queue_goes_by_itself_when_nobody_listens_any_more(rabbitmq: RabbitMQ, amqp_url: str) -> None:
    async with listening(amqp_url):
        (queue,) = await asyncio.to_thread(own_queues, rabbitmq, amqp_url)
    assert "classic" in queue
    assert '{"x-expires",60000}' in queue
    assert '{"x-max-length",1000}' in queue


async def test_nobody_needs_to_listen(amqp_url: str) -> None:
    async with open_session(
        parse_address(amqp_url), TOPOLOGY, queue="blobmap.events", prefetch=1, status=Status()
    ) as session:
        await session.sink.announce("b", "s.zarr", 3)
        assert await session.sink.blocked() is None
        await session.sink.check(timeout_s=SOON_S)


async def test_a_queue_that_is_deleted_ends_the_session(rabbitmq: RabbitMQ, amqp_url: str) -> None:
    """And the next one listens again."""
    async with listening(amqp_url) as (session, _), bench(amqp_url) as at:
        waiting = asyncio.ensure_future(session.source.take())
        (queue,) = await asyncio.to_thread(own_queues, rabbitmq, amqp_url)
        await at.channel.queue_delete(queue.split()[0])
        async with asyncio.timeout(SOON_S):
            with pytest.raises(LostError, match="announcements"):
                await waiting


async def test_who_cannot_announce_goes_on(amqp_url: str) -> None:
    async with listening(amqp_url) as (session, _):
        async with bench(amqp_url) as at:
            await at.channel.exchange_delete("blobmap.manifests")
        await session.sink.announce("b", "s.zarr", 3)  # which closes the channel
        await session.sink.announce("b", "s.zarr", 3)
