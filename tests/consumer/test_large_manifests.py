"""The shipped daemon beside a real broker, while manifests come that are large, many, or too large."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from blobmap.manifest import MAX_BYTES
from tests.support.accounting import assert_accounts_balance
from tests.support.amqp import bench
from tests.support.notifications import created
from tests.support.site import Site, collected, readiness

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.consumer_process import ConsumerProcess

pytestmark = pytest.mark.services

SCOPES = {"large.zarr": 120_000} | {f"many/{number}.zarr": 100 for number in range(600)}


def write_rules(root: Path, scope: str, count: int, *, epoch: int) -> None:
    """A manifest of so many rules, exchanged whole; written here, as the library would take longer than the test."""
    blobs = [
        {
            "id": f"b_{number}",
            "prefixes": [f"{number % 97}/variable-{number}"],
            "bucket": {"index": 0, "width": epoch, "key_encoding": "v3_slash"},
        }
        for number in range(count)
    ]
    document: dict[str, Any] = {"schema_version": 3, "scope": scope, "epoch": epoch, "hot_always": [], "blobs": blobs}
    place = root / scope / "manifest.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    beside = place.with_name("next")
    beside.write_text(json.dumps(document))
    beside.replace(place)


async def exchanged(process: ConsumerProcess, site: Site, told: list[dict[str, Any]]) -> int:
    """Asks, and publishes, again and again until all scopes have their second epoch; how often all was answered."""
    rounds = 0
    async with bench(site.url) as at:
        while sum(line.get("epoch") == 2 for line in process.logged("manifest")) < len(SCOPES):
            first = 10 * rounds
            await site.publish(*(created("b", f"s.zarr/t/c/{number}") for number in range(first, first + 10)))
            told += await collected(at, 10)
            assert (await readiness(process))["status"] == 200
            rounds += 1
    return rounds


async def test_r07_events_are_taken_and_the_session_survives_while_manifests_are_exchanged(
    tmp_path: Path, amqp_url: str
) -> None:
    """The broker takes a peer for dead whose heartbeats stay out; the old rules answer until the new ones are there.

    Where the case has one file of 200 MB: the format allows 64 MiB, and what is larger is refused by name, unread.
    """
    site = Site(tmp_path, amqp_url, more="[http]\nport = 0\n")
    site.write_manifest("s.zarr")
    root = tmp_path / "manifests"
    for scope, count in SCOPES.items():
        write_rules(root, scope, count, epoch=1)
    too_large = root / "too-large.zarr/manifest.json"
    too_large.parent.mkdir()
    with too_large.open("wb") as file:
        file.truncate(200_000_000)

    told: list[dict[str, Any]] = []
    async with site.run() as process, asyncio.timeout(100):
        await process.until_logged("consuming", within_s=60.0)
        (refused,) = process.logged("manifest invalid")
        assert refused["scope"] == "too-large.zarr"
        assert str(MAX_BYTES) in refused["problem"]
        for scope, count in SCOPES.items():
            write_rules(root, scope, count, epoch=2)
        process.send(signal.SIGHUP)
        rounds = await exchanged(process, site, told)
        assert await process.stop() == 0

    assert rounds > 1, "the loop ran meanwhile"
    assert not process.logged("session lost")
    assert len(process.logged("consuming")) == 1
    stopped = process.logged("stopped")[0]
    assert stopped["longest_stall_s"] >= 0
    async with bench(site.url) as at:
        keys = [f"s.zarr/t/c/{number}" for number in range(10 * rounds)]
        await assert_accounts_balance(at, keys, told_before=[record["key"] for record in told])
