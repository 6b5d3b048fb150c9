"""The whole way on small stores, in one process: write, partition, notify, resolve, tell; flag, settle, backfill.

Standard output has the object records and nothing else; what happens is told on standard error.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import aiohttp

from blobmap import ManifestStore, Policy, partition_store
from blobmap.errors import UnavailableError, UsageError
from blobmap.policy import format_size, parse_size
from blobmap.storage import StorageOptions, open_storage
from consumer import settings
from consumer.daemon import Daemon
from consumer.demo_store import notification, write_store
from consumer.memory import recall
from consumer.settings import Bucket, Embedded, Http, Manifests, Settings, Source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blobmap.manifest import Manifest
    from blobmap.service import Outcome
    from consumer.demo_store import Written

_BUCKET = "demo"
_STORE, _STRANGER = "ocean.zarr", "new.zarr"

# Small enough for several blobs of a small store; the true defaults are 100 GiB and 16 MiB.
_POLICY = settings.Policy(t_max="128KiB", t_hot="1KiB")

# Nobody waits for ten minutes to see a demo.
_FLAGS = settings.Flags(settle_s=1, reflag_s=0.5)

_PATIENCE_S = 30.0
_LOOK_S = 0.02


async def run_demo(directory: Path | None) -> None:
    """Runs the demo.

    Args:
        directory: where bucket, manifests and queue are put and stay; None: somewhere temporary.

    Raises:
        UsageError: the directory has something in it.
    """
    with ExitStack() as closing:
        if directory is None:
            directory = Path(closing.enter_context(TemporaryDirectory(prefix="blobmap-demo-")))
        bucket = await asyncio.to_thread(_prepare, directory)
        await _show(directory, bucket)


def _prepare(directory: Path) -> Path:
    if directory.exists() and any(directory.iterdir()):
        raise UsageError(f"--dir {directory}: is not empty, and the demo overwrites nothing")
    bucket = directory / "bucket"
    bucket.mkdir(parents=True)
    return bucket


async def _show(directory: Path, bucket: Path) -> None:
    objects = await asyncio.to_thread(write_store, bucket, _STORE, times=24, variables=("salt", "temp"))
    _say(f"1. A zarr store was written to {bucket / _STORE}: {len(objects)} objects, {_total(objects)}.")

    outcome = await asyncio.to_thread(_partition, bucket, directory / "manifests")
    _say(f"2. It was partitioned: {directory / 'manifests' / _STORE / 'manifest.json'} now says")
    _tell_decisions(outcome)

    stop = asyncio.Event()
    daemon = Daemon(_settings(directory))
    running = asyncio.ensure_future(daemon.run(stop))
    telling = asyncio.ensure_future(_tell(daemon, bucket, directory / "manifests", objects))
    try:
        await asyncio.wait((running, telling), return_when=asyncio.FIRST_COMPLETED)
        if running.done():  # it could not go on, and says why
            running.result()
        cut = await telling
        stop.set()
        await running
    finally:
        for task in (running, telling):
            task.cancel()
        await asyncio.gather(running, telling, return_exceptions=True)
    _sum_up(daemon, objects, cut)


async def _tell(daemon: Daemon, bucket: Path, manifests: Path, objects: Sequence[Written]) -> Manifest:
    """Announces the store, and another one that nobody has partitioned; gives the manifest that this one gets."""
    url = f"http://127.0.0.1:{await daemon.port}/events"
    _say(f"3. The daemon listens. Each object is announced to {url}, as versitygw does it.")
    _say("   One record for each chunk follows; chunks with the same blob_id go to tape together:")
    await _announce(url, objects)
    await _handled(daemon, len(objects))
    strangers = await asyncio.to_thread(write_store, bucket, _STRANGER, times=6, variables=("wind",))
    _say(f"4. {_STRANGER}, which nobody has partitioned, is announced too ({len(strangers)} objects).")
    _say(f"   It is flagged, cut when nobody has written to it for {_FLAGS.settle_s:g} s, and then told, too.")
    _say("   A backfill is owed by every new manifest, so the chunks above can come once more, from that:")
    await _announce(url, strangers)
    await _handled(daemon, len(objects) + len(strangers))
    return await _cut_and_told(manifests)


def _partition(bucket: Path, manifests: Path) -> Outcome:
    options = StorageOptions()
    store = ManifestStore(open_storage(str(manifests), options, create=True))
    policy = Policy(t_max_bytes=parse_size(_POLICY.t_max), t_hot_bytes=parse_size(_POLICY.t_hot))
    return partition_store(open_storage(str(bucket), options), store, _STORE, policy=policy)


def _settings(directory: Path) -> Settings:
    return Settings(
        embedded=Embedded(path=directory / "consumer.sqlite"),
        source=Source(dialect="versitygw"),
        bucket=(Bucket(name=_BUCKET, data=str(directory / "bucket"), manifests=str(directory / "manifests")),),
        http=Http(port=0),
        policy=_POLICY,
        flags=_FLAGS,
        manifests=Manifests(refresh_s=2),
    )


async def _announce(url: str, objects: Sequence[Written]) -> None:
    async with aiohttp.ClientSession() as gateway:
        for written in objects:
            async with gateway.post(url, data=notification(_BUCKET, written)) as answer:
                answer.raise_for_status()


async def _handled(daemon: Daemon, count: int) -> None:
    """Waits until so many events were handled."""
    for _ in range(round(_PATIENCE_S / _LOOK_S)):
        if daemon.status.counts["events"] >= count:
            return
        await asyncio.sleep(_LOOK_S)
    raise UnavailableError(f"only {daemon.status.counts['events']} of {count} events were handled in {_PATIENCE_S:g} s")


async def _cut_and_told(manifests: Path) -> Manifest:
    """Waits until the store that nobody has partitioned has a manifest, and movers were told what it claims."""
    storage = open_storage(str(manifests), StorageOptions())
    for _ in range(round(_PATIENCE_S / _LOOK_S)):
        memory, _ = await asyncio.to_thread(recall, storage, _STRANGER)
        if memory.backfilled is not None:
            return memory.backfilled.manifest()
        await asyncio.sleep(_LOOK_S)
    raise UnavailableError(f"{_STRANGER} was not cut and told in {_PATIENCE_S:g} s")


def _tell_decisions(outcome: Outcome) -> None:
    for row in outcome.decisions:
        if row.blobs is None:
            _say(f"     {row.path}: stays on disk ({row.reason})")
        else:
            blobs = row.blobs
            _say(
                f"     {row.path}: {row.objects} objects in blobs {blobs.id}_{blobs.first} to {blobs.id}_{blobs.last},"
                f" {format_size(blobs.blob_bytes)} each"
            )


def _sum_up(daemon: Daemon, objects: Sequence[Written], cut: Manifest) -> None:
    counts = daemon.status.counts
    _say("")
    _say(f"Of {len(objects)} objects of {_STORE}, {counts['emitted']} are chunks of blobs: each has a record above.")
    _say("The others are metadata and coordinates, which readers need at once: they never move to tape.")
    _say(
        f"{counts['unclaimed']} objects of {_STRANGER} came before it had a manifest. It has epoch {cut.epoch} now, and"
        " a backfill has told its chunks."
    )
    _say("Next: config/minimal.toml is the shortest configuration beside a real gateway and a broker.")


def _total(objects: Sequence[Written]) -> str:
    return format_size(sum(written.size for written in objects))


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
