"""Between the gateway and the broker: what is posted is kept, and published until the broker has confirmed it.

The gateway's webhook asks once and never again, so whoever takes its posts must not die. In the soak the adversary may
kill everything else, and no event is lost.
"""

from __future__ import annotations

import asyncio
import queue
from typing import TYPE_CHECKING

import aiormq

from consumer.events import ObjectEvent, parse_message
from tests.soak.connected import CONNECT_S, connected

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from tests.services.webhook import WebhookListener

_POLL_S = 0.02


class Forwarder:
    """Publishes what a listener takes.

    Args:
        listener: what the gateway posts to.
        url: the broker.
        exchange: where events are published.

    Attributes:
        seen: key and etag of every object that was said to be created.
        posted: bodies that came.
        waiting: bodies that are not confirmed yet.
    """

    def __init__(self, listener: WebhookListener, url: str, exchange: str) -> None:
        self.seen: set[tuple[str, str | None]] = set()
        self.posted = 0
        self.waiting: list[bytes] = []
        self._bodies = listener.bodies
        self._url = url
        self._exchange = exchange

    def running(self) -> AbstractAsyncContextManager[None]:
        """Forwards as long as the context lasts."""
        return connected(self._url, self._forward)

    async def _forward(self, channel: aiormq.abc.AbstractChannel) -> None:
        while True:
            self._collect()
            while self.waiting:
                async with asyncio.timeout(CONNECT_S):
                    await channel.basic_publish(
                        self.waiting[0],
                        exchange=self._exchange,
                        mandatory=True,
                        properties=aiormq.spec.Basic.Properties(delivery_mode=2),
                    )
                self.waiting.pop(0)
            await asyncio.sleep(_POLL_S)

    def _collect(self) -> None:
        while True:
            try:
                body = self._bodies.get_nowait()
            except queue.Empty:
                return
            self.posted += 1
            self.waiting.append(body)
            for parsed in parse_message(body, "versitygw"):
                if isinstance(parsed, ObjectEvent) and parsed.kind == "created":
                    self.seen.add((parsed.key, parsed.etag))
