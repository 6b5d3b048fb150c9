"""`blobmap-consumer partition` beside `run`, as both are shipped, at a real broker."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import random
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from obstore.store import LocalStore

from blobmap import ManifestStore, Policy, partition_store
from blobmap.errors import MissingError
from blobmap.scan import scan_stores
from blobmap.storage import StorageOptions, open_storage
from consumer.memory import recall
from tests.support.amqp import bench
from tests.support.consumer_process import ConsumerProcess, consumer
from tests.support.notifications import created
from tests.support.site import OBJECTS, Site, collected
from tests.support.stores import RawArray, chunk_keys, put_all, store_objects, write_store
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from blobmap.manifest import Manifest
    from consumer.flag_steps import Looked
    from consumer.memory import Memory
    from tests.services.gateway import Gateway
    from tests.support.amqp import Bench

pytestmark = pytest.mark.services

TAS = RawArray("tas", (12, 4), (1, 4), dims=("time", "y"), nbytes=100)
PR = RawArray("pr", (6, 4), (1, 4), dims=("time", "y"), nbytes=100)
FLAGS, ALERTS = "blobmap.flags", "blobmap.alerts"
HASTY = "[flags]\nsettle_s = 0.3\nsettle_max_s = 60\nreflag_s = 0.2\n[manifests]\nrefresh_s = 0.2\n"
POLICY = '[policy]\nt_hot = "1B"\n'


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

    def scopes(self) -> list[str]:
        return sorted(self.manifests().scopes())

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

        found = await eventually(cut, what=f"{paths} of {scope} are cut")
        assert found is not None
        return found

    async def until_ended(self, scope: str) -> Memory:
        """Waits until the last look has found nothing new."""

        async def ended() -> Memory | None:
            memory = self.memory(scope)
            return memory if memory.looked is not None and memory.looked.done else None

        memory = await eventually(ended, what=f"{scope} is looked at for the last time")
        assert memory is not None
        return memory

    async def until_at_rest(self, at: Bench) -> None:
        """Waits until no flag is on its way, nor waits."""
        queues = (FLAGS, *(f"{FLAGS}.wait.{wait}" for wait in ("0.3", "0.6")))

        async def empty() -> bool:
            return not any([await at.ready(queue) for queue in queues])

        await eventually(empty, what="no flag is left")


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
        keys = await yard.announce("project/s", TAS)
        manifest = await yard.until_cut("project/s", "tas")
        memory = await yard.until_ended("project/s")
        await yard.until_at_rest(at)
        assert {record["key"] for record in await collected(at, len(keys))} == set(keys)
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
        keys = set()
        for scope in scopes:
            write_store(yard.data, scope, [TAS])
            keys |= set(await yard.announce(scope, TAS))
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
            assert {record["key"] for record in await collected(at, len(keys))} == keys
        told = await alerts(at)
    assert {alert["key"] for alert in told} == {f"unmanaged-store:b/{scope}" for scope in scopes}
    over = {alert["key"] for alert in told if alert["resolved"]}
    assert over == {alert["key"] for alert in told}


async def test_what_cannot_be_claimed_is_told_once_and_not_tried_again(yard: Yard) -> None:
    """Its keys go on coming, and every chain of flags ends nevertheless."""
    odd = RawArray("odd", (6, 4), (1, 4), dims=("time", "y"), members={"chunk_key_encoding": {"name": "unheard-of"}})
    write_store(yard.data, "s.zarr", [TAS])
    put_all(yard.data, {f"s.zarr/odd/{name}": data for name, data in odd.documents().items()} | {"s.zarr/odd/0": b"1"})
    async with yard.run() as run, yard.work() as worker, bench(yard.site.url) as at:
        await run.until_logged("consuming")
        await yard.announce("s.zarr", TAS)
        await yard.until_cut("s.zarr", "tas")
        await yard.until_ended("s.zarr")
        for number in range(3):
            ended = yard.memory("s.zarr").looked
            await yard.site.publish(created("b", f"s.zarr/odd/{number}"))

            async def looked(ended: Looked | None = ended) -> bool:
                now = yard.memory("s.zarr").looked
                return now is not None and now.done and now != ended

            await eventually(looked, what=f"the chain of object {number} has ended")
        await yard.until_at_rest(at)
        assert await worker.stop() == 0
        told = await alerts(at)
    assert list(recall(yard.manifests().storage, "s.zarr")[1].unclaimable) == ["odd"]
    assert [alert["resolved"] for alert in told if alert["key"] == "unclaimed-array:b/s.zarr"] == [False]
    assert len(worker.logged("partitioned")) == 1


async def test_without_leave_to_partition_a_person_is_told_and_may_do_it(tmp_path: Path, amqp_url: str) -> None:
    yard = Yard(tmp_path, amqp_url, more=HASTY.replace("[flags]", "[flags]\npartition = false") + POLICY)
    write_store(yard.data, "s.zarr", [TAS])
    async with yard.run() as run, yard.work() as worker, bench(yard.site.url) as at:
        await run.until_logged("consuming")
        await yard.announce("s.zarr", TAS)
        await worker.until_logged("alert")
        await yard.until_at_rest(at)
        assert yard.manifest("s.zarr") is None
        await asyncio.to_thread(partition_store, yard.data, yard.manifests(), "s.zarr", policy=Policy(t_hot_bytes=1))
        await worker.until_logged("alert", count=2)
        assert [alert["resolved"] for alert in await alerts(at)] == [False, True]


async def test_n10_a_new_store_is_alerted_once_whoever_starts_again(tmp_path: Path, amqp_url: str) -> None:
    """Every event comes twice, to two lives of both processes; nobody claims the store."""
    yard = Yard(tmp_path, amqp_url, more=HASTY.replace("[flags]", "[flags]\npartition = false") + POLICY)
    stores = ("s.zarr", "last-0.zarr", "last-1.zarr")
    for scope in stores:
        write_store(yard.data, scope, [TAS])
    await yard.site.declare()
    async with bench(yard.site.url) as at:
        for life in range(2):
            async with yard.run(f"run-{life}") as run, yard.work(f"worker-{life}") as worker:
                for scope in ("s.zarr", "s.zarr", f"last-{life}.zarr"):
                    await yard.announce(scope, TAS)
                await worker.until_logged("alert", count=2 - life)  # the last one, so that all before it are handled
                await yard.until_at_rest(at)
                assert [await run.stop(), await worker.stop()] == [0, 0]
        told = await alerts(at)
    assert sorted((alert["key"], alert["resolved"]) for alert in told) == sorted(
        (f"unmanaged-store:b/{scope}", False) for scope in stores
    )


async def test_what_is_no_store_is_told_once(yard: Yard) -> None:
    yard.data.put("files/a.nc", b"1")
    async with yard.run() as run, yard.work() as worker, bench(yard.site.url) as at:
        await run.until_logged("consuming")
        await yard.site.publish(created("b", "files/a.nc"))
        await worker.until_logged("alert")
        await yard.until_at_rest(at)
        (alert,) = await alerts(at)
    assert (alert["key"], alert["scope"]) == ("unmanaged-store:b/files", "files")
    assert yard.memory("files").foreign is not None
    assert yard.manifest("files") is None


async def test_a_broken_manifest_is_neither_cut_nor_told_as_new(yard: Yard) -> None:
    write_store(yard.data, "s.zarr", [TAS])
    place = yard.site.directory / "manifests/s.zarr/manifest.json"
    place.parent.mkdir(parents=True)
    place.write_text("{")
    async with yard.run() as run, yard.work() as worker, bench(yard.site.url) as at:
        await run.until_logged("consuming")
        await yard.announce("s.zarr", TAS)
        await worker.until_logged("flag put off", count=2)
        assert place.read_text() == "{"
        assert yard.memory("s.zarr").suspect
        assert [alert["kind"] for alert in await alerts(at) if alert["kind"] != "manifest-invalid"] == []
        place.unlink()
        await yard.until_cut("s.zarr", "tas")


async def test_an_array_that_was_small_is_looked_at_again_and_gets_its_rule(tmp_path: Path, amqp_url: str) -> None:
    yard = Yard(tmp_path, amqp_url, more=HASTY.replace("_max_s = 60", "_max_s = 2") + '[policy]\nt_hot = "1KB"\n')
    small = RawArray("small", (12, 4), (1, 4), dims=("time", "y"), present=[(0, 0)], nbytes=100)
    write_store(yard.data, "s.zarr", [TAS, small])
    async with yard.run() as run, yard.work():
        await run.until_logged("consuming")
        await yard.announce("s.zarr", TAS)
        await yard.until_cut("s.zarr", "tas")
        write_store(yard.data, "s.zarr", [dataclasses.replace(small, present=None)])  # nobody hears of it: it is hot
        await yard.until_cut("s.zarr", "tas", "small")


async def test_a_message_that_is_no_flag_is_set_aside(yard: Yard) -> None:
    await yard.site.declare()
    async with yard.work() as worker, bench(yard.site.url) as at:
        await worker.until_logged("consuming")
        await at.publish([b"no flag"], routing_key=FLAGS)
        await at.publish([b"{}"], routing_key="blobmap.tasks")
        await worker.until_logged("refused", count=2)

        async def both() -> bool:
            return await at.ready("blobmap.dead") == 2

        await eventually(both, what="both are set aside")
        assert {got.headers["code"] for got in await at.drain("blobmap.dead")} == {"unreadable"}
        assert await worker.stop() == 0


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ('[embedded]\npath = "q.sqlite"\n', "partition needs [amqp]: with [embedded], run does this work too"),
        ('[amqp]\nurl = "amqp://127.0.0.1:1/"\n', "bucket 'b': data is missing; partition has to look at the objects"),
    ],
)
async def test_what_a_worker_cannot_do_without(tmp_path: Path, config: str, said: str) -> None:
    file = tmp_path / "consumer.toml"
    file.write_text(f'{config}[source]\ndialect = "versitygw"\n[[bucket]]\nname = "b"\nmanifests = "{tmp_path}"\n')
    async with consumer(tmp_path / "process", "partition", "--config", str(file)) as process:
        assert await process.end() == 2
    assert process.err == f"blobmap-consumer: {said}\n"


async def test_nothing_that_we_read_or_write_is_news(tmp_path: Path, amqp_url: str, event_gateway: Gateway) -> None:
    """Data and manifests behind one gateway, which announces every write of ours to us."""
    for name in ("cordex", "manifests"):
        event_gateway.create_bucket(name)
    bucket = '[[bucket]]\nname = "cordex"\nmanifests = "s3://manifests/cordex"\ndata = "s3://cordex"\n'
    s3 = (
        f'[s3]\nendpoint = "{event_gateway.endpoint}"\nallow_http = true\n'
        f'access_key_id = "{event_gateway.access_key}"\nsecret_access_key = "{event_gateway.secret_key}"\n'
    )
    (tmp_path / "data").mkdir()
    site = Site(tmp_path, amqp_url, more=f'data = "{tmp_path / "data"}"\n{bucket}{s3}{HASTY}{POLICY}')
    data = event_gateway.store("cordex")
    manifests = ManifestStore(event_gateway.store("manifests", prefix="cordex"))
    work = consumer(tmp_path / "worker", "partition", "--config", str(site.write_config()))
    async with site.run() as run, work as worker, bench(site.url) as at:
        await run.until_logged("consuming")
        await worker.until_logged("consuming", count=2)
        await asyncio.to_thread(write_store, data, "s.zarr", [TAS])
        keys = set(chunk_keys("s.zarr", TAS))
        assert {record["key"] for record in await collected(at, len(keys))} == keys

        async def over() -> bool:
            memory = await asyncio.to_thread(lambda: recall(manifests.storage, "s.zarr")[0])
            return memory.looked is not None and memory.looked.done and memory.backfilled is not None

        await eventually(over, what="the last look and the backfill are over")
        before = await asyncio.to_thread(recall, manifests.storage, "s.zarr")
        await asyncio.to_thread(scan_stores, data, manifests)
        await asyncio.to_thread(partition_store, data, manifests, "s.zarr")
        for process in (run, worker):
            process.send(signal.SIGHUP)
        await at.drain(OBJECTS)  # what was told twice
        for number in range(2):  # a word of the gateway after all that it had to say of us
            await asyncio.to_thread(data.put, f"s.zarr/tas/c/{number}/0", b"again")
            (record,) = await collected(at, 1)
            assert record["source"] == "event"
        assert [await at.drain(queue) for queue in (FLAGS, f"{FLAGS}.wait.0.3", f"{FLAGS}.wait.0.6")] == [[], [], []]
        assert await worker.stop() == 0
        assert await run.stop() == 0
    assert await asyncio.to_thread(recall, manifests.storage, "s.zarr") == before
    assert manifests.read("s.zarr").manifest.epoch == 1
    assert len(worker.logged("partitioned")) == 1


async def test_arrays_wait_for_the_document_of_their_store(yard: Yard) -> None:
    objects = store_objects("p/s.zarr", [TAS, PR])
    root = {"p/s.zarr/zarr.json": objects.pop("p/s.zarr/zarr.json")}
    put_all(yard.data, objects)
    await yard.site.declare()
    async with yard.run() as run, yard.work() as worker, bench(yard.site.url) as at:
        await run.until_logged("consuming")
        await yard.announce("p/s.zarr", TAS, PR)
        await _rounds(at, f"{FLAGS}.wait.0.3")
        assert yard.scopes() == []
        put_all(yard.data, root)
        await yard.site.publish(created("b", "p/s.zarr/zarr.json"))
        await yard.until_cut("p/s.zarr", "tas", "pr")
        await yard.until_ended("p/s.zarr")
        await yard.until_at_rest(at)
        assert await worker.stop() == 0
        told = await alerts(at)
    assert yard.scopes() == ["p/s.zarr"]
    assert [(alert["key"], alert["resolved"]) for alert in told] == [
        ("unmanaged-store:b/p/s.zarr", False),
        ("unmanaged-store:b/p/s.zarr", True),
    ]


async def test_arrays_do_not_wait_for_ever_for_a_store_around_them(tmp_path: Path, amqp_url: str) -> None:
    yard = Yard(tmp_path, amqp_url, more=HASTY.replace("settle_max_s = 60", "settle_max_s = 1") + POLICY)
    arrays = [dataclasses.replace(array, format=2) for array in (TAS, PR)]
    objects = store_objects("p/s.zarr", arrays)
    del objects["p/s.zarr/.zgroup"]
    put_all(yard.data, objects)
    await yard.site.declare()
    async with yard.run() as run, yard.work() as worker, bench(yard.site.url) as at:
        await run.until_logged("consuming")
        await yard.announce("p/s.zarr", *arrays)

        async def all_over() -> bool:
            memory = yard.memory("p/s.zarr")
            return bool(memory.alerts) and all(raised.resolved is not None for raised in memory.alerts.values())

        await eventually(all_over, what="the alert of the store around the arrays is over")
        await yard.until_at_rest(at)
        assert await worker.stop() == 0
    assert yard.scopes() == ["p/s.zarr/pr", "p/s.zarr/tas"]


async def test_a_store_whose_documents_come_first_is_told_of(tmp_path: Path, amqp_url: str) -> None:
    yard = Yard(tmp_path, amqp_url, more=HASTY.replace("[flags]", "[flags]\npartition = false") + POLICY)
    write_store(yard.data, "p/s", [TAS])
    await yard.site.declare()
    async with yard.run() as run, yard.work() as worker, bench(yard.site.url) as at:
        await run.until_logged("consuming")
        await yard.site.publish(created("b", "p/s/zarr.json"), created("b", "p/s/tas/zarr.json"))
        await worker.until_logged("alert")
        assert await worker.stop() == 0
        told = await alerts(at)
    assert [(alert["key"], alert["resolved"]) for alert in told] == [("unmanaged-store:b/p/s", False)]


async def test_what_a_cut_has_left_unclaimed_is_told_of(yard: Yard) -> None:
    odd = dataclasses.replace(PR, members={"chunk_key_encoding": {"name": "nobody-knows"}})
    write_store(yard.data, "p/s", [TAS, odd])
    await yard.site.declare()
    async with yard.run() as run, yard.work() as worker, bench(yard.site.url) as at:
        await run.until_logged("consuming")
        await yard.announce("p/s", TAS)
        await yard.until_ended("p/s")
        await yard.until_at_rest(at)
        assert await worker.stop() == 0
        told = await alerts(at)
    assert [(alert["key"], alert["resolved"]) for alert in told if alert["kind"] == "unclaimed-array"] == [
        ("unclaimed-array:b/p/s", False)
    ]
    assert ("unmanaged-store:b/p/s", True) in {(alert["key"], alert["resolved"]) for alert in told}


async def _rounds(at: Bench, queue: str) -> None:
    """Waits until what waits in a queue has come out of it, and has gone back, some times."""

    async def waits() -> bool:
        return await at.ready(queue) > 0

    async def is_out() -> bool:
        return await at.ready(queue) == 0

    for _ in range(3):
        await eventually(waits, what=f"{queue} holds a flag")
        await eventually(is_out, what=f"{queue} is empty")


async def test_a_look_that_fails_is_followed_by_another(yard: Yard) -> None:
    """The manifest of a scope around it cannot be read, so nothing is decided until it can."""
    write_store(yard.data, "a/s.zarr", [TAS])
    place = yard.site.directory / "manifests/a/manifest.json"
    place.parent.mkdir(parents=True)
    place.write_text("{")
    async with yard.run() as run, yard.work() as worker:
        await run.until_logged("consuming")
        await yard.announce("a/s.zarr", TAS)
        await worker.until_logged("not partitioned", count=2)
        looked = yard.memory("a/s.zarr").looked
        assert looked is not None
        assert looked.failed is not None
        assert not looked.done
        assert yard.manifest("a/s.zarr") is None
        place.unlink()
        await yard.until_cut("a/s.zarr", "tas")


async def test_the_listing_has_to_confirm_the_quiet(yard: Yard) -> None:
    write_store(yard.data, "s.zarr", [TAS])
    newest = yard.site.directory / "data" / chunk_keys("s.zarr", TAS)[5]
    os.utime(newest, (time.time() + 3600,) * 2)  # somebody writes, and no event tells of it
    async with yard.run() as run, yard.work() as worker:
        await run.until_logged("consuming")
        await yard.announce("s.zarr", TAS)
        await worker.until_logged("restless", count=2)
        assert yard.manifest("s.zarr") is None
        os.utime(newest)
        await yard.until_cut("s.zarr", "tas")


async def test_chunks_that_come_long_before_their_documents_are_claimed_in_the_end(yard: Yard) -> None:
    objects = store_objects("s.zarr", [TAS])
    documents = {key: data for key, data in objects.items() if key.endswith("zarr.json")}
    put_all(yard.data, {key: data for key, data in objects.items() if key not in documents})
    async with yard.run() as run, yard.work() as worker, bench(yard.site.url) as at:
        await run.until_logged("consuming")
        keys = await yard.announce("s.zarr", TAS)
        await worker.until_logged("alert")
        await yard.until_at_rest(at)
        for key in sorted(documents, reverse=True):
            put_all(yard.data, {key: documents[key]})
            await yard.site.publish(created("b", key))
        await yard.until_cut("s.zarr", "tas")
        assert {record["key"] for record in await collected(at, len(keys))} == set(keys)
