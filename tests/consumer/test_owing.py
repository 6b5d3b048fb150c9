from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from blobmap import ManifestStore
from blobmap.errors import UnavailableError
from blobmap.manifest import manifest_key
from blobmap.storage import StorageOptions, open_storage
from consumer.catalog import Catalog
from consumer.owing import Owing
from tests.support.manifests import manifest
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path


class Asked:
    """Who is asked about scopes, and fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.considered: list[str] = []
        self.settled: list[str] = []
        self.failures = failures

    async def consider(self, bucket: str, scope: str, last_seen: datetime | None = None) -> None:
        assert (bucket, last_seen) == ("b", None)
        if self.failures:
            self.failures -= 1
            raise UnavailableError("not now")
        self.considered.append(scope)

    async def settle(self, bucket: str, scope: str) -> None:
        assert bucket == "b"
        self.settled.append(scope)


@pytest.mark.parametrize("failures", [0, 3])
async def test_every_scope_at_start_and_then_each_that_changes(tmp_path: Path, failures: int) -> None:
    store = ManifestStore(open_storage(str(tmp_path), StorageOptions()))
    for scope in ("s.zarr", "s.zarr/in", "other"):
        store.write(manifest(scope), etag=None)
    catalog = Catalog({"b": (str(tmp_path), StorageOptions())}, refresh_s=3600, lease_s=7200, give_up_s=5)
    await catalog.load()
    asked = Asked(failures)
    stop = asyncio.Event()
    tasks = [asyncio.create_task(run(stop)) for run in (Owing(catalog, asked, asked).keep, catalog.keep)]
    await settled(lambda: sorted(asked.settled) == ["other", "s.zarr", "s.zarr/in"])
    assert sorted(asked.considered) == ["other", "s.zarr", "s.zarr/in"]
    asked.settled.clear()
    store.write(manifest("other", epoch=2), etag=store.read("other").etag)
    catalog.ask("b", "other")
    await settled(lambda: asked.settled == ["other"])
    asked.settled.clear()
    store.storage.delete(manifest_key("s.zarr/in"))
    catalog.ask("b")
    await settled(lambda: sorted(asked.settled) == ["s.zarr", "s.zarr/in"])
    stop.set()
    async with asyncio.timeout(20):
        await asyncio.gather(*tasks)


async def settled(probe: Callable[[], bool]) -> None:
    async def probed() -> bool:
        return probe()

    await eventually(probed, what="the scopes were looked at")
