from __future__ import annotations

import asyncio
import time

from structlog.testing import capture_logs

from consumer.ports import Status
from consumer.stalls import LONGEST_S, telling_stalls


async def test_a_loop_that_is_kept_from_running_is_told_and_for_how_long() -> None:
    status = Status()
    with capture_logs() as logs:
        async with telling_stalls(status), asyncio.timeout(30):
            await asyncio.sleep(0)  # the watch has begun
            time.sleep(2 * LONGEST_S + 0.1)  # noqa: ASYNC251 - this is the fault
            while not logs:
                await asyncio.sleep(0.01)
    (line,) = (log for log in logs if log["seconds"] >= 2 * LONGEST_S)
    assert (line["event"], line["log_level"]) == ("event loop stalled", "warning")
    assert status.longest_stall_s >= 2 * LONGEST_S


async def test_a_loop_that_runs_is_watched_and_nothing_is_said_of_it() -> None:
    status = Status()
    async with telling_stalls(status), asyncio.timeout(30):
        while not status.longest_stall_s:
            await asyncio.sleep(0.01)
