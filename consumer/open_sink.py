"""A sink for whoever outlives sessions: it publishes in one that is open, and waits where none is."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from consumer.ports import Announcer, Sink
    from consumer.records import Message


class OpenSink:
    """Publishes, and announces, in the session that was opened last of those that are open."""

    def __init__(self) -> None:
        self._open: list[tuple[Sink, Announcer]] = []
        self._opened = asyncio.Event()

    async def publish(self, message: Message) -> None:
        """Publishes a message, as soon as a session is open.

        Raises:
            LostError: that session is over; the message may have been published.
            UnavailableError: it was not taken, trying again can help.
        """
        while not self._open:
            await self._opened.wait()
        await self._open[-1][0].publish(message)

    async def announce(self, bucket: str, scope: str, epoch: int) -> None:
        """Announces a manifest where a session is open; see `ports.Announcer`."""
        if self._open:
            await self._open[-1][1].announce(bucket, scope, epoch)

    @contextmanager
    def within(self, sink: Sink, announcer: Announcer) -> Iterator[None]:
        """Publishes and announces here as long as the context lasts."""
        session = (sink, announcer)
        self._open.append(session)
        self._opened.set()
        try:
            yield
        finally:
            self._open.remove(session)
            if not self._open:
                self._opened.clear()
