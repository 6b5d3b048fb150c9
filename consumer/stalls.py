"""How long the event loop is kept from running: heartbeats, readiness and every delivery wait as long.

Whatever holds the interpreter does that, in whichever thread: a document parsed in one call, a large structure freed.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from consumer.ports import Status

_log = structlog.get_logger(__name__)

_EVERY_S = 0.05

# What a loop that serves a broker may be kept from running at most.
LONGEST_S = 0.2


@asynccontextmanager
async def telling_stalls(status: Status) -> AsyncIterator[None]:
    """Watches the event loop as long as the context lasts, and logs each stall longer than `LONGEST_S`.

    Args:
        status: where the longest one is kept.
    """
    task = asyncio.create_task(_watch(status))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _watch(status: Status) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + _EVERY_S
        await asyncio.sleep(_EVERY_S)
        late_s = loop.time() - due_s
        status.longest_stall_s = max(status.longest_stall_s, late_s)
        if late_s > LONGEST_S:
            _log.warning("event loop stalled", seconds=round(late_s, 3))
