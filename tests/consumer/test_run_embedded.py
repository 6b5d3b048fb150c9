"""`blobmap-consumer run` without a broker, as it is shipped."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
import pytest
from obstore.store import LocalStore

from blobmap import ManifestStore
from blobmap.storage import StorageOptions, open_storage
from consumer.embedded import EmbeddedQueue
from tests.support.consumer_process import ConsumerProcess, consumer
from tests.support.manifests import manifest
from tests.support.notifications import TEST_EVENT, created
from tests.support.posting import post, url_of
from tests.support.stores import RawArray, chunk_keys, write_store
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path


@dataclass
class Site:
    """A configuration with its manifests; a test adds keys to its sections."""

    directory: Path
    manifests: str
    sink: str
    top: str = ""
    http: str = ""
    s3: str = ""
    bucket: str = ""

    @property
    def out(self) -> Path:
        return self.directory / "out.ndjson"

    def run(self) -> AbstractAsyncContextManager[ConsumerProcess]:
        config = self.directory / "consumer.toml"
        queue = self.directory / "queue.sqlite"
        config.write_text(
            f'{self.top}\n[embedded]\npath = "{queue}"\n[source]\ndialect = "versitygw"\n[s3]\n{self.s3}\n'
            f'[http]\nport = 0\n{self.http}\n[sink]\npath = "{self.sink}"\n'
            f'[[bucket]]\nname = "b"\nmanifests = "{self.manifests}"\n{self.bucket}'
        )
        return consumer(self.directory / "process", "run", "--config", str(config))

    def keys(self) -> list[str]:
        return (
            [json.loads(line)["key"] for line in self.out.read_text().split("\n") if line] if self.out.exists() else []
        )

    async def told(self, count: int) -> list[str]:
        async def enough() -> list[str]:
            return self.keys() if len(self.keys()) >= count else []

        return await eventually(enough, what=f"{count} records in the file")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    store = ManifestStore(open_storage(str(tmp_path / "manifests"), StorageOptions(), create=True))
    store.write(manifest("s.zarr"), etag=None)
    return Site(tmp_path, manifests=str(tmp_path / "manifests"), sink=str(tmp_path / "out.ndjson"))


async def test_events_become_lines_and_one_alert(site: Site) -> None:
    async with site.run() as process:
        url = await url_of(process)
        bodies = [created("b", f"s.zarr/t/c/{number}") for number in range(50)]
        assert await post(url, TEST_EVENT, *bodies, *(created("b", f"n.zarr/t/{n}") for n in range(9))) == {200}
        assert set(await site.told(50)) == {f"s.zarr/t/c/{number}" for number in range(50)}
        await process.until_logged("alert")
        assert await process.stop() == 0
    queue = await EmbeddedQueue.open(site.directory / "queue.sqlite", prefetch=1)
    (alert,) = await queue.messages("blobmap.alerts")
    await queue.close()
    assert json.loads(alert.body)["key"] == "unmanaged-store:b/n.zarr"


async def test_a_fresh_store_is_flagged_partitioned_and_told_by_one_process(site: Site) -> None:
    data = site.directory / "data"
    data.mkdir()
    array = RawArray("tas", (6, 4), (1, 4), dims=("time", "y"))
    write_store(LocalStore(data), "fresh", [array])
    site.bucket = f'data = "{data}"\n[flags]\nsettle_s = 0.2\nreflag_s = 0.2\n[manifests]\nrefresh_s = 0.2\n'
    site.bucket += '[policy]\nt_hot = "1B"\n'
    keys = chunk_keys("fresh", array)
    async with site.run() as process:
        assert await post(await url_of(process), *(created("b", key) for key in keys)) == {200}
        told = await site.told(len(keys))
        assert await process.stop() == 0
    assert set(told) == set(keys)


async def test_what_was_answered_survives_a_kill_in_the_middle(site: Site) -> None:
    """Killed while 500 are being posted, and once more; the third process tells what the others had answered."""
    answered: set[str] = set()
    for run in range(2):
        async with site.run() as process, aiohttp.ClientSession(await url_of(process)) as gateway:

            async def one(key: str, gateway: aiohttp.ClientSession = gateway) -> None:
                async with gateway.post("/events", data=created("b", key)) as answer:
                    assert answer.status == 200
                    answered.add(key)

            posts = [asyncio.ensure_future(one(f"s.zarr/t/c/{run}/{number}")) for number in range(500)]
            await asyncio.wait(posts, return_when=asyncio.FIRST_COMPLETED)
            process.send(signal.SIGKILL)
            results = await asyncio.gather(*posts, return_exceptions=True)
            assert any(isinstance(result, aiohttp.ClientError) for result in results), "it was not in the middle"
            await process.end()
    assert answered
    async with site.run() as process:

        async def told() -> bool:
            return answered <= set(site.keys())

        await process.until_logged("listening")  # all may be told already
        await eventually(told, what="every answered event is told")
        assert await process.stop() == 0


async def test_events_wait_for_manifests_that_cannot_be_read_yet(site: Site) -> None:
    """Nobody else would take them, so that it waits longer than it may where there is a broker."""
    manifests, site.manifests = site.manifests, "s3://unreachable"
    site.s3 = 'endpoint = "http://127.0.0.1:1"\nregion = "x"\nallow_http = true\nanonymous = true'
    async with site.run() as process:
        url = await url_of(process)
        assert await post(url, *(created("b", f"s.zarr/t/c/{number}") for number in range(50))) == {200}
        assert (await process.until_logged("waiting"))["give_up_s"] == float("inf")
        async with aiohttp.ClientSession(url) as client, client.get("/readyz") as answer:
            assert (answer.status, (await answer.json())["ready"]) == (503, False)
        assert await process.stop() == 0
    assert site.keys() == []
    site.manifests = manifests
    async with site.run() as process:
        assert set(await site.told(50)) == {f"s.zarr/t/c/{number}" for number in range(50)}
        assert await process.stop() == 0


async def test_a_full_disk_is_answered_503_and_the_daemon_goes_on_when_there_is_room(site: Site) -> None:
    """The process may make no file larger than this: writes fail as on a full disk, on real files."""
    async with site.run() as process:
        url = await url_of(process)
        assert await post(url, created("b", "s.zarr/t/c/0")) == {200}
        await site.told(1)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        assert await post(url, created("b", "s.zarr/t/c/1")) == {503}
        trouble = await process.until_logged("file")
        assert trouble["works"] is False
        async with aiohttp.ClientSession(url) as client, client.get("/readyz") as answer:
            assert any("embedded.path" in reason for reason in (await answer.json())["reasons"])
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert await post(url, created("b", "s.zarr/t/c/2")) == {200}
        assert set(await site.told(2)) == {"s.zarr/t/c/0", "s.zarr/t/c/2"}
        assert await process.stop() == 0
    assert "Traceback" not in process.err


async def test_a_token_is_asked_for(site: Site) -> None:
    word = "some-word"
    site.http = f'token = "{word}"'
    async with site.run() as process:
        url = await url_of(process)
        assert await post(url, created("b", "s.zarr/t/c/0")) == {401}
        assert await post(url, created("b", "s.zarr/t/c/1"), token=word) == {200}
        assert await site.told(1) == ["s.zarr/t/c/1"]
        assert await process.stop() == 0
    assert word not in process.err


async def test_a_sink_that_takes_nothing_does_not_hold_up_the_end(site: Site) -> None:
    out, site.sink = site.sink, "/dev/full"
    site.top = "grace_s = 1"
    async with site.run() as process:
        url = await url_of(process)
        assert await post(url, created("b", "s.zarr/t/c/0")) == {200}
        trouble = await process.until_logged("output")
        assert (trouble["queue"], trouble["reason"]) == ("blobmap.objects", "/dev/full: No space left on device")
        async with aiohttp.ClientSession(url) as client, client.get("/readyz") as answer:
            assert (await answer.json())["reasons"] == ["blobmap.objects: /dev/full: No space left on device"]
        assert await process.stop() == 0
        assert process.logged("stopped before everything was confirmed")
    site.sink = out
    async with site.run() as process:
        assert await site.told(1) == ["s.zarr/t/c/0"]
        assert await process.stop() == 0


async def test_a_file_that_another_process_has_is_exit_3(site: Site) -> None:
    async with site.run() as first:
        await first.until_logged("listening")
        async with consumer(
            site.directory / "other", "run", "--config", str(site.directory / "consumer.toml")
        ) as second:
            assert await second.end() == 3
        assert "blobmap-consumer: embedded.path" in second.err
        assert await first.stop() == 0
