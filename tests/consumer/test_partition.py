"""`blobmap-consumer partition` beside `run`, as both are shipped, at a real broker."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from typing import TYPE_CHECKING, Any

import pytest
from obstore.store import LocalStore

from blobmap import ManifestStore
from blobmap.errors import MissingError
from blobmap.storage import StorageOptions, open_storage
from consumer.memory import recall
from tests.support.amqp import bench
from tests.support.consumer_process import ConsumerProcess, consumer
from tests.support.notifications import created
from tests.support.site import Site
from tests.support.stores import RawArray, chunk_keys, write_store
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from blobmap.manifest import Manifest
    from consumer.memory import Memory
    from tests.support.amqp import Bench

pytestmark = pytest.mark.services

TAS = RawArray("tas", (12, 4), (1, 4), dims=("time", "y"), nbytes=100)
PR = RawArray("pr", (6, 4), (1, 4), dims=("time", "y"), nbytes=100)
FLAGS, ALERTS = "blobmap.flags", "blobmap.alerts"
HASTY = "[flags]\nsettle_s = 0.3\nsettle_max_s = 60\nreflag_s = 0.2\n[manifests]\nrefresh_s = 0.2\n"
POLICY = '[policy]\nt_hot = "1B"\n'
LONG_S = 60.0


class Yard:
    """A site with data, where everything settles at once."""

    def __init__(self, directory: Path, url: str, *, more: str = HASTY + POLICY) -> None:
        (directory / "data").mkdir()
        self.data = LocalStore(directory / "data")
        self.site = Site(directory, url, more=f'data = "{directory / "data"}"\n{more}')

    def run(self, name: str = "run") -> AbstractAsyncContextManager[ConsumerProcess]:
        return self.site.run(name=name)

    def work(self, name: str = "worker") -> AbstractAsyncContextManager[ConsumerProcess]:
        return consumer(self.site.directory / name, "partition", "--config", str(self.site.write_config()))

    def manifests(self) -> ManifestStore:
        return ManifestStore(open_storage(str(self.site.directory / "manifests"), StorageOptions(), create=True))

    def manifest(self, scope: str) -> Manifest | None:
        try:
            return self.manifests().read(scope).manifest
        except MissingError:
            return None

    def memory(self, scope: str) -> Memory:
        return recall(self.manifests().storage, scope)[0]

    async def announce(self, scope: str, *arrays: RawArray) -> list[str]:
        """Tells of every object of these arrays, documents left out, as a gateway would."""
        keys = [key for array in arrays for key in chunk_keys(scope, array)]
        await self.site.publish(*(created("b", key) for key in keys))
        return keys

    async def until_cut(self, scope: str, *paths: str) -> Manifest:
        """Waits until a rule claims each of these arrays."""

        async def cut() -> Manifest | None:
            found = self.manifest(scope)
            prefixes = {prefix for blob in found.blobs for prefix in blob.prefixes} if found else set()
            return found if all(f"{path}/c" in prefixes for path in paths) else None

        found = await eventually(cut, what=f"{paths} of {scope} are cut", within_s=LONG_S)
        assert found is not None
        return found

    async def until_ended(self, scope: str) -> Memory:
        """Waits until the last look has found nothing new."""

        async def ended() -> Memory | None:
            memory = self.memory(scope)
            return memory if memory.looked is not None and memory.looked.done else None

        memory = await eventually(ended, what=f"{scope} is looked at for the last time", within_s=LONG_S)
        assert memory is not None
        return memory

    async def until_at_rest(self, at: Bench) -> None:
        """Waits until no flag is on its way, nor waits."""
        queues = (FLAGS, *(f"{FLAGS}.wait.{wait}" for wait in ("0.3", "0.6")))

        async def empty() -> bool:
            return not any([await at.ready(queue) for queue in queues])

        await eventually(empty, what="no flag is left", within_s=LONG_S)


@pytest.fixture
def yard(tmp_path: Path, amqp_url: str) -> Yard:
    return Yard(tmp_path, amqp_url)


async def alerts(at: Bench) -> list[dict[str, Any]]:
    """Takes the alerts that are there."""
    return [json.loads(got.body) for got in await at.drain(ALERTS)]


async def test_a_fresh_store_is_partitioned_and_its_alert_is_over(yard: Yard) -> None:
    write_store(yard.data, "project/s", [TAS])
    await yard.site.declare()
    async with yard.run() as run, yard.work() as worker, bench(yard.site.url) as at:
        await run.until_logged("consuming")
        await yard.announce("project/s", TAS)
        manifest = await yard.until_cut("project/s", "tas")
        memory = await yard.until_ended("project/s")
        await yard.until_at_rest(at)
        assert await worker.stop() == 0
        told = await alerts(at)
    assert manifest.policy is not None
    assert manifest.policy["t_hot_bytes"] == 1
    assert manifest.epoch == 1
    assert [(alert["key"], alert["resolved"]) for alert in told] == [
        ("unmanaged-store:b/project/s", False),
        ("unmanaged-store:b/project/s", True),
    ]
    assert memory.flagged is not None
    assert memory.flagged.first_object.startswith("project/s/tas/c/")


async def test_a_new_array_of_a_known_store_gets_its_rule_under_the_recorded_policy(yard: Yard) -> None:
    write_store(yard.data, "s.zarr", [TAS])
    async with yard.run() as run, yard.work():
        await run.until_logged("consuming")
        await yard.announce("s.zarr", TAS)
        first = await yard.until_cut("s.zarr", "tas")
        write_store(yard.data, "s.zarr", [PR])
        await yard.announce("s.zarr", PR)
        second = await yard.until_cut("s.zarr", "tas", "pr")
        await yard.until_ended("s.zarr")
    assert second.blobs[: len(first.blobs)] == first.blobs
    assert second.policy == first.policy
    assert second.epoch > first.epoch


async def test_a_worker_that_is_killed_anywhere_leaves_nothing_undone(yard: Yard) -> None:
    chance = random.Random(7)  # noqa: S311 - where to kill, the same on every machine
    scopes = [f"s{number}.zarr" for number in range(4)]
    async with yard.run() as run, bench(yard.site.url) as at:
        await run.until_logged("consuming")
        for scope in scopes:
            write_store(yard.data, scope, [TAS])
            await yard.announce(scope, TAS)
        for life in range(8):
            async with yard.work(f"life-{life}") as worker:
                await worker.until_logged("consuming")
                await asyncio.sleep(chance.random())
                worker.send(signal.SIGKILL)
                await worker.end()
        async with yard.work("last"):
            for scope in scopes:
                await yard.until_cut(scope, "tas")
                await yard.until_ended(scope)
            await yard.until_at_rest(at)
        told = await alerts(at)
    assert {alert["key"] for alert in told} == {f"unmanaged-store:b/{scope}" for scope in scopes}
    over = {alert["key"] for alert in told if alert["resolved"]}
    assert over == {alert["key"] for alert in told}
