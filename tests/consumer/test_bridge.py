"""Posted events on their way to a real broker."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from pamqp import commands

from blobmap.errors import RefusedError, UnavailableError, UsageError
from consumer.address import parse_address
from consumer.bridge import bridging
from consumer.event_file import EventFile
from consumer.ports import Status
from consumer.topology import Names, topology
from tests.support.amqp import Bench, bench
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.services.rabbitmq import RabbitMQ

pytestmark = pytest.mark.services

EVENTS = "blobmap.events"


@dataclass
class Site:
    """A spool and a broker."""

    spool: Path
    url: str
    most_bytes: int = 1_000_000
    status: Status = field(default_factory=Status)
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def bridge(self) -> AsyncIterator[EventFile]:
        async with bridging(
            self.spool,
            parse_address(self.url),
            topology(Names()),
            exchange="s3.events",
            most_bytes=self.most_bytes,
            status=self.status,
            stop=self.stop,
        ) as spool:
            yield spool

    async def trouble(self) -> str:
        async def told() -> str | None:
            return self.status.troubles.get("s3.events")

        return str(await eventually(told, what="the trouble is told"))

    async def working(self) -> None:
        """Waits until nothing is wrong."""

        async def works() -> bool:
            return not self.status.troubles

        await eventually(works, what="events are forwarded")

    async def left(self) -> int:
        """How many events wait in the closed spool."""
        spool = await EventFile.open(self.spool, prefetch=1)
        ((count,),) = await spool._run(lambda: list(spool._database.execute("SELECT count(*) FROM events")))
        await spool.close()
        return int(count)


@pytest.fixture
def site(tmp_path: Path, amqp_url: str) -> Site:
    return Site(tmp_path / "spool.sqlite", amqp_url)


async def arrived(at: Bench, bodies: set[bytes], spool: EventFile) -> None:
    """Takes the events, as soon as the spool has let go of all of them."""

    async def empty() -> bool:
        return not spool._bytes

    await eventually(empty, what="the spool is empty")
    assert {got.body for got in await at.drain(EVENTS)} == bodies


async def test_events_are_published_as_the_gateway_would(site: Site) -> None:
    async with site.bridge() as spool, bench(site.url) as at:
        await spool.put(b"event")

        async def there() -> bool:
            return not spool._bytes

        await eventually(there, what="the event is at the broker")
        message = await at.channel.basic_get(EVENTS)
    assert isinstance(message.delivery, commands.Basic.GetOk)
    assert (message.body, message.delivery.exchange, message.delivery.routing_key) == (b"event", "s3.events", "")
    properties = message.header.properties
    assert (properties.delivery_mode, properties.content_type) == (2, "application/json")
    assert properties.timestamp is not None
    assert await site.left() == 0


async def test_many_events_arrive_and_leave_the_spool(site: Site) -> None:
    bodies = {b"%d" % number for number in range(1_200)}
    async with site.bridge() as spool, bench(site.url) as at:
        await asyncio.gather(*map(spool.put, bodies))
        await arrived(at, bodies, spool)
    assert await site.left() == 0


async def test_while_the_broker_is_away_the_spool_grows_and_then_it_drains(site: Site, rabbitmq: RabbitMQ) -> None:
    """Away: the virtual host is not there yet, which the broker answers by hanging up."""
    vhost = f"late-{secrets.token_hex(6)}"
    site.url = rabbitmq.url_of(vhost)
    bodies = {b"%d" % number for number in range(50)}
    async with site.bridge() as spool:
        await asyncio.gather(*map(spool.put, bodies))
        assert f"vhost '{vhost}' cannot be opened" in await site.trouble()
    assert await site.left() == 50
    async with site.bridge() as spool:
        await spool.put(b"one more")
        await asyncio.to_thread(rabbitmq.add_vhosts, [vhost])
        async with bench(site.url) as at:
            await arrived(at, {*bodies, b"one more"}, spool)
        await site.working()
    assert await site.left() == 0


async def test_a_full_spool_takes_nothing_until_it_drains(site: Site, rabbitmq: RabbitMQ) -> None:
    vhost = f"late-{secrets.token_hex(6)}"
    site.url, site.most_bytes = rabbitmq.url_of(vhost), 100
    async with site.bridge() as spool:
        await spool.put(b"x" * 100)
        with pytest.raises(UnavailableError, match="is full"):
            await spool.put(b"y")
        assert "is full" in site.status.troubles[f"source.spool {site.spool}"]
        await asyncio.to_thread(rabbitmq.add_vhosts, [vhost])
        async with bench(site.url) as at:
            await arrived(at, {b"x" * 100}, spool)
            await spool.put(b"y")
            await arrived(at, {b"y"}, spool)
            await site.working()


async def test_an_exchange_that_leads_nowhere_is_no_success(site: Site) -> None:
    """The queue is deleted: what is published comes back, and everything is declared again."""
    async with site.bridge() as spool, bench(site.url) as at:
        await spool.put(b"one")
        await arrived(at, {b"one"}, spool)
        await at.channel.queue_delete(EVENTS)
        await spool.put(b"two")
        assert await site.trouble() == "exchange 's3.events': no queue takes the event"
        await arrived(at, {b"two"}, spool)
    assert await site.left() == 0


async def test_a_connection_that_is_cut_is_opened_again(site: Site, rabbitmq: RabbitMQ) -> None:
    async with site.bridge() as spool, bench(site.url) as at:
        await spool.put(b"one")
        await arrived(at, {b"one"}, spool)
        await at.connection.close()
        await asyncio.to_thread(_hang_up, rabbitmq, site.url.rpartition("/")[2])
        bodies = {b"%d" % number for number in range(20)}
        await asyncio.gather(*map(spool.put, bodies))
        async with bench(site.url) as again:
            await arrived(again, bodies, spool)
    assert await site.left() == 0


def _hang_up(broker: RabbitMQ, vhost: str) -> None:
    broker.ctl("close_all_connections", "--vhost", vhost, "for a test")


async def test_a_blocked_broker_is_waited_for_and_shown(
    site: Site, rabbitmq: RabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sent when the broker stopped reading comes out once, however long that lasted."""
    monkeypatch.setattr("consumer.bridge._CONFIRM_S", 0.2)
    async with site.bridge() as spool, bench(site.url) as at:
        await spool.put(b"one")
        await arrived(at, {b"one"}, spool)
        await asyncio.to_thread(rabbitmq.raise_alarm)
        try:
            await spool.put(b"two")
            assert await site.trouble() == "the broker is blocked: memory or disk is short there"
        finally:
            await asyncio.to_thread(rabbitmq.clear_alarm)

        await site.working()
        assert not spool._bytes
        assert [got.body for got in await at.drain(EVENTS)] == [b"two"]


