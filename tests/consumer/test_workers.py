"""`blobmap-consumer run --workers N`: several processes on one queue."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.accounting import assert_accounts_balance
from tests.support.amqp import bench
from tests.support.notifications import created
from tests.support.site import EVENTS, Site, collected
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.amqp import Bench
    from tests.support.consumer_process import ConsumerProcess

pytestmark = pytest.mark.services


@pytest.fixture
def site(tmp_path: Path, amqp_url: str) -> Site:
    built = Site(tmp_path, amqp_url, source="prefetch = 20")
    built.write_manifest("s.zarr")
    return built


async def consumers(at: Bench, count: int) -> None:
    async def enough() -> bool:
        return await at.consumers(EVENTS) == count

    await eventually(enough, what=f"{count} consumers")


async def test_workers_share_the_queue_and_a_killed_one_comes_back(site: Site) -> None:
    keys = [f"s.zarr/t/c/{number}" for number in range(300)]
    async with site.run("--workers", "2") as process, bench(site.url) as at:
        first = await process.until_logged("worker", count=2)
        await process.until_logged("consuming", count=2)
        os.kill(first["pid"], signal.SIGKILL)
        assert (await process.until_logged("worker crashed"))["code"] == -signal.SIGKILL
        await process.until_logged("consuming", count=3)
        await consumers(at, 2)
        await site.publish(*(created("b", key) for key in keys))
        told = await collected(at, 300)
        assert await process.stop() == 0
        await assert_accounts_balance(at, keys, told_before=[record["key"] for record in told])
    assert len(process.logged("stopped")) == 2


async def test_without_their_parent_they_stop_in_order(site: Site) -> None:
    async with site.run("--workers", "2") as process, bench(site.url) as at:
        await process.until_logged("consuming", count=2)
        process.send(signal.SIGKILL)
        await process.end()
        await consumers(at, 0)

        async def both_said_so() -> bool:
            return len(process.logged("stopped")) == 2

        await eventually(both_said_so, what="both have stopped in order")


async def _refused(process: ConsumerProcess, code: int) -> str:
    assert await process.end() == code
    return process.err


async def test_what_ends_each_of_them_ends_all(site: Site) -> None:
    site.url, site.amqp = "amqp://127.0.0.1:1/", "give_up_s = 0.2"
    async with site.run("--workers", "2") as process:
        assert "cannot reach the broker" in await _refused(process, 3)


async def test_a_number_of_workers_must_make_sense(site: Site) -> None:
    async with site.run("--workers", "0") as process:
        assert "--workers 0: must be 1 or more" in await _refused(process, 2)
