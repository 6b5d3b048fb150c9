"""The shipped daemon beside a real broker that is restarted, killed, paused, blocked and cut off; nothing is lost."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from obstore.store import LocalStore

from tests.services.relay import relay
from tests.support.accounting import assert_accounts_balance
from tests.support.amqp import bench
from tests.support.consumer_process import consumer
from tests.support.notifications import created
from tests.support.site import ALERTS, DEAD, EVENTS, OBJECTS, Site, collected, readiness, vhost
from tests.support.stores import RawArray, chunk_keys, write_store
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.services.rabbitmq import RabbitMQ
    from tests.services.relay import Relay
    from tests.support.amqp import Bench
    from tests.support.consumer_process import ConsumerProcess

pytestmark = pytest.mark.services


@pytest.fixture
def sites(tmp_path: Path, faulty_urls: Iterator[str]) -> Iterator[Site]:
    """Sites that have nothing in common but the broker: what is done to it is done once to several of them."""

    def built() -> Iterator[Site]:
        for number, url in enumerate(faulty_urls):
            directory = tmp_path / f"site-{number}"
            directory.mkdir()
            site = Site(directory, url)
            site.write_manifest("s.zarr")
            yield site

    return built()


@pytest.fixture
def site(sites: Iterator[Site]) -> Site:
    return next(sites)


# A stream that RabbitMQ 3.10 has just declared does not come back after a SIGKILL: its coordinator has not synced yet.
SETTLED_S = 4.0


class Settled:
    """A virtual host in which everything has been declared for some time."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._declared_s = time.monotonic()

    async def site(self, directory: Path) -> Site:
        """A site there."""
        await asyncio.sleep(self._declared_s + SETTLED_S - time.monotonic())
        built = Site(directory, self.url)
        built.write_manifest("s.zarr")
        return built


@pytest.fixture(scope="module")
def settled(faulty_rabbitmq: RabbitMQ, tmp_path_factory: pytest.TempPathFactory) -> Settled:
    faulty_rabbitmq.add_vhosts(["settled"])
    url = faulty_rabbitmq.url_of("settled")
    asyncio.run(Site(tmp_path_factory.mktemp("settled"), url).declare())
    return Settled(url)


def keys(count: int, *, first: int = 0) -> list[str]:
    return [f"s.zarr/t/c/{number}" for number in range(first, first + count)]


def announced(names: list[str]) -> list[bytes]:
    return [created("b", name) for name in names]


async def consuming_again(process: ConsumerProcess) -> None:
    await process.until_logged("consuming", count=2)


async def lost_for(process: ConsumerProcess, reason: str) -> None:
    """Waits for the loss of a session for this reason; on a busy machine there may be another one before it."""

    async def lost() -> bool:
        return any(reason in line["reason"] for line in process.logged("session lost"))

    await eventually(lost, what=f"a session is lost: {reason}")


@asynccontextmanager
async def through_relay(site: Site, broker: RabbitMQ) -> AsyncIterator[Relay]:
    """Lets the daemon reach the broker through a relay only."""
    async with relay(broker.port) as between:
        site.daemon_url = site.url.replace(f":{broker.port}/", f":{between.port}/")
        yield between


@pytest.mark.usefixtures("settled")
async def test_a_broker_that_answers_nothing_is_noticed_and_holds_up_no_stop(
    sites: Iterator[Site], faulty_rabbitmq: RabbitMQ
) -> None:
    """SIGSTOP: every socket stays open."""
    patient, stopped = next(sites), next(sites)
    stopped.head = "grace_s = 3"
    async with patient.run() as process, stopped.run() as other:
        for one in (process, other):
            await one.until_logged("consuming")
        faulty_rabbitmq.pause()
        try:
            other.send(signal.SIGTERM)
            other.send(signal.SIGTERM)
            assert await other.end() == 0
            await process.until_logged("session lost")
        finally:
            faulty_rabbitmq.resume()
        await consuming_again(process)
        assert await process.stop() == 0
    assert "Traceback" not in other.err


async def test_r02_a_deleted_queue_is_declared_and_consumed_again(site: Site) -> None:
    async with site.run() as process, bench(site.url) as at:
        await process.until_logged("consuming")
        await at.channel.queue_delete(EVENTS)
        await consuming_again(process)
        await lost_for(process, "cancelled the consumer")
        await site.publish(*announced(keys(10)))
        assert len(await collected(at, 10)) == 10
        assert await process.stop() == 0


