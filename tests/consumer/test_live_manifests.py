"""Manifests that change while `blobmap-consumer run` works, as it is shipped: beside a real broker and gateway."""

from __future__ import annotations

import asyncio
import json
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import obstore
import pytest

from blobmap import ManifestStore
from blobmap.manifest import manifest_key
from blobmap.storage import Storage, StorageOptions, open_storage
from consumer.announcements import announcement
from tests.support.accounting import assert_accounts_balance
from tests.support.amqp import bench
from tests.support.consumer_process import consumer
from tests.support.manifests import manifest
from tests.support.notifications import created
from tests.support.site import ALERTS, EVENTS, Site, collected, readiness, records
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from blobmap.manifest import Manifest
    from tests.services.gateway import Gateway
    from tests.support.amqp import Bench
    from tests.support.consumer_process import ConsumerProcess

pytestmark = pytest.mark.services

# Nothing is found by itself within a test.
NEVER = "[manifests]\nrefresh_s = 3600\n"


@pytest.fixture
def site(tmp_path: Path, amqp_url: str) -> Site:
    built = Site(tmp_path, amqp_url)
    built.write_manifest("s.zarr")
    return built


def rewrite(site: Site, one: Manifest) -> None:
    """Writes a manifest over the one that is there."""
    store = ManifestStore(open_storage(str(site.directory / "manifests"), StorageOptions()))
    store.write(one, etag=store.storage.get(manifest_key(one.scope)).etag)


async def announce(at: Bench, scope: str, epoch: int) -> None:
    await at.publish([announcement("b", scope, epoch)], exchange="blobmap.manifests")


async def alerts(at: Bench, count: int) -> list[dict[str, Any]]:
    """Takes alerts out of their queue, as soon as so many are there."""
    found: list[dict[str, Any]] = []

    async def enough() -> bool:
        found.extend(json.loads(got.body) for got in await at.drain(ALERTS))
        return len(found) >= count

    await eventually(enough, what=f"{count} alerts")
    return found


async def test_two_processes_hear_of_a_new_manifest(site: Site) -> None:
    site.more = NEVER
    async with site.run(name="one") as one, site.run(name="two") as two, bench(site.url) as at:
        for process in (one, two):
            await process.until_logged("consuming")
        site.write_manifest("new.zarr")
        await announce(at, "new.zarr", 1)
        for process in (one, two):
            line = await process.until_logged("manifest")
            assert (line["scope"], line["epoch"]) == ("new.zarr", 1)
        await site.publish(*(created("b", f"new.zarr/t/c/{number}") for number in range(20)))
        assert {record["scope"] for record in await collected(at, 20)} == {"new.zarr"}
        assert [await process.stop() for process in (one, two)] == [0, 0]
        assert await at.drain("blobmap.flags") == []


async def test_rules_are_exchanged_while_events_flow(site: Site) -> None:
    """Every object is told once, under the old rules or the new ones; none falls between them."""
    site.more = NEVER
    keys = [f"s.zarr/t/c/{number}" for number in range(600)]
    async with site.run() as process, bench(site.url) as at:
        await process.until_logged("consuming")
        for epoch, begin in enumerate(range(0, 600, 100), start=2):
            await site.publish(*(created("b", key) for key in keys[begin : begin + 100]))
            await asyncio.to_thread(rewrite, site, manifest("s.zarr", epoch=epoch))
            await announce(at, "s.zarr", epoch)
        await process.until_logged("manifest")
        told = await collected(at, 600)
        assert await process.stop() == 0
        assert sorted(record["key"] for record in told) == sorted(keys)
        assert {record["blob_id"] for record in told} == {f"b_t_{number}" for number in range(60)}
        assert await at.drain("blobmap.flags") == []


async def test_what_was_announced_while_the_broker_was_away_is_found_when_it_is_back(site: Site) -> None:
    """A lost session loses what was announced, so that the next one begins with a comparison."""
    site.more = NEVER
    async with site.run() as process, bench(site.url) as at:
        await process.until_logged("consuming")
        site.write_manifest("new.zarr")
        await at.channel.queue_delete(EVENTS)
        await process.until_logged("consuming", count=2)
        assert (await process.until_logged("manifest"))["scope"] == "new.zarr"
        assert await process.stop() == 0


