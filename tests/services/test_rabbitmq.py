from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import aio_pika
import pytest
from aio_pika.exceptions import ChannelNotFoundEntity

from tests.services.ports import is_free, lease_port
from tests.services.process import ServiceError, ServiceMissingError
from tests.services.rabbitmq import RabbitMQ, installed_scripts
from tests.support.processes import living

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.services

# How long a broker that cannot answer is watched not answering.
WATCH_S = 0.5


@pytest.fixture(scope="module")
def taken_port() -> Iterator[int]:
    """A port on which a stranger listens."""
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        yield stranger.getsockname()[1]


@pytest.fixture(scope="module")
def own(rabbitmq: RabbitMQ, taken_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """A second broker beside that of the run, for the tests of this file to stop and kill; its first port was taken."""
    assert rabbitmq.pid
    stranger = lease_port()
    stranger.number = taken_port
    leases = iter([lease_port(), lease_port(), stranger])
    with contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tests.services.rabbitmq.lease_port", lambda: next(leases, None) or lease_port())
            broker = stack.enter_context(RabbitMQ(tmp_path_factory.mktemp("own-rabbitmq")))
        yield broker


async def publish(url: str, queue: str, body: bytes, *, durable: bool = True) -> None:
    """Declare a queue and publish one persistent, confirmed message to it."""
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        await channel.declare_queue(queue, durable=durable)
        message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, queue)


async def bodies(url: str, queue: str) -> list[bytes]:
    """Take what an existing queue holds."""
    found = []
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        declared = await channel.declare_queue(queue, passive=True)
        while (message := await declared.get(fail=False)) is not None:
            await message.ack()
            found.append(message.body)
    return found


async def test_a_message_comes_back(amqp_url: str) -> None:
    await publish(amqp_url, "here", b"hello")

    assert await bodies(amqp_url, "here") == [b"hello"]


async def test_a_test_does_not_see_the_queues_of_another(
    amqp_url: str, rabbitmq: RabbitMQ, fresh_vhosts: Iterator[str]
) -> None:
    await publish(amqp_url, "mine", b"hello")

    for url in (rabbitmq.url, rabbitmq.url_of(next(fresh_vhosts))):
        with pytest.raises(ChannelNotFoundEntity):
            await bodies(url, "mine")


async def test_two_brokers_share_nothing(rabbitmq: RabbitMQ, own: RabbitMQ) -> None:
    await publish(own.url, "only-here", b"hello")

    assert rabbitmq.node not in own.ctl("cluster_status")
    assert {rabbitmq.port, rabbitmq.epmd_port}.isdisjoint({own.port, own.epmd_port})
    with pytest.raises(ChannelNotFoundEntity):
        await bodies(rabbitmq.url, "only-here")


async def test_a_restart_keeps_durable_queues_and_the_port(own: RabbitMQ) -> None:
    before = (own.url, own.pid)
    await publish(own.url, "durable", b"kept")
    await publish(own.url, "fleeting", b"gone", durable=False)

    own.restart()

    assert own.url == before[0]
    assert own.pid != before[1]
    assert await bodies(own.url, "durable") == [b"kept"]
    with pytest.raises(ChannelNotFoundEntity):
        await bodies(own.url, "fleeting")


async def test_a_killed_broker_comes_back_with_what_it_confirmed(own: RabbitMQ) -> None:
    await publish(own.url, "confirmed", b"kept")

    own.kill()
    with pytest.raises(ConnectionError):
        await publish(own.url, "confirmed", b"nobody there")
    own.start()

    assert await bodies(own.url, "confirmed") == [b"kept"]


async def test_a_paused_broker_confirms_only_after_it_goes_on(own: RabbitMQ) -> None:
    async with await aio_pika.connect(own.url) as connection:
        channel = await connection.channel()
        await channel.declare_queue("paused")
        own.pause()
        publishing = asyncio.ensure_future(channel.default_exchange.publish(aio_pika.Message(b"late"), "paused"))

        done, _ = await asyncio.wait([publishing], timeout=WATCH_S)
        own.resume()
        await publishing

    assert not done


async def test_an_alarm_blocks_publishers_until_it_is_cleared(own: RabbitMQ) -> None:
    async with await aio_pika.connect(own.url) as connection:
        channel = await connection.channel()
        await channel.declare_queue("alarmed")
        own.raise_alarm()
        publishing = asyncio.ensure_future(channel.default_exchange.publish(aio_pika.Message(b"late"), "alarmed"))

        done, _ = await asyncio.wait([publishing], timeout=WATCH_S)
        own.clear_alarm()
        await publishing

    assert not done


def test_every_port_is_bound_to_this_machine_only(own: RabbitMQ) -> None:
    ports = {lease.number for lease in own._ports.values()}

    addresses = [address for address, port in listeners() if port in ports]

    assert set(addresses) <= {"0100007F", "00000000000000000000000001000000"}  # 127.0.0.1 and ::1
    assert addresses.count("0100007F") == 3


def listeners() -> Iterator[tuple[str, int]]:
    """Address as the kernel prints it, and port, of every socket that listens (proc(5), `/proc/net/tcp`)."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            if state == "0A":
                address, port = local.split(":")
                yield address, int(port, 16)


def test_a_command_that_fails_says_what_the_broker_said(own: RabbitMQ) -> None:
    with pytest.raises(ServiceError, match="rabbitmqctl delete_vhost nowhere: exit"):
        own.ctl("delete_vhost", "nowhere")


def test_a_broker_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.services.rabbitmq.BROKER_FLAGS", "+S nonsense")

    with pytest.raises(ServiceError, match=r"broker .* ended while starting\n(.*\n)*.*emulator"), RabbitMQ(tmp_path):
        pass


def test_a_taken_port_is_given_up_for_another(own: RabbitMQ, taken_port: int) -> None:
    assert own.epmd_port != taken_port
    assert own.ctl("eval", "node().") == f"'{own.node}'\n"


def test_nothing_is_left_after_the_context(tmp_path: Path) -> None:
    with RabbitMQ(tmp_path) as broker:
        pid = broker.pid
        ports = [lease.number for lease in broker._ports.values()]
        assert living(pid)
        assert not any(is_free(port) for port in ports)

    assert not living(pid)
    assert all(is_free(port) for port in ports)
    with pytest.raises(ServiceError, match="is not running"):
        broker.stop()


def test_a_machine_without_the_package_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.services.rabbitmq.SCRIPTS_ROOT", tmp_path)

    with pytest.raises(ServiceMissingError, match="install the package rabbitmq-server"):
        installed_scripts()


def test_the_newest_of_several_releases_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.services.rabbitmq.SCRIPTS_ROOT", tmp_path)
    for release in ("3.9.13", "3.10.8", "3.10.10"):
        (tmp_path / f"rabbitmq_server-{release}" / "sbin").mkdir(parents=True)

    assert installed_scripts().parent.name == "rabbitmq_server-3.10.10"
