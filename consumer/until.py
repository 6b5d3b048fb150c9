"""Doing something until we are told to stop, and stopping in time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import structlog

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

_log = structlog.get_logger(__name__)


async def until(stop: asyncio.Event, work: Coroutine[object, object, T]) -> T | None:
    """Awaits work, or gives it up when told to stop.

    Args:
        stop: set to give up.
        work: what is awaited; cancelled when it is given up.

    Returns:
        What the work returned, None where it was given up.
    """
    task = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for one in (task, stopping):
            one.cancel()
        await asyncio.gather(task, stopping, return_exceptions=True)


async def in_time(run: Coroutine[object, object, None], stop: asyncio.Event, grace_s: float) -> None:
    """Awaits a run that ends by itself some time after `stop`, and ends it if it does not in time.

    Args:
        run: what is awaited.
        stop: set to stop.
        grace_s: seconds that the run may go on after that.
    """
    task = asyncio.ensure_future(run)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
        _, late = await asyncio.wait((task,), timeout=grace_s if stop.is_set() else None)
        if late:
            _log.warning("stopped before everything was confirmed", waited_s=grace_s)
            return
        task.result()
    finally:
        for one in (task, stopping):
            one.cancel()
        await asyncio.gather(task, stopping, return_exceptions=True)


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Waits for an event, and says whether it came."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