async def test_stale_manifests_stop_routing_and_nothing_is_lost(site: Site) -> None:
    site.more = "[manifests]\nrefresh_s = 0.5\n[http]\nport = 0\n"
    keys = [f"s.zarr/t/c/{number}" for number in range(30)]
    root = site.directory / "manifests"
    async with site.run() as process, bench(site.url) as at:
        await process.until_logged("consuming")
        assert (await _answered(process, 200))["reasons"] == []
        root.rename(site.directory / "away")
        reasons = (await _answered(process, 503))["reasons"]
        assert reasons == ["the manifests of bucket 'b' were not compared in the last 1 s"]
        await site.publish(*(created("b", key) for key in keys))
        await process.until_logged("stale")

        async def taken() -> bool:
            return await at.ready(EVENTS) == 0

        await eventually(taken, what="the prefetch has them")
        assert await records(at) == [], "nothing was routed"
        (site.directory / "away").rename(root)
        told = await collected(at, 30)
        assert (await _answered(process, 200))["reasons"] == []
        assert await process.stop() == 0
        await assert_accounts_balance(at, keys, told_before=[record["key"] for record in told])
    assert not process.logged("session lost")


async def test_events_are_given_back_where_manifests_stay_stale(site: Site) -> None:
    """Before the broker would close the channel, again and again, and count each time."""
    site.more = "[manifests]\nrefresh_s = 0.5\n[sink]\npatience_s = 0.5\n"
    root = site.directory / "manifests"
    keys = [f"s.zarr/t/c/{number}" for number in range(30)]
    async with site.run() as process, bench(site.url) as at:
        await process.until_logged("consuming")
        root.rename(site.directory / "away")
        await process.until_logged("manifests not compared")

        async def given_back() -> bool:
            keys.append(f"s.zarr/t/c/{len(keys)}")
            await site.publish(created("b", keys[-1]))
            return bool(process.logged("waiting without events")) and await at.consumers(EVENTS) == 0

        await eventually(given_back, what="nobody consumes the queue")
        (site.directory / "away").rename(root)
        await site.publish(*(created("b", key) for key in keys[:30]))
        told = await collected(at, len(keys))
        assert await process.stop() == 0
        await assert_accounts_balance(at, keys, told_before=[record["key"] for record in told])


async def test_a_stop_while_manifests_are_stale_leaves_what_was_taken(site: Site) -> None:
    site.more = "[manifests]\nrefresh_s = 0.5\n"
    sent: list[str] = []

    async def send() -> None:
        sent.append(f"s.zarr/t/c/{len(sent)}")
        await site.publish(created("b", sent[-1]))

    async with site.run() as process, bench(site.url) as at:
        await process.until_logged("consuming")
        (site.directory / "manifests").rename(site.directory / "away")

        async def stale() -> bool:
            await send()
            return bool(process.logged("stale"))

        await eventually(stale, what="it waits with an event")
        await send()
        assert await process.stop() == 0
        told = [record["key"] for record in await records(at)]
        assert sent[-1] not in told
        await assert_accounts_balance(at, sent, told_before=told)


async def test_a_broken_manifest_keeps_the_last_good_one_alerts_once_and_is_resolved(site: Site) -> None:
    site.more = "[manifests]\nrefresh_s = 0.2\n[flags]\nreflag_s = 0.1\n"
    path = site.directory / "manifests/s.zarr/manifest.json"
    good = path.read_bytes()
    async with site.run() as process, bench(site.url) as at:
        await process.until_logged("consuming")
        path.write_text("{")
        (alert,) = await alerts(at, 1)
        assert (alert["key"], alert["resolved"]) == ("manifest-invalid:b/s.zarr", False)
        path.write_text('{"schema_version": 3}')
        await process.until_logged("manifest invalid", count=2)
        await site.publish(created("b", "s.zarr/t/c/0"))
        assert [record["blob_id"] for record in await collected(at, 1)] == ["b_t_0"]
        path.write_bytes(good)
        (alert,) = await alerts(at, 1)
        assert (alert["key"], alert["resolved"]) == ("manifest-invalid:b/s.zarr", True)
        assert await process.stop() == 0
        assert await at.drain("blobmap.flags") == []


async def test_sighup_asks_for_a_comparison(site: Site) -> None:
    site.more = NEVER
    async with site.run() as process:
        await process.until_logged("consuming")
        (site.directory / "manifests/s.zarr/manifest.json").unlink()
        process.send(signal.SIGHUP)
        assert (await process.until_logged("manifest gone"))["scope"] == "s.zarr"
        assert await process.stop() == 0


# --- manifests behind the gateway that sends the events


