from __future__ import annotations

import time

from structlog.testing import capture_logs

from consumer.ports import Status
from consumer.stalls import LONGEST_S, telling_stalls
from tests.support.waiting import eventually


async def test_a_loop_that_is_kept_from_running_is_told_and_for_how_long() -> None:
    status = Status()

    async def watched() -> bool:
        return status.longest_stall_s > 0

    async def told() -> bool:
        return any(log["event"] == "event loop stalled" and log["seconds"] >= 2 * LONGEST_S for log in logs)

    with capture_logs() as logs:
        async with telling_stalls(status):
            await eventually(watched, what="the watch has begun, and finds a loop that runs")
            time.sleep(2 * LONGEST_S + 0.1)  # noqa: ASYNC251 - this is the fault
            await eventually(told, what="it is told")
    assert status.longest_stall_s >= 2 * LONGEST_S
