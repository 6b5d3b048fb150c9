"""Trying again with growing delay: how long to wait, and when to give up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import structlog

from blobmap.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

T = TypeVar("T")

_log = structlog.get_logger(__name__)

# A broker that comes back is noticed within the longest delay.
_FIRST_S, _LONGEST_S = 0.2, 3.0


def growing_delays() -> Iterator[float]:
    """Seconds to wait before each further try: twice as long each time, up to the longest, for ever."""
    delay = _FIRST_S
    while True:
        yield delay
        delay = min(delay * 2, _LONGEST_S)


async def persist(attempt: Callable[[], Awaitable[T]], *, what: str, give_up_s: float) -> T:
    """Tries until it works or the time is over.

    Args:
        attempt: what to try; `UnavailableError` means that trying again can help, all else is raised at once.
        what: what is being tried, for log and message: "connect to …".
        give_up_s: seconds from the first try after which there is no further one.

    Returns:
        What the attempt that worked returned.

    Raises:
        UnavailableError: it has not worked in that time; the message has the last reason.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + give_up_s
    delays = growing_delays()
    said: str | None = None
    while True:
        try:
            return await attempt()
        except UnavailableError as error:
            left_s = deadline - loop.time()
            if left_s <= 0:
                raise UnavailableError(f"cannot {what}, tried for {give_up_s:g} s: {error}") from error
            if str(error) != said:
                said = str(error)
                _log.warning("waiting", what=what, reason=said, give_up_s=give_up_s)
            await asyncio.sleep(min(next(delays), left_s))
