"""Between the gateway and the broker: what is posted is kept, and published until the broker has confirmed it.

The gateway's webhook asks once and never again, so whoever takes its posts must not die. In the soak the adversary may
kill everything else, and no event is lost.
"""

from __future__ import annotations

import asyncio
import queue
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiormq
from aiormq.exceptions import AMQPError

from consumer.events import ObjectEvent, parse_message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.services.webhook import WebhookListener

_POLL_S = 0.02
_PAUSE_S = 0.5
_CONFIRM_S = 20.0


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

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Forwards as long as the context lasts."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_CONFIRM_S):
                    connection = await aiormq.connect(self._url)
                try:
                    await self._forward(await connection.channel())
                finally:
                    await connection.close()
            except (AMQPError, OSError, TimeoutError, RuntimeError, asyncio.InvalidStateError):
                self._collect()
                await asyncio.sleep(_PAUSE_S)

    async def _forward(self, channel: aiormq.abc.AbstractChannel) -> None:
        while True:
            self._collect()
            while self.waiting:
                async with asyncio.timeout(_CONFIRM_S):
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
