"""Something at the broker that goes on whenever the broker is there."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiormq
from aiormq.exceptions import AMQPError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

CONNECT_S = 20.0

_PAUSE_S = 0.5


@asynccontextmanager
async def connected(url: str, use: Callable[[aiormq.abc.AbstractChannel], Awaitable[None]]) -> AsyncIterator[None]:
    """Uses a channel, and a new one whenever that was lost, as long as the context lasts."""
    task = asyncio.create_task(_again_and_again(url, use))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _again_and_again(url: str, use: Callable[[aiormq.abc.AbstractChannel], Awaitable[None]]) -> None:
    while True:
        try:
            async with asyncio.timeout(CONNECT_S):
                connection = await aiormq.connect(url)
            try:
                await use(await connection.channel())
            finally:
                await connection.close()
        except (AMQPError, OSError, TimeoutError, RuntimeError, asyncio.InvalidStateError):
            await asyncio.sleep(_PAUSE_S)
