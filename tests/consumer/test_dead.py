"""`blobmap-consumer dead` on the real things: a broker, and the file of embedded mode."""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pamqp import commands
from pydantic import SecretStr

from blobmap import ManifestStore
from blobmap.errors import RefusedError, UnavailableError, UsageError
from blobmap.storage import StorageOptions, open_storage
from consumer.address import parse_address
from consumer.broker import connect
from consumer.broker_letters import open_broker_letters
from consumer.dead import add_arguments, run_dead
from consumer.declare import declare
from consumer.embedded import EmbeddedQueue
from consumer.embedded_letters import open_embedded_letters
from consumer.records import Message, dead_letter
from consumer.settings import Amqp, Bucket, Embedded, Settings, Source
from consumer.topology import Names, topology
from tests.support.amqp import Bench, bench
from tests.support.consumer_process import consumer
from tests.support.manifests import manifest
from tests.support.notifications import created
from tests.support.port_contracts import take
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

SEEN = datetime(2026, 11, 30, 12, tzinfo=UTC)


def letter(body: bytes, *, code: str = "bad-record", exchange: str = "s3.events") -> Message:
    return dead_letter(
        "blobmap.dead",
        body,
        code=code,
        reason=f"a reason for {code}",
        first_seen=SEEN,
        deliveries=2,
        exchange=exchange,
        routing_key="some.key",
    )


LETTERS = (letter(b"one"), letter(b"two", code="wrapped"), letter(b"three"), letter(b"\xff four", code="unreadable"))


def settings(**where: Any) -> Settings:
    return Settings(source=Source(dialect="versitygw"), bucket=(Bucket(name="b", manifests="/m"),), **where)


@dataclass
class Command:
    """`dead` with a configuration, and what it said."""

    settings: Settings
    capsys: pytest.CaptureFixture[str]

    async def __call__(self, *words: str) -> int:
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        return await run_dead(self.settings, parser.parse_args(words))

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.capsys.readouterr().out.splitlines()]


# --- in the file of embedded mode


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    queue = await EmbeddedQueue.open(tmp_path / "queue.sqlite", prefetch=10)
    for message in (*LETTERS, Message("blobmap.flags", "s", b"no letter")):
        await queue.publish(message)
    await queue.close()
    return tmp_path / "queue.sqlite"


