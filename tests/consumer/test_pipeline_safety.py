from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from blobmap.errors import RefusedError, UnavailableError
from consumer import retry
from consumer.outputs import StuckError
from consumer.ports import LostError
from tests.support.manifests import NeverFresh
from tests.support.notifications import created
from tests.support.pipelines import PLAN, Daemon, FaultySink, HeldSink
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    return Daemon(tmp_path / "queue.sqlite")


# --- the order of safety


async def test_nothing_is_acknowledged_before_its_outputs_are_confirmed(daemon: Daemon) -> None:
    daemon.others = sink = HeldSink(daemon)
    async with daemon.running() as queue:
        await queue.put(created("b", "s.zarr/t/c/0"))
        await eventually(daemon.nothing_left, what="the claimed one is done")
        await queue.put(created("b", "new.zarr/t/c/0"))
        await queue.put(created("b", "new.zarr/t/c/1"))
        await queue.put(created("b", "s.zarr/t/c/1"))

        async def told() -> bool:
            return daemon.status.counts["emitted"] == 2 and len(sink.tried) == 1

        await eventually(told, what="the flag is being published")
        assert await daemon.left() == 3
        sink.free.set()
        await eventually(daemon.nothing_left, what="every message is acknowledged")
    assert len(await daemon.read("flags")) == 1


async def test_after_a_crash_what_was_not_acknowledged_comes_out(daemon: Daemon) -> None:
    """Whatever was confirmed before is told again, with the same id."""
    daemon.objects = sink = HeldSink(daemon)
    async with daemon.opened() as queue:
        await asyncio.gather(*(queue.put(created("b", f"s.zarr/t/c/{number}")) for number in range(20)))
        run = asyncio.ensure_future(daemon.pipeline(queue).run(daemon.stop))

        async def tried() -> bool:
            return bool(sink.tried)

        await eventually(tried, what="a batch is being published")
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        assert await daemon.left() == 20
    assert daemon.status.consuming is False
    daemon.objects = None
    await daemon.handle()
    assert {record["key"] for record in await daemon.records("objects.one")} == {
        f"s.zarr/t/c/{number}" for number in range(20)
    }


async def test_r10_a_queue_that_takes_nothing_is_tried_again_and_named(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "_FIRST_S", 0.001)
    daemon.objects = sink = FaultySink(daemon, *(UnavailableError("queue 'objects.one' was not there"),) * 6)
    daemon.plan = replace(PLAN, movers={"b": {"one": "objects.one"}, "c": {}})
    with capture_logs() as logs:
        async with daemon.running() as queue:
            await queue.put(created("b", "s.zarr/t/c/0"))
            await eventually(daemon.nothing_left, what="it is acknowledged")
    assert len(sink.tried) == 7
    assert len(await daemon.records("objects.one")) == 1
    assert [(line["queue"], line["works"]) for line in logs if line["event"] == "output"] == [
        ("objects.one", False),
        ("objects.one", True),
    ]
    assert daemon.status.troubles == {}


async def test_while_a_queue_takes_nothing_the_status_names_it(daemon: Daemon) -> None:
    daemon.objects = FaultySink(daemon, UnavailableError("away"), UnavailableError("away"))
    async with daemon.running() as queue:
        await queue.put(created("c", "x"))  # nothing to do with it
        await queue.put(created("b", "s.zarr/t/c/0"))

        async def named() -> bool:
            return bool(daemon.status.troubles)

        await eventually(named, what="the status names the queue")
        assert set(daemon.status.troubles.values()) == {"away"}
        await eventually(daemon.nothing_left, what="it is acknowledged")


# --- the end


async def test_stopping_finishes_what_was_taken_and_leaves_the_rest(daemon: Daemon) -> None:
    daemon.prefetch = 30
    daemon.plan = replace(PLAN, movers={"b": {"one": "objects.one"}, "c": {}})
    daemon.objects = sink = HeldSink(daemon)
    async with daemon.opened() as queue, asyncio.timeout(30):
        await asyncio.gather(*(queue.put(created("b", f"s.zarr/t/c/{number}")) for number in range(100)))
        run = asyncio.ensure_future(daemon.pipeline(queue).run(daemon.stop))

        async def tried() -> bool:
            return len(sink.tried) == 3

        await eventually(tried, what="what may be taken is being published")
        daemon.stop.set()
        sink.free.set()
        await run
        assert daemon.status.consuming is False
        assert await daemon.left() == 70
    assert len(await daemon.records("objects.one")) == 30


async def test_stopping_publishes_a_batch_that_is_not_full(daemon: Daemon) -> None:
    daemon.plan = replace(PLAN, batch_s=3600)
    async with daemon.running() as queue:
        await queue.put(created("b", "s.zarr/t/c/0"))

        async def told() -> bool:
            return daemon.status.counts["emitted"] == 1

        await eventually(told, what="it is handled")
    assert len(await daemon.records("objects.one")) == 1


@pytest.mark.parametrize(
    ("error", "shown"), [(LostError("gone"), LostError), (RefusedError("no"), RefusedError), (KeyError("x"), KeyError)]
)
async def test_what_trying_again_cannot_help_ends_the_session(
    daemon: Daemon, error: Exception, shown: type[Exception]
) -> None:
    daemon.objects = FaultySink(daemon, error)
    async with daemon.opened() as queue, asyncio.timeout(30):
        await queue.put(created("b", "s.zarr/t/c/0"))
        with pytest.raises(shown) as caught:
            await daemon.pipeline(queue).run(daemon.stop)
        assert caught.value is error
        assert await daemon.left() == 1


async def test_manifests_that_stay_stale_end_the_session(daemon: Daemon) -> None:
    daemon.manifests = NeverFresh({})
    daemon.plan = replace(PLAN, patience_s=0.01)
    async with daemon.opened() as queue, asyncio.timeout(30):
        await queue.put(created("b", "s.zarr/t/c/0"))
        with pytest.raises(StuckError, match="the manifests are stale"):
            await daemon.pipeline(queue).run(daemon.stop)
        assert await daemon.left() == 1


async def test_of_several_errors_the_one_that_explains_is_shown(daemon: Daemon) -> None:
    daemon.objects = FaultySink(daemon, LostError("gone"), RefusedError("no"))
    async with daemon.opened() as queue, asyncio.timeout(30):
        await queue.put(created("b", "s.zarr/t/c/0"))
        with pytest.raises(RefusedError, match="no"):
            await daemon.pipeline(queue).run(daemon.stop)
