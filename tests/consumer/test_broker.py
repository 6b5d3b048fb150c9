from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from pydantic import SecretStr

from blobmap.errors import RefusedError, UnavailableError, UsageError
from consumer.address import parse_address
from consumer.broker import connect, open_session
from consumer.declare import declare
from consumer.intake import BrokerSource
from consumer.ports import LostError, Status
from consumer.records import Message
from consumer.settings import Amqp
from consumer.topology import Names, topology
from tests.support.amqp import Got, bench
from tests.support.port_contracts import SOON_S, JournalContract, SinkContract, SourceContract, take
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from consumer.broker import Session
    from consumer.ports import Journal, Sink, Source
    from tests.services.rabbitmq import RabbitMQ

pytestmark = pytest.mark.services

TOPOLOGY = topology(Names())
QUEUE = "blobmap.events"


class Harness:
    """A virtual host with our topology."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.status = Status()

    @asynccontextmanager
    async def session(self, prefetch: int = 100) -> AsyncIterator[Session]:
        address = parse_address(self.url)
        async with open_session(address, TOPOLOGY, queue=QUEUE, prefetch=prefetch, status=self.status) as session:
            yield session

    async def declare(self) -> None:
        async with connect(parse_address(self.url)) as connection:
            await declare(connection, TOPOLOGY)


class SourceHarness(Harness):
    @asynccontextmanager
    async def open(self, prefetch: int = 100) -> AsyncIterator[Source]:
        async with self.session(prefetch) as session:
            yield session.source

    async def put(self, *bodies: bytes) -> None:
        await self.declare()
        async with bench(self.url) as at:
            await at.publish(bodies, exchange="s3.events")


class SinkHarness(Harness):
    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sink]:
        async with self.session() as session:
            yield session.sink

    async def read(self, queue: str) -> list[Message]:
        async with bench(self.url) as at:
            got = await at.drain(queue)
        assert all((one.content_type, one.delivery_mode) == ("application/json", 2) for one in got)
        return [Message(queue, one.schema, one.body, {k: str(v) for k, v in one.headers.items()}) for one in got]


class TestSource(SourceContract):
    @pytest.fixture
    def harness(self, amqp_url: str) -> SourceHarness:
        return SourceHarness(amqp_url)


class JournalHarnessAtBroker(Harness):
    @asynccontextmanager
    async def open(self) -> AsyncIterator[Journal]:
        async with self.session() as session:
            yield session.sink

    async def read(self) -> list[bytes]:
        async with bench(self.url) as at:
            return await at.read_stream("blobmap.journal")


class TestJournal(JournalContract):
    @pytest.fixture
    def harness(self, amqp_url: str) -> JournalHarnessAtBroker:
        return JournalHarnessAtBroker(amqp_url)


class TestSink(SinkContract):
    @pytest.fixture
    def harness(self, amqp_url: str) -> SinkHarness:
        return SinkHarness(amqp_url)


async def test_a_delivery_says_where_it_came_from(amqp_url: str) -> None:
    harness = SourceHarness(amqp_url)
    await harness.declare()
    async with bench(amqp_url) as at:
        await at.publish([b"x"], exchange="s3.events", routing_key="some.key")
    async with harness.open() as source:
        (delivery,) = await take(source, 1)
    assert (delivery.exchange, delivery.routing_key, delivery.deliveries) == ("s3.events", "some.key", 1)


async def test_declaring_twice_changes_nothing(amqp_url: str) -> None:
    harness = Harness(amqp_url)
    await harness.declare()
    async with bench(amqp_url) as at:
        await at.publish([b"x"], routing_key="blobmap.flags")
        await harness.declare()
        assert [one.body for one in await at.drain("blobmap.flags")] == [b"x"]


async def test_the_broker_takes_what_was_rejected_to_the_dead_letters(amqp_url: str) -> None:
    """The dead-letter exchange of the events' queue is what its arguments promise."""
    await Harness(amqp_url).declare()
    async with bench(amqp_url) as at:
        await at.publish([b"x"], exchange="s3.events", routing_key="k")
        message = await at.channel.basic_get(QUEUE)
        assert message.delivery_tag is not None
        await at.channel.basic_reject(message.delivery_tag, requeue=False)

        async def dead() -> list[Got]:
            return await at.drain("blobmap.dead")

        (letter,) = await eventually(dead, what="the message is in blobmap.dead")
    assert letter.body == b"x"