@pytest.fixture
def dead(file: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(settings(embedded=Embedded(path=file)), capsys)


async def left(file: Path) -> list[bytes]:
    queue = await EmbeddedQueue.open(file, prefetch=10)
    found = [message.body for message in await queue.messages("blobmap.dead")]
    assert len(await queue.messages("blobmap.flags")) == 1
    await queue.close()
    return found


async def test_letters_are_shown_and_stay(dead: Command, file: Path) -> None:
    for _ in range(2):
        assert await dead("show") == 0
        shown = dead.capsys.readouterr()
        head = "delivered 2 times  from 's3.events' 'some.key'  a reason for"
        assert shown.out.splitlines()[:4] == [
            f"shown: 2026-11-30T12:00:00Z  bad-record  {head} bad-record",
            "    one",
            f"shown: 2026-11-30T12:00:00Z  wrapped  {head} wrapped",
            "    two",
        ]
        assert shown.err == "blobmap-consumer: 4 of 4 dead letters shown\n"
    assert len(await left(file)) == 4


async def test_letters_as_json(dead: Command) -> None:
    assert await dead("show", "--json") == 0
    lines = dead.lines()
    assert lines[0] == {
        "done": "shown",
        "code": "bad-record",
        "reason": "a reason for bad-record",
        "first_seen": "2026-11-30T12:00:00Z",
        "deliveries": 2,
        "exchange": "s3.events",
        "routing_key": "some.key",
        "body": "one",
    }
    assert lines[3]["body_base64"] == "/yBmb3Vy"


@pytest.mark.parametrize(
    ("words", "bodies"),
    [
        (["--code", "bad-record"], ["one", "three"]),
        (["--code", "bad-record", "--limit", "1"], ["one"]),
        (["--code", "bad-record", "--code", "wrapped"], ["one", "two", "three"]),
        (["--limit", "2"], ["one", "two"]),
        (["--code", "absent"], []),
    ],
)
async def test_some_of_them(dead: Command, file: Path, words: list[str], bodies: list[str]) -> None:
    assert await dead("drop", "--json", *words) == 0
    assert [(line["done"], line["body"]) for line in dead.lines()] == [("dropped", body) for body in bodies]
    assert len(await left(file)) == 4 - len(bodies)


@pytest.mark.parametrize("words", [["--limit", "0"], ["--limit", "x"], ["--limit", "-1"]])
def test_a_limit_is_a_number(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["show", *words])
    assert "is no number greater than 0" in capsys.readouterr().err


async def test_requeued_letters_are_events_again_with_their_first_time(dead: Command, file: Path) -> None:
    assert await dead("requeue") == 0
    assert dead.capsys.readouterr().err == "blobmap-consumer: 4 of 4 dead letters requeued\n"
    assert await left(file) == []
    queue = await EmbeddedQueue.open(file, prefetch=10)
    taken = await take(queue, 4)
    await queue.close()
    assert [delivery.body for delivery in taken] == [message.body for message in LETTERS]
    assert {delivery.first_seen for delivery in taken} == {SEEN}


async def test_a_daemon_that_has_the_file_is_given_requeued_letters(dead: Command, file: Path) -> None:
    queue = await EmbeddedQueue.open(file, prefetch=10)
    assert await dead("requeue", "--limit", "1") == 0
    assert [delivery.body for delivery in await take(queue, 1)] == [b"one"]
    await queue.close()


@pytest.mark.parametrize(
    ("words", "over"),
    [
        (["show"], []),
        (["drop", "--limit", "2"], []),
        (["drop", "--code", "bad-record"], ["bad-record"]),
        (["requeue"], ["bad-record", "unreadable", "wrapped"]),
    ],
)
async def test_the_alert_of_a_kind_is_over_with_its_last_letter(
    dead: Command, file: Path, words: list[str], over: list[str]
) -> None:
    assert await dead(*words) == 0
    queue = await EmbeddedQueue.open(file, prefetch=10)
    alerts = [json.loads(message.body) for message in await queue.messages("blobmap.alerts")]
    await queue.close()
    assert [(alert["key"], alert["resolved"]) for alert in alerts] == [
        (f"dead-letter:blobmap.dead/{code}", True) for code in over
    ]


async def test_two_commands_at_once_requeue_each_letter_once(file: Path, dead: Command) -> None:
    with open_embedded_letters(file, "blobmap.dead") as one, open_embedded_letters(file, "blobmap.dead") as other:
        held = [[letter async for letter in letters.held(9)] for letters in (one, other)]
        for letter in (*held[0], *held[1]):
            await letter.requeue()
    assert await dead("show") == 0
    queue = await EmbeddedQueue.open(file, prefetch=10)
    assert len(await take(queue, 4)) == 4
    await queue.close()


async def test_a_file_that_is_not_there_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="there is no such file"):
        await Command(settings(embedded=Embedded(path=tmp_path / "absent.sqlite")), capsys)("show")
    assert names(tmp_path) == []


def names(directory: Path) -> list[str]:
    return [file.name for file in directory.iterdir()]


# --- at a broker


@pytest.fixture
async def broker(amqp_url: str) -> str:
    async with connect(parse_address(amqp_url)) as connection:
        await declare(connection, topology(Names()))
    return amqp_url


async def bury(at: Bench, *letters: Message) -> None:
    for message in letters:
        await at.channel.basic_publish(
            message.body, routing_key=message.queue, properties=_properties(message), mandatory=True
        )


def _properties(message: Message) -> Any:
    return commands.Basic.Properties(headers=dict(message.headers))


async def bodies(at: Bench, queue: str, count: int) -> list[bytes]:
    """Takes so many messages out of a queue."""
    found: list[bytes] = []

    async def enough() -> bool:
        found.extend(got.body for got in await at.drain(queue))
        return len(found) >= count

    await eventually(enough, what=f"{count} messages in {queue}")
    return found