async def test_r04_r18_connections_that_are_cut_half_open_or_held(
    sites: Iterator[Site], faulty_rabbitmq: RabbitMQ
) -> None:
    """Three sites side by side, each with ways of its own to the broker."""
    await asyncio.gather(
        _r04_cut_in_flight(next(sites), faulty_rabbitmq),
        _half_open(next(sites), faulty_rabbitmq),
        _r18_held(next(sites), faulty_rabbitmq),
    )


async def _r04_cut_in_flight(site: Site, broker: RabbitMQ) -> None:
    """Fifty messages wait in a batch for others; what is delivered again gives the same ids."""
    site.more = "[sink]\nbatch_ms = 1500\n"
    await site.publish(*announced(keys(50)))
    async with through_relay(site, broker) as between, site.run() as process, bench(site.url) as at:
        await process.until_logged("consuming")

        async def in_flight() -> bool:
            return await at.ready(EVENTS) == 0

        await eventually(in_flight, what="all are delivered")
        between.cut()
        await consuming_again(process)
        told = await collected(at, 50)
        assert await process.stop() == 0
        assert len({record["id"] for record in told}) == 50
        await assert_accounts_balance(at, keys(50), told_before=[record["key"] for record in told])
    assert "Traceback" not in process.err


async def _half_open(site: Site, broker: RabbitMQ) -> None:
    async with through_relay(site, broker) as between, site.run() as process, bench(site.url) as at:
        await process.until_logged("consuming")
        between.strand()
        await consuming_again(process)
        await site.publish(*announced(keys(10)))
        await collected(at, 10)
        assert await process.stop() == 0


async def _r18_held(site: Site, broker: RabbitMQ) -> None:
    """The broker still holds the old connection of one of two workers: it comes back, and shares the queue at once."""
    site.source = "prefetch = 50"
    async with through_relay(site, broker) as between, site.run(name="near") as near, bench(site.url) as at:
        await near.until_logged("consuming")
        site.daemon_url = None
        async with site.run(name="other") as other:
            await other.until_logged("consuming")
            between.pause()
            await near.until_logged("session lost")
            between.resume()
            await consuming_again(near)
            await site.publish(*announced(keys(500)))
            told = await collected(at, 500)
            assert [await process.stop() for process in (near, other)] == [0, 0]
        await assert_accounts_balance(at, keys(500), told_before=[record["key"] for record in told])
    for process in (near, other):
        assert process.logged("stopped")[0].get("emitted", 0) > 0, "both had a share"


async def test_a_channel_that_the_broker_closes_for_unacknowledged_messages(
    site: Site, faulty_rabbitmq: RabbitMQ
) -> None:
    """`consumer_timeout`, which a broker looks at once a minute unless told otherwise."""
    await site.publish(*announced(keys(10)))
    await asyncio.to_thread(_set_consumer_timeout, faulty_rabbitmq, "1000")
    try:
        site.more = "[sink]\nbatch_ms = 4000\n"
        async with site.run() as process, bench(site.url) as at:
            await lost_for(process, "PRECONDITION_FAILED")
            await asyncio.to_thread(_set_consumer_timeout, faulty_rabbitmq, "1800000")
            await consuming_again(process)
            await collected(at, 10)
            assert await process.stop() == 0
    finally:
        await asyncio.to_thread(_set_consumer_timeout, faulty_rabbitmq, "1800000")


async def test_a_worker_goes_on_where_the_broker_took_its_delivery_away(site: Site, faulty_rabbitmq: RabbitMQ) -> None:
    """The same for `partition`, of which a delivery takes longer: a mover's queue refuses what a backfill tells."""
    (site.directory / "data").mkdir()
    array = RawArray("t", (20,), (1,), dims=("time",))
    write_store(LocalStore(site.directory / "data"), "s.zarr", [array])
    site.more = f'data = "{site.directory / "data"}"\n[manifests]\nrefresh_s = 0.2\n'
    await site.declare()
    await asyncio.to_thread(_set_consumer_timeout, faulty_rabbitmq, "1000")
    try:
        async with bench(site.url) as at:
            await at.publish([b'{"records":[]}'] * 2, routing_key=OBJECTS)
            await asyncio.to_thread(_refuse, faulty_rabbitmq, site)
            async with consumer(
                site.directory / "worker", "partition", "--config", str(site.write_config())
            ) as process:
                await lost_for(process, "PRECONDITION_FAILED")
                await asyncio.to_thread(_set_consumer_timeout, faulty_rabbitmq, "1800000")
                await asyncio.to_thread(faulty_rabbitmq.ctl, "clear_policy", "--vhost", vhost(site.url), "refuse")
                told = await collected(at, 20)
                assert {record["key"] for record in told} == set(chunk_keys("s.zarr", array))
                assert await process.stop() == 0
    finally:
        await asyncio.to_thread(_set_consumer_timeout, faulty_rabbitmq, "1800000")