async def test_a_broker_that_confirms_nothing_and_says_nothing_is_left(
    site: Site, rabbitmq: RabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site.bridge() as spool, bench(site.url) as at:
        await spool.put(b"one")
        await arrived(at, {b"one"}, spool)
        monkeypatch.setattr("consumer.bridge._CONFIRM_S", 0.2)
        rabbitmq.pause()
        try:
            await spool.put(b"two")
            assert await site.trouble() == "exchange 's3.events': the broker has not confirmed for 0.2 s"
        finally:
            rabbitmq.resume()
        monkeypatch.undo()

        async def empty() -> bool:
            return not spool._bytes

        await eventually(empty, what="the spool is empty")
    async with bench(site.url) as at:
        assert {got.body for got in await at.drain(EVENTS)} == {b"two"}


async def test_what_a_person_must_mend_ends_the_daemon(site: Site) -> None:
    async with bench(site.url) as at:
        await at.channel.queue_declare(EVENTS, durable=True)
    with pytest.raises(UsageError, match=r"queue 'blobmap\.events' exists with"):
        async with site.bridge(), asyncio.timeout(20):
            await site.stop.wait()
    spool = await EventFile.open(site.spool, prefetch=1)
    await spool.put(b"x")
    await spool.close()
    wrong = Site(site.spool, site.url.replace("guest:guest", "guest:wrong"))
    with pytest.raises(RefusedError, match="refuses user or password"):
        async with wrong.bridge(), asyncio.timeout(20):
            await wrong.stop.wait()
    assert await site.left() == 1


async def test_a_spool_that_another_process_has(site: Site) -> None:
    async with site.bridge():
        with pytest.raises(RefusedError, match=r"source\.spool .*: locked, another process has it"):
            async with site.bridge():
                pass