@pytest.mark.services
async def test_letters_at_a_broker_are_shown_requeued_and_dropped(
    broker: str, capsys: pytest.CaptureFixture[str]
) -> None:
    dead = Command(settings(amqp=Amqp(url=SecretStr(broker))), capsys)
    async with bench(broker) as at:
        await bury(at, *LETTERS)
        assert await dead("show", "--json") == 0
        assert [line["code"] for line in dead.lines()] == ["bad-record", "wrapped", "bad-record", "unreadable"]

        assert await dead("requeue", "--code", "bad-record", "--json") == 0
        assert [line["body"] for line in dead.lines()] == ["one", "three"]
        message = await at.channel.basic_get("blobmap.events")
        assert message.delivery_tag is not None
        assert (message.body, message.delivery.exchange, message.delivery.routing_key) == (  # type: ignore[union-attr]  # there is one
            b"one",
            "s3.events",
            "some.key",
        )
        assert (message.header.properties.timestamp, message.header.properties.delivery_mode) == (SEEN, 2)

        assert await dead("drop", "--limit", "1") == 0
        shown = capsys.readouterr()
        assert shown.out.splitlines()[1] == "    two"
        assert shown.err == "blobmap-consumer: 1 of 2 dead letters dropped\n"
        assert await bodies(at, "blobmap.dead", 1) == [b"\xff four"]
        (alert,) = await at.drain("blobmap.alerts")
        told = json.loads(alert.body)
        assert (told["key"], told["resolved"]) == ("dead-letter:blobmap.dead/bad-record", True)
        assert alert.schema == "blobmap.alerts.v1"