def _set_consumer_timeout(broker: RabbitMQ, milliseconds: str) -> None:
    tick = min(int(milliseconds), 60_000)
    broker.ctl(
        "eval",
        f"application:set_env(rabbit, consumer_timeout, {milliseconds}),"
        f" application:set_env(rabbit, channel_tick_interval, {tick}).",
    )


async def test_r12_a_blocked_broker_is_said_and_a_stop_ends_and_nothing_is_lost(
    sites: Iterator[Site], faulty_rabbitmq: RabbitMQ
) -> None:
    """One daemon is stopped meanwhile, and run again; another one goes on by itself after the alarm."""
    stopped, patient = next(sites), next(sites)
    for site in (stopped, patient):
        site.head, site.more = "grace_s = 3", "[http]\nport = 0\n"
        await site.publish(*announced(keys(200)))
    await asyncio.to_thread(faulty_rabbitmq.raise_alarm)
    try:
        async with patient.run() as waits, bench(patient.url) as at:
            async with stopped.run() as process:
                await process.until_logged("blocked")
                ready = await readiness(process)
                assert ready["status"] == 503
                assert ready["reasons"][0] == "the broker is blocked: memory or disk is short there"
                assert await process.stop() == 0
            await waits.until_logged("blocked")
            await asyncio.to_thread(faulty_rabbitmq.clear_alarm)
            assert (await waits.until_logged("blocked", count=2))["blocked"] is False
            await _all_told(at, waits, 200)
    finally:
        await asyncio.to_thread(faulty_rabbitmq.clear_alarm)
    async with stopped.run() as process, bench(stopped.url) as at:
        await _all_told(at, process, 200)


async def _all_told(at: Bench, process: ConsumerProcess, count: int) -> None:
    """Waits for records of so many keys, and stops the daemon; nothing is lost and nothing is made up."""
    await process.until_logged("consuming")  # what another one had sent may have come before it can be stopped in order
    told = await collected(at, count)
    assert await process.stop() == 0
    await assert_accounts_balance(at, keys(count), told_before=[record["key"] for record in told])


async def test_r10_while_output_is_impossible_it_waits_without_a_subscription(
    site: Site, faulty_rabbitmq: RabbitMQ
) -> None:
    """A mover's queue that refuses everything: named, tried again, and then everything is given back."""
    site.more = "[sink]\npatience_s = 1\n[http]\nport = 0\n"
    await site.publish(*announced(keys(30)))
    async with bench(site.url) as at:
        await at.publish([b'{"records":[]}'] * 2, routing_key=OBJECTS)
    await asyncio.to_thread(_refuse, faulty_rabbitmq, site)
    async with site.run() as process, bench(site.url) as at:
        await process.until_logged("waiting without events")
        ready = await readiness(process)
        assert ready["status"] == 503
        assert f"{OBJECTS}: queue '{OBJECTS}' refused the message" in ready["reasons"]

        async def given_back() -> bool:
            return (await at.consumers(EVENTS), await at.ready(EVENTS)) == (0, 30)

        await eventually(given_back, what="all are back in the queue, and nobody consumes them")
        await asyncio.to_thread(faulty_rabbitmq.ctl, "clear_policy", "--vhost", vhost(site.url), "refuse")
        told = await collected(at, 30)
        await consuming_again(process)
        assert [line["works"] for line in process.logged("output")] == [False, True]
        assert await process.stop() == 0
        await assert_accounts_balance(at, keys(30), told_before=[record["key"] for record in told])


