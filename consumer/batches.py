"""Collecting things that travel together: so many of one kind, or what has come in so much time.

Knows nothing of what it collects. A batch that is closed is handed on at once, in a task, so that several are under
way.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class Batches(Generic[T]):
    """The open batches, one for each name.

    Args:
        most: things in a batch at most.
        wait_s: seconds that a thing waits for others at most.
        send: takes a closed batch and its name.
        tasks: where `send` runs.
    """

    def __init__(
        self,
        *,
        most: int,
        wait_s: float,
        send: Callable[[str, list[T]], Coroutine[object, object, None]],
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._most = most
        self._wait_s = wait_s
        self._send = send
        self._tasks = tasks
        self._open: dict[str, list[T]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def add(self, name: str, thing: T) -> None:
        """Puts a thing into the batch of that name."""
        batch = self._open.get(name)
        if batch is None:
            batch = self._open[name] = []
            self._timers[name] = asyncio.get_running_loop().call_later(self._wait_s, self._close, name)
        batch.append(thing)
        if len(batch) >= self._most:
            self._close(name)

    def close(self) -> None:
        """Closes every open batch: nothing more comes that could fill it."""
        for name in tuple(self._open):
            self._close(name)

    def discard(self) -> None:
        """Forgets what was not handed on."""
        for timer in self._timers.values():
            timer.cancel()
        self._open.clear()
        self._timers.clear()

    def _close(self, name: str) -> None:
        self._timers.pop(name).cancel()
        self._tasks.create_task(self._send(name, self._open.pop(name)))