@pytest.mark.services
async def test_an_alert_that_nobody_takes_does_not_fail_the_command(
    broker: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with bench(broker) as at:
        await bury(at, letter(b"x"))
        await at.channel.queue_delete("blobmap.alerts")
        assert await Command(settings(amqp=Amqp(url=SecretStr(broker))), capsys)("drop") == 0
        assert await at.ready("blobmap.dead") == 0
    key = "dead-letter:blobmap.dead/bad-record"
    assert f"alert '{key}' is not resolved: queue 'blobmap.alerts' does not take the message" in capsys.readouterr().err


@pytest.mark.services
async def test_what_was_shown_is_back_when_the_command_ends(broker: str, capsys: pytest.CaptureFixture[str]) -> None:
    dead = Command(settings(amqp=Amqp(url=SecretStr(broker))), capsys)
    async with bench(broker) as at:
        await asyncio.gather(*(bury(at, letter(b"%d" % number)) for number in range(500)))
        for _ in range(3):
            assert await dead("show") == 0
            assert await at.ready("blobmap.dead") == 500


@pytest.mark.services
async def test_letters_that_somebody_else_takes_are_not_waited_for(
    broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consumer.broker_letters._GIVE_BACK_S", 0.1)
    async with bench(broker) as at:
        await bury(at, letter(b"x"))
        async with asyncio.timeout(20), open_broker_letters(parse_address(broker), "blobmap.dead") as letters:
            assert [held.letter.body async for held in letters.held(9)] == [b"x"]
            await at.channel.basic_consume("blobmap.dead", _take, no_ack=True)
        assert await at.ready("blobmap.dead") == 0


async def _take(_: object) -> None:
    """A consumer that takes whatever comes."""


@pytest.mark.services
async def test_what_the_broker_gave_up_goes_back_where_it_was(broker: str, capsys: pytest.CaptureFixture[str]) -> None:
    dead = Command(settings(amqp=Amqp(url=SecretStr(broker))), capsys)
    async with bench(broker) as at:
        await at.publish([b"x"], exchange="s3.events", routing_key="k")
        message = await at.channel.basic_get("blobmap.events")
        assert message.delivery_tag is not None
        await at.channel.basic_reject(message.delivery_tag, requeue=False)

        async def given_up() -> int:
            return await at.ready("blobmap.dead")

        await eventually(given_up, what="the broker has put it there")
        assert await dead("requeue", "--json") == 0
        (line,) = dead.lines()
        assert (line["code"], line["exchange"], line["routing_key"]) == ("rejected", "s3.events", "k")
        assert await bodies(at, "blobmap.events", 1) == [b"x"]


@pytest.mark.services
async def test_letters_without_a_way_back_stay_and_the_others_go(
    broker: str, capsys: pytest.CaptureFixture[str]
) -> None:
    dead = Command(settings(amqp=Amqp(url=SecretStr(broker))), capsys)
    async with bench(broker) as at:
        await at.channel.exchange_declare("unbound", exchange_type="topic", durable=True)
        lost = [
            letter(b"gone", exchange="gone"),
            letter(b"unbound", exchange="unbound"),
            Message("blobmap.dead", None, b"?"),
        ]
        direct = letter(b"direct", exchange="")
        await bury(at, *lost, letter(b"good"))
        await at.channel.basic_publish(
            direct.body,
            routing_key="blobmap.dead",
            properties=_properties(Message("", None, b"", {**direct.headers, "routing_key": "blobmap.events"})),
        )
        assert await dead("requeue") == 1
        said = capsys.readouterr().err
        assert "exchange 'gone' with routing key 'some.key': there is no such exchange" in said
        assert "exchange 'unbound' with routing key 'some.key': no queue takes it" in said
        assert "it is not known where it was published" in said
        assert "2 of 5 dead letters requeued" in said
        assert set(await bodies(at, "blobmap.events", 2)) == {b"good", b"direct"}
        assert set(await bodies(at, "blobmap.dead", 3)) == {b"gone", b"unbound", b"?"}


@pytest.mark.services
async def test_interrupted_between_publishing_and_taking_away_there_are_two(broker: str) -> None:
    async with bench(broker) as at:
        await bury(at, letter(b"x"))
        async with open_broker_letters(parse_address(broker), "blobmap.dead") as letters:
            async for held in letters.held(1):
                await letters.publish(held.letter)
        assert await bodies(at, "blobmap.events", 1) == [b"x"]
        assert await bodies(at, "blobmap.dead", 1) == [b"x"]


@pytest.mark.services
async def test_without_a_queue_or_a_broker(amqp_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnavailableError, match=r"no queue 'blobmap\.dead'"):
        await Command(settings(amqp=Amqp(url=SecretStr(amqp_url))), capsys)("show")
    with pytest.raises(UnavailableError, match="Connect call failed"):
        await Command(settings(amqp=Amqp(host="127.0.0.1", port=1)), capsys)("show")
    wrong = Amqp(port=parse_address(amqp_url).port, password=SecretStr("wrong"))
    with pytest.raises(RefusedError, match="refuses user or password"):
        await Command(settings(amqp=wrong), capsys)("show")


@pytest.mark.services
async def test_after_a_fix_what_was_refused_is_handled(broker: str, tmp_path: Path) -> None:
    """The configuration names the wrong gateway; the key is read as no other than it is once that is mended."""
    store = ManifestStore(open_storage(str(tmp_path / "manifests"), StorageOptions(), create=True))
    store.write(manifest("100%.zarr"), etag=None)
    config = tmp_path / "consumer.toml"

    def write(dialect: str) -> None:
        config.write_text(
            f'[amqp]\nurl = "{broker}"\n[source]\ndialect = "{dialect}"\n'
            f'[[bucket]]\nname = "b"\nmanifests = "{tmp_path / "manifests"}"\n'
        )

    async with bench(broker) as at:
        await at.publish([created("b", "100%.zarr/t/c/0")], exchange="s3.events", routing_key="k")
        write("minio")
        async with consumer(tmp_path / "wrong", "run", "--config", str(config)) as process:

            async def refused() -> int:
                return await at.ready("blobmap.dead")

            await eventually(refused, what="it is a dead letter")
            assert await process.stop() == 0
        write("versitygw")
        async with consumer(tmp_path / "dead", "--config", str(config), "dead", "requeue", "--json") as process:
            assert await process.end() == 0
        (line,) = [json.loads(text) for text in process.out.splitlines()]
        assert (line["done"], line["code"]) == ("requeued", "bad-record")
        assert "is source.dialect the sender's?" in line["reason"]
        async with consumer(tmp_path / "right", "run", "--config", str(config)) as process:
            (told,) = await bodies(at, "blobmap.objects", 1)
            assert [record["key"] for record in json.loads(told)["records"]] == ["100%.zarr/t/c/0"]
            assert await process.stop() == 0
        assert await at.ready("blobmap.dead") == 0