@pytest.mark.timeout(400)  # forty-two processes begin, two at a time
async def test_twenty_stops_and_twenty_kills_under_full_prefetch_set_nothing_aside(
    sites: Iterator[Site], faulty_rabbitmq: RabbitMQ
) -> None:
    """The broker counts every return, also those of an orderly stop; from twenty on it is alerted until all is well."""
    await asyncio.gather(
        _ended_again_and_again(next(sites), signal.SIGTERM, faulty_rabbitmq),
        _ended_again_and_again(next(sites), signal.SIGKILL, faulty_rabbitmq),
    )


async def _ended_again_and_again(site: Site, number: signal.Signals, broker: RabbitMQ) -> None:
    site.head, site.source = "grace_s = 0.5", "prefetch = 30"
    await site.publish(*announced(keys(30)))
    async with bench(site.url) as at:
        await at.publish([b'{"records":[]}'] * 2, routing_key=OBJECTS)
        await asyncio.to_thread(_refuse, broker, site)

        async def all_delivered() -> bool:
            return await at.ready(EVENTS) == 0

        async def all_back() -> bool:
            return await at.ready(EVENTS) == 30

        for _ in range(20):
            async with site.run() as process:
                await eventually(all_delivered, what="the prefetch is full")
                process.send(number)
                assert await process.end() == (0 if number is signal.SIGTERM else -signal.SIGKILL)
            await eventually(all_back, what="all are back in the queue")
        assert await at.ready(DEAD) == 0
        await asyncio.to_thread(broker.ctl, "clear_policy", "--vhost", vhost(site.url), "refuse")
        async with site.run() as process:
            told = await collected(at, 30)
            alerts = await _until_resolved(at)
            assert await process.stop() == 0
        assert {alert["key"] for alert in alerts} == {f"dead-letter:{EVENTS}/delivered-often"}
        assert alerts[0]["resolved"] is False
        await assert_accounts_balance(at, keys(30), told_before=[record["key"] for record in told])


async def _until_resolved(at: Bench) -> list[dict[str, Any]]:
    """Takes alerts out of their queue, until one says that it is over."""
    found: list[dict[str, Any]] = []

    async def over() -> bool:
        found.extend(json.loads(got.body) for got in await at.drain(ALERTS))
        return bool(found) and found[-1]["resolved"] is True

    await eventually(over, what="an alert that is resolved")
    return found


def _refuse(broker: RabbitMQ, site: Site) -> None:
    """A bound that what lies in the queue has reached."""
    where = ("--vhost", vhost(site.url))
    definition = '{"max-length-bytes":1,"overflow":"reject-publish"}'
    broker.ctl("set_policy", *where, "refuse", f"^{OBJECTS}$", definition, "--apply-to", "queues")


async def test_tls_with_a_private_authority(site: Site, faulty_rabbitmq: RabbitMQ) -> None:
    await site.publish(*announced(keys(5)))
    site.amqp = f'tls_ca = "{faulty_rabbitmq.authority}"'
    site.daemon_url = site.url.replace("amqp://", "amqps://").replace(
        f":{faulty_rabbitmq.port}/", f":{faulty_rabbitmq.tls_port}/"
    )
    async with site.run() as process, bench(site.url) as at:
        assert len(await collected(at, 5)) == 5
        assert await process.stop() == 0
    site.amqp = "give_up_s = 0.1"
    async with site.run(name="untrusting") as process:
        assert await process.end() == 3
    assert "certificate verify failed" in process.err
    assert "guest:guest" not in process.err


# --- the broker goes away; last, so that what is declared first has long been settled


@pytest.mark.parametrize("end", ["restart", "kill"])
async def test_r01_after_the_broker_was_away_it_consumes_again(
    settled: Settled, tmp_path: Path, faulty_rabbitmq: RabbitMQ, end: str
) -> None:
    def away() -> None:
        (faulty_rabbitmq.kill if end == "kill" else faulty_rabbitmq.stop)()
        faulty_rabbitmq.start()

    site = await settled.site(tmp_path)
    names = keys(150, first=1000 if end == "kill" else 2000)
    async with site.run() as process:
        await process.until_logged("consuming")
        await site.publish(*announced(names[:50]))
        await asyncio.to_thread(away)
        await consuming_again(process)
        await site.publish(*announced(names[50:]))
        async with bench(site.url) as at:
            told = await collected(at, 150)
            assert await process.stop() == 0
            await assert_accounts_balance(at, names, told_before=[record["key"] for record in told])
    assert "Traceback" not in process.err
