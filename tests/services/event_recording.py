"""The events of a gateway for every action, as it publishes them; what differs from run to run replaced.

`python -m tests.services.event_recording` writes the golden file anew, to be looked at before it is committed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import aio_pika
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session

from tests.services.event_actions import ACTIONS, BUCKET, Client
from tests.services.gateway import REGION, AmqpEvents, Gateway
from tests.services.gateway_binary import installed_gateway
from tests.services.rabbitmq import RabbitMQ

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

GOLDEN = Path(__file__).parents[1] / "golden" / "versitygw_events.ndjson"

EXCHANGE = "s3.events"

# What stands in the golden file for the principal and the times of a run.
PRINCIPAL = "AKRECORDED"
TIME = "2026-11-30T21:30:00Z"


@dataclass(frozen=True, slots=True)
class Sent:
    """One event as it was published.

    Attributes:
        body: The text, with principal, time and sequencer as they were.
        properties: Of the message, those that do not differ from run to run.
    """

    body: str
    properties: dict[str, object]

    @property
    def number(self) -> int:
        """The sequencer: a count from the start of the gateway, in hexadecimal; 0 for its greeting, which has none."""
        records = json.loads(self.body).get("Records")
        return int(records[0]["s3"]["object"]["sequencer"], 16) if records else 0

    def comparable(self, number: int, access_key: str) -> str:
        """The body with principal, time and sequencer replaced, and nothing else touched."""
        document = json.loads(self.body)
        if "Records" not in document:
            return self.body.replace(json.dumps(document["Time"]), json.dumps(TIME))
        (record,) = document["Records"]
        sequencer = record["s3"]["object"]["sequencer"]
        return (
            self.body.replace(f'"eventTime":"{record["eventTime"]}"', f'"eventTime":"{TIME}"')
            .replace(f'"sequencer":"{sequencer}"', f'"sequencer":"{number:X}"')
            .replace(f'"PrincipalId":"{access_key}"', f'"PrincipalId":"{PRINCIPAL}"')
        )


class Listener:
    """Everything that arrives at an exchange from now on."""

    def __init__(self) -> None:
        self._arrived: asyncio.Queue[Sent] = asyncio.Queue()

    async def listen(self, channel: AbstractChannel) -> None:
        """Bind a queue of our own and begin to read it."""
        exchange = await channel.declare_exchange(EXCHANGE, aio_pika.ExchangeType.TOPIC, durable=True)
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(exchange, "#")
        await queue.consume(self._receive, no_ack=True)

    async def take(self, count: int) -> list[Sent]:
        """So many events, in the order in which the gateway numbered them.

        They arrive in another order: the gateway sends each by itself.
        """
        return sorted([await self._arrived.get() for _ in range(count)], key=lambda sent: sent.number)

    async def _receive(self, message: AbstractIncomingMessage) -> None:
        properties: dict[str, object] = {
            "content_type": message.content_type,
            "content_encoding": message.content_encoding,
            "delivery_mode": message.delivery_mode,
            "headers": message.headers,
            "routing_key": message.routing_key,
            "type": message.type,
            "app_id": message.app_id,
            "has_message_id": message.message_id is not None,
            "has_timestamp": message.timestamp is not None,
        }
        self._arrived.put_nowait(Sent(message.body.decode(), properties))


async def record(gateway: Gateway, amqp_url: str) -> list[dict[str, object]]:
    """Do every action and collect its events.

    Args:
        gateway: A gateway without buckets that sends to `EXCHANGE`; it is restarted, so that its greeting is seen.
        amqp_url: The broker it sends to.

    Returns:
        A row an event, with the name of its action; in the order of the actions and of the gateway's numbers. An event
        that an action should not cause stands where one of the next action is expected.
    """
    listener = Listener()
    async with await aio_pika.connect(amqp_url) as connection:
        await listener.listen(await connection.channel())
        await asyncio.to_thread(gateway.restart)
        sent = [("start", event) for event in await listener.take(1)]
        session = get_session()
        async with session.create_client(
            "s3",
            endpoint_url=gateway.endpoint,
            region_name=REGION,
            aws_access_key_id=gateway.access_key,
            aws_secret_access_key=gateway.secret_key,
            config=AioConfig(signature_version="s3v4"),
        ) as boto:
            await boto.create_bucket(Bucket=BUCKET)
            client = Client(boto, gateway.store(BUCKET))
            for name, (action, count) in ACTIONS.items():
                await action(client)
                sent += [(name, event) for event in await listener.take(count)]
    return [
        {"action": name, "body": event.comparable(number, gateway.access_key), "properties": event.properties}
        for number, (name, event) in enumerate(sent)
    ]


def golden_rows() -> list[dict[str, object]]:
    """The rows recorded from the pinned release."""
    return [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]


async def main() -> None:
    """Record the installed gateway."""
    with tempfile.TemporaryDirectory() as place, RabbitMQ(Path(place) / "rabbitmq") as broker:
        async with await aio_pika.connect(broker.url) as connection:
            await Listener().listen(await connection.channel())
        events = AmqpEvents(broker.url, EXCHANGE)
        with Gateway(installed_gateway(), Path(place) / "gateway", events=events) as gateway:
            rows = await record(gateway, broker.url)
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    GOLDEN.write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.stdout.write(f"{len(rows)} events written to {GOLDEN}\n")


if __name__ == "__main__":
    asyncio.run(main())