@pytest.mark.parametrize("queue", ["blobmap.dead", "blobmap.objects"])
async def test_a_queue_with_other_arguments_is_named_with_both_values(amqp_url: str, queue: str) -> None:
    async with bench(amqp_url) as at:
        await at.channel.queue_declare(queue, durable=True)
    with pytest.raises(UsageError) as caught:
        await Harness(amqp_url).declare()
    assert str(caught.value) == (
        f"queue {queue!r} exists with x-queue-type none, and must have 'quorum': delete it, or use another name"
    )


async def test_an_exchange_of_another_kind_is_named(amqp_url: str) -> None:
    async with bench(amqp_url) as at:
        await at.channel.exchange_declare("s3.events", exchange_type="fanout", durable=True)
    with pytest.raises(UsageError) as caught:
        await Harness(amqp_url).declare()
    assert str(caught.value) == (
        "exchange 's3.events' exists with type 'fanout', and must have 'topic': delete it, or use another name"
    )


async def test_a_wrong_password_is_refused_at_once(amqp_url: str) -> None:
    address = replace(parse_address(amqp_url), password="wrong-secret")  # noqa: S106  # wrong on purpose
    with pytest.raises(RefusedError, match="refuses user or password") as caught:
        async with connect(address):
            pass
    assert "wrong-secret" not in str(caught.value)


@pytest.mark.parametrize("vhost", ["/prod/zarr", "a%2Fb c+ü"])
@pytest.mark.parametrize("as_url", [True, False])
async def test_r13_any_user_password_and_vhost(rabbitmq: RabbitMQ, vhost: str, as_url: bool) -> None:
    user, password = "ops@site", "p#a/s:s%w@rd?+ "
    await asyncio.to_thread(_add_user, rabbitmq, user, password, vhost)
    if as_url:
        encoded = [quote(part, safe="") for part in (user, password, vhost)]
        amqp = Amqp(url=SecretStr(f"amqp://{encoded[0]}:{encoded[1]}@127.0.0.1:{rabbitmq.port}/{encoded[2]}"))
    else:
        amqp = Amqp(port=rabbitmq.port, user=user, password=SecretStr(password), vhost=vhost)
    async with connect(amqp.address()) as connection:
        await declare(connection, TOPOLOGY)
    queues = await asyncio.to_thread(rabbitmq.ctl, "list_queues", "--vhost", vhost, "name")
    assert QUEUE in queues.split()


def _add_user(broker: RabbitMQ, user: str, password: str, vhost: str) -> None:
    broker.add_vhosts([vhost])
    if user not in broker.ctl("list_users"):
        broker.ctl("add_user", user, password)
    broker.ctl("set_permissions", "--vhost", vhost, user, ".*", ".*", ".*")


async def test_a_certificate_file_that_is_not_there() -> None:
    address = replace(parse_address("amqps://h"), tls_ca=Path("absent.pem"))
    with pytest.raises(UsageError, match=r"amqp\.tls_ca absent\.pem: .*No such file"):
        async with connect(address):
            pass


async def test_a_vhost_that_is_not_there_may_still_come(amqp_url: str) -> None:
    with pytest.raises(UnavailableError, match="vhost '/absent' cannot be opened"):
        async with connect(replace(parse_address(amqp_url), vhost="/absent")):
            pass


async def test_a_broker_that_is_not_there(amqp_url: str) -> None:
    with pytest.raises(UnavailableError, match="Connect call failed"):
        async with connect(replace(parse_address(amqp_url), port=1)):
            pass


async def test_publishing_to_a_missing_queue_is_no_success_and_declares_it_again(amqp_url: str) -> None:
    message = Message("blobmap.objects", "blobmap.objects.v1", b"{}")
    async with Harness(amqp_url).session() as session, bench(amqp_url) as at:
        await at.channel.queue_delete("blobmap.objects")
        with pytest.raises(UnavailableError, match=r"'blobmap\.objects' was not there") as caught:
            await session.sink.publish(message)
        assert not isinstance(caught.value, LostError)
        await session.sink.publish(message)
        assert [one.body for one in await at.drain("blobmap.objects")] == [b"{}"]


async def test_publishing_to_a_queue_that_is_not_ours_declares_nothing(amqp_url: str) -> None:
    async with Harness(amqp_url).session() as session, bench(amqp_url) as at:
        with pytest.raises(UnavailableError, match=r"'somebody\.elses' was not there"):
            await session.sink.publish(Message("somebody.elses", None, b"{}"))
        assert await at.consumers("somebody.elses") == -1