@dataclass
class Shared:
    """A gateway with data and manifests, which announces writes to both, and the daemon that they go to."""

    directory: Path
    gateway: Gateway
    amqp_url: str
    refresh_s: float = 3600

    def store(self) -> ManifestStore:
        """The manifest root, as others write to it."""
        return ManifestStore(Storage(self.gateway.store("manifests", "data"), name="manifests/data"))

    def run(self) -> AbstractAsyncContextManager[ConsumerProcess]:
        """Runs the daemon as long as the context lasts."""
        secret = self.gateway.secret_key
        config = self.directory / "consumer.toml"
        config.write_text(
            f'[amqp]\nurl = "{self.amqp_url}"\n[source]\ndialect = "versitygw"\n'
            f'[[bucket]]\nname = "data"\ndata = "s3://data"\nmanifests = "s3://manifests/data"\n'
            f'[s3]\nendpoint = "{self.gateway.endpoint}"\nregion = "us-east-1"\nallow_http = true\n'
            f'access_key_id = "{self.gateway.access_key}"\nsecret_access_key = "{secret}"\n'
            f"[manifests]\nrefresh_s = {self.refresh_s}\n[flags]\nreflag_s = 0.1\n"
        )
        return consumer(self.directory / "process", "run", "--config", str(config))


@pytest.fixture
def shared(event_gateway: Gateway, tmp_path: Path, amqp_url: str) -> Shared:
    for bucket in ("data", "manifests"):
        event_gateway.create_bucket(bucket)
    built = Shared(tmp_path, event_gateway, amqp_url)
    built.store().write(manifest("s.zarr"), etag=None)
    return built


async def test_the_gateway_tells_of_manifests_and_that_is_no_news_otherwise(shared: Shared) -> None:
    """Writes of manifests and of what lies beside them cause no record and no flag, and each is read at once."""
    store = shared.store()
    async with shared.run() as process, bench(shared.amqp_url) as at:
        await process.until_logged("consuming")
        etag = await asyncio.to_thread(store.write, manifest("new.zarr"), etag=None)
        assert (await process.until_logged("manifest"))["scope"] == "new.zarr"
        await asyncio.to_thread(store.write, manifest("new.zarr", epoch=2), etag=etag)
        assert (await process.until_logged("manifest", count=2))["epoch"] == 2
        await asyncio.to_thread(store.storage.put, ".blobmap/state/new.zarr.json", b"{}")
        await asyncio.to_thread(obstore.put, shared.gateway.store("data"), "new.zarr/t/c/0", b"x")
        (record,) = await collected(at, 1)
        assert (record["scope"], record["epoch"]) == ("new.zarr", 2)
        await asyncio.to_thread(store.storage.delete, "new.zarr/manifest.json")
        assert (await process.until_logged("manifest gone"))["scope"] == "new.zarr"

        async def all_done() -> bool:
            return await at.ready(EVENTS) == 0

        await eventually(all_done, what="every event is delivered")
        await at.publish([created("data", "s.zarr/t/c/0")], exchange="s3.events")
        (last,) = await collected(at, 1)  # when it is told, all before it are taken
        assert await process.stop() == 0
        told = [record["key"], last["key"]]
        await assert_accounts_balance(at, told, told_before=told)
        assert await at.drain("blobmap.flags") == []
        assert await at.drain(ALERTS) == []


async def test_a_gateway_that_is_away_makes_manifests_stale_and_nothing_is_lost(shared: Shared) -> None:
    shared.refresh_s = 1
    async with shared.run() as process, bench(shared.amqp_url) as at:
        await process.until_logged("consuming")
        await asyncio.to_thread(shared.gateway.stop)
        sent: list[str] = []

        async def stale() -> bool:
            sent.append(f"s.zarr/t/c/{len(sent)}")
            await at.publish([created("data", sent[-1])], exchange="s3.events")
            return bool(process.logged("stale"))

        await eventually(stale, what="it waits with events", within_s=60)
        await asyncio.to_thread(shared.gateway.start)
        await process.until_logged("fresh", within_s=60)
        told = await collected(at, len(sent))
        assert await process.stop() == 0
        await assert_accounts_balance(at, sent, told_before=[record["key"] for record in told])


async def _answered(process: ConsumerProcess, status: int) -> dict[str, Any]:
    async def probe() -> dict[str, Any]:
        answer = await readiness(process)
        return answer if answer["status"] == status else {}

    return await eventually(probe, what=f"/readyz answers {status}")
