"""Waiting for something to become true, for a bounded time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

# What takes a second here takes many on a machine that does other things, too; no test gets slower by it.
LONG_S = 60.0


async def eventually(probe: Callable[[], Awaitable[T]], *, what: str, within_s: float = LONG_S) -> T:
    """The first true answer of a probe."""
    deadline = asyncio.get_running_loop().time() + within_s
    while True:
        answer = await probe()
        if answer:
            return answer
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"not within {within_s} s: {what}; last answer: {answer!r}")
        await asyncio.sleep(0.02)
