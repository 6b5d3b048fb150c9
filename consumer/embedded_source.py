"""Messages out of the file of embedded mode, for whoever in this process works them off.

What lies where, and since when, is the file's business (`embedded`); here is what was given out of one queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Protocol

from consumer.until import set_within

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from consumer.ports import Delivery

# Another process may put something into the file too, and wakes nobody here.
_LOOK_S = 1.0


class Shelf(Protocol):
    """One queue in the file; a tag is the number of a message there, and of no order."""

    async def due(self, limit: int, given: Collection[int], stopped: asyncio.Event) -> tuple[list[Delivery], float]:
        """Messages whose time has come, at most so many and none of those given, and seconds until one more is due.

        As long as the file cannot be read it tries again, until `stopped` is set.
        """

    async def forget(self, numbers: Collection[int]) -> None:
        """Deletes messages, for good; as long as the file cannot be written, it tries again."""


class EmbeddedSource:
    """A `ports.Source` over one queue in the file.

    Args:
        shelf: the queue.
        prefetch: how many messages are given out at most before one is acknowledged.
    """

    def __init__(self, shelf: Shelf, *, prefetch: int) -> None:
        self._shelf = shelf
        self._prefetch = prefetch
        self._given: deque[tuple[int, int]] = deque()  # tag and number of what is given out and not acknowledged
        self._last = 0  # highest tag
        self._more = asyncio.Event()
        self._stopped = asyncio.Event()

    @property
    def prefetch(self) -> int:
        """How many messages are given out at most before one is acknowledged."""
        return self._prefetch

    async def take(self) -> Sequence[Delivery]:
        """Waits for messages whose time has come and gives them, in the order of their publication."""
        while not self._stopped.is_set():
            self._more.clear()
            room = self._prefetch - len(self._given)
            found: list[Delivery] = []
            next_s = _LOOK_S
            if room > 0:
                given = [number for _, number in self._given]
                found, next_s = await self._shelf.due(room, given, self._stopped)
            if found and not self._stopped.is_set():
                return [self._give(delivery) for delivery in found]
            await set_within(self._more, min(next_s, _LOOK_S))
        return []

    async def acknowledge(self, tag: int) -> None:
        """Forgets every message up to this tag."""
        numbers = [number for given, number in self._given if given <= tag]
        await self._shelf.forget(numbers)
        while self._given and self._given[0][0] <= tag:
            self._given.popleft()
        self._more.set()

    async def stop(self) -> None:
        """Gives out no more."""
        self._stopped.set()
        self._more.set()

    def wake(self) -> None:
        """Makes known that something was published."""
        self._more.set()

    def _give(self, delivery: Delivery) -> Delivery:
        self._last += 1
        self._given.append((self._last, delivery.tag))
        return delivery._replace(tag=self._last)
