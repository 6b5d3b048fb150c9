from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import aio_pika
import obstore
import pytest

from consumer.events import ObjectEvent, parse_message
from tests.services.event_recording import Listener, golden_rows, record

if TYPE_CHECKING:
    from tests.services.gateway import Gateway
    from tests.services.webhook import WebhookListener

pytestmark = pytest.mark.services

# Enough that, without a cross-check, some event names the object of another request.
PUTS = 1_500
PUTS_AT_ONCE = 64


async def test_the_gateway_still_sends_what_was_recorded(event_gateway: Gateway, amqp_url: str) -> None:
    rows = await record(event_gateway, amqp_url)

    recorded = golden_rows()
    assert [row["action"] for row in rows] == [row["action"] for row in recorded]
    for row, expected in zip(rows, recorded, strict=True):
        assert row == expected


def test_posted_events_differ_from_published_ones_in_the_configuration_only(
    webhook_gateway: Gateway, webhook_listener: WebhookListener
) -> None:
    webhook_gateway.create_bucket("bucket")
    obstore.put(webhook_gateway.store("bucket"), "a b", b"hello")
    _greeting, posted = (json.loads(webhook_listener.bodies.get(timeout=60)) for _ in range(2))

    (recorded,) = (json.loads(str(row["body"])) for row in golden_rows() if row["action"] == "put")

    assert posted["Records"][0]["s3"].pop("configurationId") == "webhook-global"
    assert recorded["Records"][0]["s3"].pop("configurationId") == "rabbitmq-global"
    assert without_run(posted) == without_run(recorded)


def without_run(document: dict[str, Any]) -> dict[str, Any]:
    """A document without what differs from run to run."""
    (record,) = document["Records"]
    del record["eventTime"], record["userIdentity"]["PrincipalId"], record["s3"]["bucket"]["ownerIdentity"]
    return document


async def test_no_object_is_lost_when_events_are_filled_with_the_names_of_others(
    event_gateway: Gateway, amqp_url: str
) -> None:
    buckets = ("bucket", "other-bucket")
    for bucket in buckets:
        event_gateway.create_bucket(bucket)
    stores = {bucket: event_gateway.store(bucket) for bucket in buckets}
    # Keys without a slash, and of several lengths, are those whose bytes the gateway reuses while it sends.
    put = [(buckets[i % 2], f"{i}" if i % 3 else f"deep/{'x' * (1 + i % 17)}/{i}") for i in range(PUTS)]
    gate = asyncio.Semaphore(PUTS_AT_ONCE)

    async def put_one(bucket: str, key: str) -> None:
        async with gate:
            await obstore.put_async(stores[bucket], key, b"")

    listener = Listener()
    async with await aio_pika.connect(amqp_url) as connection:
        await listener.listen(await connection.channel())
        await asyncio.gather(*(put_one(bucket, key) for bucket, key in put))
        sent = await listener.take(PUTS)

    events = [event for each in sent for event in parse_message(each.body.encode(), "versitygw")]
    assert all(isinstance(event, ObjectEvent) for event in events)
    assert sorted((event.bucket, event.key) for event in events if isinstance(event, ObjectEvent)) == sorted(put)
