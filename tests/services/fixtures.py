"""The services as pytest fixtures, and the line at the end of a run that counts the tests that missed one.

Shared by a whole run: `rabbitmq` and `gateway`; a test sees only its own part of them, through `amqp_url` and `bucket`.
A test may stop and kill what `private_rabbitmq`, `event_gateway` and `webhook_gateway` give it: nobody else has them.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import aio_pika
import pytest

from tests.services.gateway import AmqpEvents, Gateway, WebhookEvents
from tests.services.gateway_binary import installed_gateway
from tests.services.process import ServiceMissingError
from tests.services.rabbitmq import RabbitMQ
from tests.services.webhook import WebhookListener

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

EVENT_EXCHANGE = "s3.events"

# Begins the reason of every test skipped here, and so tells these from others at the end.
MISSING = "service missing"

# Creating sixteen virtual hosts takes as long as creating one.
VHOSTS_AT_ONCE = 16

BINARY = pytest.StashKey[Path | ServiceMissingError]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the gateway before the first test, where any needs it: a build takes longer than a test may."""
    needed = any("gateway_binary" in getattr(item, "fixturenames", ()) for item in session.items)
    if needed and not session.config.option.collectonly:
        _gateway_binary(session.config)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count loudly the tests that could not run for want of a service."""
    reasons = [str(report.longrepr) for report in terminalreporter.getreports("skipped")]
    missed = sum(MISSING in reason for reason in reasons)
    if missed:
        terminalreporter.write_line(f"{missed} tests did not run: {MISSING}, reasons above", red=True, bold=True)


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """The broker of this run; leave it running."""
    yield from _broker(tmp_path_factory.mktemp("rabbitmq"))


@pytest.fixture(scope="session")
def fresh_vhosts(rabbitmq: RabbitMQ) -> Iterator[str]:
    """Names of virtual hosts in which nothing is declared; they end with the broker."""
    return _fresh_vhosts(rabbitmq)


@pytest.fixture
def amqp_url(rabbitmq: RabbitMQ, fresh_vhosts: Iterator[str]) -> str:
    """URL of a virtual host for one test."""
    return rabbitmq.url_of(next(fresh_vhosts))


@pytest.fixture
def private_rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """A broker for one test."""
    yield from _broker(tmp_path_factory.mktemp("private-rabbitmq"))


@pytest.fixture(scope="module")
def faulty_rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """A broker, with TLS too, for the tests of one file: they restart, kill and pause it, and leave it running."""
    yield from _broker(tmp_path_factory.mktemp("faulty-rabbitmq"), tls=True)


@pytest.fixture(scope="module")
def faulty_urls(faulty_rabbitmq: RabbitMQ) -> Iterator[str]:
    """URLs of virtual hosts of that broker in which nothing is declared."""
    return (faulty_rabbitmq.url_of(name) for name in _fresh_vhosts(faulty_rabbitmq))


@pytest.fixture(scope="session")
def gateway_binary(request: pytest.FixtureRequest) -> Path:
    """The gateway's program."""
    binary = _gateway_binary(request.config)
    if isinstance(binary, ServiceMissingError):
        pytest.skip(f"{MISSING}: {binary}")
    return binary


@pytest.fixture(scope="session")
def gateway(gateway_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """The gateway of this run, which sends no events; leave it running."""
    with Gateway(gateway_binary, tmp_path_factory.mktemp("gateway")) as gateway:
        yield gateway


@pytest.fixture
def bucket(gateway: Gateway) -> str:
    """Name of an empty bucket of `gateway` for one test."""
    name = f"test-{secrets.token_hex(6)}"
    gateway.create_bucket(name)
    return name


@pytest.fixture
async def event_gateway(
    gateway_binary: Path, amqp_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Gateway]:
    """A gateway for one test that sends its events to exchange `s3.events` of `amqp_url`, to which nothing is bound."""
    async with await aio_pika.connect(amqp_url) as connection:
        channel = await connection.channel()
        await channel.declare_exchange(EVENT_EXCHANGE, aio_pika.ExchangeType.TOPIC, durable=True)
    directory = tmp_path_factory.mktemp("event-gateway")
    with Gateway(gateway_binary, directory, events=AmqpEvents(amqp_url, EVENT_EXCHANGE)) as gateway:
        yield gateway


@pytest.fixture
def webhook_listener() -> Iterator[WebhookListener]:
    """What `webhook_gateway` posts to."""
    with WebhookListener() as listener:
        yield listener


@pytest.fixture
def webhook_gateway(
    gateway_binary: Path, webhook_listener: WebhookListener, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """A gateway for one test that posts its events to `webhook_listener`."""
    directory = tmp_path_factory.mktemp("webhook-gateway")
    with Gateway(gateway_binary, directory, events=WebhookEvents(webhook_listener.url)) as gateway:
        yield gateway


def _fresh_vhosts(broker: RabbitMQ) -> Iterator[str]:
    while True:
        batch = [f"test-{secrets.token_hex(6)}" for _ in range(VHOSTS_AT_ONCE)]
        broker.add_vhosts(batch)
        yield from batch


def _broker(directory: Path, *, tls: bool = False) -> Iterator[RabbitMQ]:
    try:
        broker = RabbitMQ(directory, tls=tls)
    except ServiceMissingError as error:
        pytest.skip(f"{MISSING}: {error}")
    with broker:
        yield broker


def _gateway_binary(config: pytest.Config) -> Path | ServiceMissingError:
    """The program or why there is none, found out once a run."""
    if BINARY not in config.stash:
        try:
            config.stash[BINARY] = installed_gateway()
        except ServiceMissingError as error:
            config.stash[BINARY] = error
    return config.stash[BINARY]
