"""Waiting for something to become true, for a bounded time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


async def eventually(probe: Callable[[], Awaitable[T]], *, what: str, within_s: float = 20.0) -> T:
    """The first true answer of a probe."""
    deadline = asyncio.get_running_loop().time() + within_s
    while True:
        answer = await probe()
        if answer:
            return answer
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"not within {within_s} s: {what}; last answer: {answer!r}")
        await asyncio.sleep(0.02)
