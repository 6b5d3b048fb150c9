"""Asking, every few seconds, what an open socket does not tell: do we still consume, and does the broker still take?

A question that goes to the broker and back on the channel that consumes finds a peer that is gone without a word sooner
than heartbeats do, which need three missed ones.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog

from consumer.ports import LostError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from consumer.intake import BrokerSource
    from consumer.outlet import BrokerSink
    from consumer.ports import Status

_log = structlog.get_logger(__name__)

EVERY_S = 2.0
ANSWER_S = 4.0


@asynccontextmanager
async def watching(source: BrokerSource, sink: BrokerSink, status: Status) -> AsyncIterator[None]:
    """Watches a session as long as the context lasts; ends the source when the session is over.

    Args:
        source: what consumes.
        sink: what publishes, on a connection of its own.
        status: where it is said that the broker is blocked.
    """
    task = asyncio.create_task(_watch(source, sink, status))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        status.blocked = None


async def _watch(source: BrokerSource, sink: BrokerSink, status: Status) -> None:
    try:
        while True:
            await asyncio.sleep(EVERY_S)
            await _look(source, sink, status)
    except LostError as error:
        source.end(str(error))


async def _look(source: BrokerSource, sink: BrokerSink, status: Status) -> None:
    await source.check(timeout_s=ANSWER_S)
    _say(status, await sink.blocked())
    if status.blocked is None:
        await sink.check(timeout_s=ANSWER_S)


def _say(status: Status, reason: str | None) -> None:
    if (reason is None) != (status.blocked is None):
        _log.warning("blocked", blocked=reason is not None, reason=reason or status.blocked)
    status.blocked = reason