async def test_a_queue_that_refuses_is_no_success(amqp_url: str) -> None:
    async with Harness(amqp_url).session() as session, bench(amqp_url) as at:
        await at.channel.queue_declare("full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        await session.sink.publish(Message("full", None, b"{}"))
        with pytest.raises(UnavailableError, match="queue 'full' refused the message"):
            await session.sink.publish(Message("full", None, b"{}"))


async def test_what_was_refused_is_taken_as_soon_as_there_is_room(amqp_url: str, rabbitmq: RabbitMQ) -> None:
    """The bound is lifted: the broker goes on refusing the channel that it has refused, and takes it on another one."""
    message = Message("blobmap.objects", "blobmap.objects.v1", b"{}")
    other = Message("blobmap.flags", "blobmap.flags.v1", b"{}")
    at_vhost = ("--vhost", amqp_url.rpartition("/")[2])
    definition = '{"max-length":1,"overflow":"reject-publish"}'
    async with Harness(amqp_url).session() as session, bench(amqp_url) as at:
        await at.publish([b"{}"] * 2, routing_key=message.queue)
        await asyncio.to_thread(
            rabbitmq.ctl, "set_policy", *at_vhost, "full", f"^{message.queue}$", definition, "--apply-to", "queues"
        )

        async def refuses() -> bool:
            try:
                await session.sink.publish(message)
            except UnavailableError as error:
                return str(error) == f"queue {message.queue!r} refused the message"
            return False

        await eventually(refuses, what="the bound holds")
        for _ in range(3):
            refused, _, also = await asyncio.gather(refuses(), session.sink.publish(other), refuses())
            assert refused
            assert also

        async def closed() -> bool:
            return await _channels(amqp_url, rabbitmq) == 3

        await eventually(closed, what="one channel consumes, one publishes, one is the test's")
        await asyncio.to_thread(rabbitmq.ctl, "clear_policy", *at_vhost, "full")

        async def takes() -> bool:
            return not await refuses()

        await eventually(takes, what="the queue takes it")


async def _channels(url: str, broker: RabbitMQ) -> int:
    listed = await asyncio.to_thread(broker.ctl, "list_channels", "vhost", "--no-table-headers")
    return listed.split().count(url.rpartition("/")[2])


async def test_r02_a_deleted_queue_ends_the_session(amqp_url: str) -> None:
    async with Harness(amqp_url).session() as session, bench(amqp_url) as at:
        waiting = asyncio.ensure_future(session.source.take())
        await at.channel.queue_delete(QUEUE)
        async with asyncio.timeout(SOON_S):
            with pytest.raises(LostError, match=r"cancelled the consumer of queue 'blobmap\.events'"):
                await waiting


async def test_r04_nothing_is_acknowledged_in_a_session_that_is_lost(amqp_url: str) -> None:
    harness = SourceHarness(amqp_url)
    await harness.put(b"x")
    async with harness.open() as source, bench(amqp_url) as at:
        (delivery,) = await take(source, 1)
        await at.channel.queue_delete(QUEUE)
        with pytest.raises(LostError):
            async with asyncio.timeout(SOON_S):
                await source.take()
        with pytest.raises(LostError):
            await source.acknowledge(delivery.tag)
        await source.stop()


async def test_an_unknown_tag_ends_the_session(amqp_url: str) -> None:
    async with Harness(amqp_url).session() as session:
        await session.source.acknowledge(99)
        async with asyncio.timeout(SOON_S):
            with pytest.raises(LostError, match=r"the channel of queue 'blobmap\.events' was closed"):
                await session.source.take()


async def test_r18_two_consumers_share_a_queue(amqp_url: str) -> None:
    harness = SourceHarness(amqp_url)
    await harness.put(*(b"%d" % number for number in range(20)))
    async with harness.open(prefetch=10) as one, harness.open(prefetch=10) as other:
        shares = [await take(source, 10) for source in (one, other)]
    assert {delivery.body for share in shares for delivery in share} == {b"%d" % number for number in range(20)}


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_r08_the_prefetch_is_a_limit_of_the_consumer_on_any_kind_of_queue(amqp_url: str, kind: str) -> None:
    async with bench(amqp_url) as at, connect(parse_address(amqp_url)) as connection:
        await at.channel.queue_declare("q", durable=True, arguments={"x-queue-type": kind})
        await at.publish((b"%d" % number for number in range(30)), routing_key="q")
        source = await BrokerSource.open(connection, "q", prefetch=20)
        await take(source, 20)

        async def the_rest_waits() -> bool:
            return await at.ready("q") == 10

        await eventually(the_rest_waits, what="ten are left")
        waiting = asyncio.ensure_future(source.take())
        await source.check(timeout_s=SOON_S)  # whatever the broker had sent before its answer is here
        assert not waiting.done()
        await source.stop()
        assert await waiting == []
