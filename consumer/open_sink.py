"""A sink for whoever outlives sessions: it publishes in the one that is open, and waits where none is."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from consumer.ports import Sink
    from consumer.records import Message


class OpenSink:
    """Publishes in the session that is open."""

    def __init__(self) -> None:
        self._sink: Sink | None = None
        self._opened = asyncio.Event()

    async def publish(self, message: Message) -> None:
        """Publishes a message, as soon as a session is open.

        Raises:
            LostError: that session is over; the message may have been published.
            UnavailableError: it was not taken, trying again can help.
        """
        while self._sink is None:
            await self._opened.wait()
        await self._sink.publish(message)

    @contextmanager
    def within(self, sink: Sink) -> Iterator[None]:
        """Publishes here as long as the context lasts."""
        self._sink = sink
        self._opened.set()
        try:
            yield
        finally:
            self._sink = None
            self._opened.clear()
