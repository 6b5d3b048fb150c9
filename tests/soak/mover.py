"""A tape mover that only takes notes: what it was told, and by whom; and a receiver of alerts of the same kind."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.soak.connected import connected

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from aiormq.abc import AbstractChannel, DeliveredMessage

Claim = tuple[str, str | None, str, str]


class Mover:
    """Takes everything out of the queues of objects and of alerts, and remembers the different ones.

    Args:
        url: the broker.
        queue: queue of object records.
        alerts: queue of alerts.

    Attributes:
        told: key, etag, scope and blob id of every object of which it heard, and from which sources.
        records: how many records came, by source.
        alerts: alerts by key, in the order in which they came.
        last_of: when the last record of each scope came, by the loop's clock.
    """

    def __init__(self, url: str, queue: str, alerts: str) -> None:
        self.told: dict[Claim, set[str]] = {}
        self.records: Counter[str] = Counter()
        self.alerts: dict[str, list[dict[str, Any]]] = {}
        self.last_of: dict[str, float] = {}
        self._url = url
        self._queue = queue
        self._alert_queue = alerts

    def running(self) -> AbstractAsyncContextManager[None]:
        """Takes notes as long as the context lasts."""
        return connected(self._url, self._take)

    async def _take(self, channel: AbstractChannel) -> None:
        await channel.basic_qos(prefetch_count=50)
        await channel.basic_consume(self._queue, self._note_records)
        await channel.basic_consume(self._alert_queue, self._note_alert)
        await asyncio.wait((channel.connection.closing, channel.closing), return_when=asyncio.FIRST_COMPLETED)
        raise ConnectionError("lost")

    async def _note_records(self, message: DeliveredMessage) -> None:
        now = asyncio.get_running_loop().time()
        for record in json.loads(message.body)["records"]:
            assert record["event"] == "created", record
            self.records[record["source"]] += 1
            self.last_of[record["scope"]] = now
            claim = (record["key"], record["etag"], record["scope"], record["blob_id"])
            self.told.setdefault(claim, set()).add(record["source"])
        await message.channel.basic_ack(message.delivery_tag or 0, wait=False)

    async def _note_alert(self, message: DeliveredMessage) -> None:
        alert = json.loads(message.body)
        self.alerts.setdefault(alert["key"], []).append(alert)
        await message.channel.basic_ack(message.delivery_tag or 0, wait=False)
