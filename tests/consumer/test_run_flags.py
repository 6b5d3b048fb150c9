"""What `blobmap-consumer run` flags of what real writers put through a real gateway."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import obstore
import pytest

from blobmap import ManifestStore
from blobmap.storage import StorageOptions, open_storage
from tests.support.amqp import bench
from tests.support.library_stores import in_obstore, write_tree
from tests.support.manifests import manifest
from tests.support.site import Site
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.gateway import Gateway
    from tests.support.amqp import Bench
    from tests.support.library_stores import Format

pytestmark = pytest.mark.services

OTHERS = ("ice/snapshots/S", "ice/repo", "ice/chunks/C", "files/2020/a.nc", "files/2020/b.nc", "lone.grib")


async def drained(at: Bench, flags: dict[str, dict[str, Any]], *prefixes: str) -> None:
    """Takes flags until each of these prefixes has one."""

    async def enough() -> bool:
        for got in await at.drain("blobmap.flags"):
            flag = json.loads(got.body)
            assert flag["key"] == f"cordex/{flag['prefix']}"
            flags[flag["prefix"]] = flag
        return set(prefixes) <= set(flags)

    await eventually(enough, what=f"flags of {prefixes}", within_s=60)


async def test_stores_and_other_data_behind_a_gateway(tmp_path: Path, amqp_url: str, event_gateway: Gateway) -> None:
    """Stores without telling names, of which the writers put documents before and after chunks."""
    event_gateway.create_bucket("cordex")
    manifests = ManifestStore(open_storage(str(tmp_path / "own"), StorageOptions(), create=True))
    manifests.write(manifest("s.zarr"), etag=None)
    bucket = f'[[bucket]]\nname = "cordex"\nmanifests = "{tmp_path / "own"}"\ndata = "s3://cordex"\n'
    s3 = (
        f'[s3]\nendpoint = "{event_gateway.endpoint}"\nallow_http = true\n'
        f'access_key_id = "{event_gateway.access_key}"\nsecret_access_key = "{event_gateway.secret_key}"\n'
    )
    site = Site(tmp_path, amqp_url, more=bucket + s3)
    flags: dict[str, dict[str, Any]] = {}
    async with site.run() as process, bench(site.url) as at:
        await process.until_logged("consuming")
        for key in OTHERS:
            await obstore.put_async(event_gateway.store("cordex"), key, b"1")
        stores: tuple[tuple[str, Format], ...] = (("project/run/three", 3), ("project/two", 2), ("s.zarr", 3))
        for prefix, fmt in stores:
            await asyncio.to_thread(write_tree, in_obstore(event_gateway.store("cordex", prefix)), fmt)
        await drained(at, flags, "ice", "files", "", *(prefix for prefix, _ in stores))
        assert await process.stop() == 0
    assert {prefix: (flag["scope"], flag["reason"]) for prefix, flag in flags.items()} == {
        "ice": (None, "new-store"),
        "files": (None, "new-store"),
        "": (None, "new-store"),
        "project/run/three": ("project/run/three", "new-store"),
        "project/two": ("project/two", "new-store"),
        "s.zarr": ("s.zarr", "unclaimed-array"),
    }
    assert "stores are guessed" not in process.err
