"""The whole way on a small store, in one process: write, partition, notify, resolve, tell, flag.

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
import orjson

from blobmap import ManifestStore, Policy, partition_store
from blobmap.errors import UnavailableError, UsageError
from blobmap.policy import format_size, parse_size
from blobmap.storage import StorageOptions, open_storage
from consumer.daemon import Daemon
from consumer.demo_store import notification, write_store
from consumer.embedded import EmbeddedQueue
from consumer.settings import Bucket, Embedded, Http, Settings, Source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blobmap.service import Outcome
    from consumer.demo_store import Written

_BUCKET = "demo"
_STORE, _STRANGER = "ocean.zarr", "new.zarr"

# Small enough for several blobs of a small store; the true defaults are 100 GiB and 16 MiB.
_POLICY = Policy(t_max_bytes=parse_size("128KiB"), t_hot_bytes=parse_size("1KiB"))

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

    settings = _settings(directory)
    stop = asyncio.Event()
    daemon = Daemon(settings)
    running = asyncio.ensure_future(daemon.run(stop))
    telling = asyncio.ensure_future(_tell(daemon, bucket, objects))
    try:
        await asyncio.wait((running, telling), return_when=asyncio.FIRST_COMPLETED)
        if running.done():  # it could not go on, and says why
            running.result()
        strangers = await telling
        stop.set()
        await running
    finally:
        for task in (running, telling):
            task.cancel()
        await asyncio.gather(running, telling, return_exceptions=True)
    _sum_up(daemon, objects, strangers, await _flags(directory, settings))


async def _tell(daemon: Daemon, bucket: Path, objects: Sequence[Written]) -> list[Written]:
    """Announces the store, and another one that nobody has partitioned; gives the objects of that."""
    url = f"http://127.0.0.1:{await daemon.port}/events"
    _say(f"3. The daemon listens. Each object is announced to {url}, as versitygw does it.")
    _say("   One record for each chunk follows; chunks with the same blob_id go to tape together:")
    await _announce(url, objects)
    await _handled(daemon, len(objects))
    strangers = await asyncio.to_thread(write_store, bucket, _STRANGER, times=6, variables=("wind",))
    await _announce(url, strangers)
    await _handled(daemon, len(objects) + len(strangers))
    return strangers


def _partition(bucket: Path, manifests: Path) -> Outcome:
    options = StorageOptions()
    store = ManifestStore(open_storage(str(manifests), options, create=True))
    return partition_store(open_storage(str(bucket), options), store, _STORE, policy=_POLICY)


def _settings(directory: Path) -> Settings:
    return Settings(
        embedded=Embedded(path=directory / "consumer.sqlite"),
        source=Source(dialect="versitygw"),
        bucket=(Bucket(name=_BUCKET, data=str(directory / "bucket"), manifests=str(directory / "manifests")),),
        http=Http(port=0),
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


async def _flags(directory: Path, settings: Settings) -> list[dict[str, str]]:
    queue = await EmbeddedQueue.open(directory / "consumer.sqlite", prefetch=1)
    try:
        return [orjson.loads(message.body) for message in await queue.messages(settings.topology.flags)]
    finally:
        await queue.close()


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


def _sum_up(
    daemon: Daemon, objects: Sequence[Written], strangers: Sequence[Written], flags: Sequence[dict[str, str]]
) -> None:
    counts = daemon.status.counts
    _say(f"4. {_STRANGER}, which nobody has partitioned, was announced too ({len(strangers)} objects):")
    for flag in flags:
        _say(f"     one flag: {flag['reason']} {flag['prefix']!r}, first seen with {flag['first_object']!r}")
    _say("")
    _say(f"Of {len(objects)} objects of {_STORE}, {counts['emitted']} are chunks of blobs: each has a record above.")
    _say("The others are metadata and coordinates, which readers need at once: they never move to tape.")
    _say(
        f"{counts['unclaimed']} chunks of {_STRANGER} made {len(flags)} flag, and stay on disk until it is partitioned."
    )
    _say("Next: config/minimal.toml is the shortest configuration beside a real gateway and a broker.")


def _total(objects: Sequence[Written]) -> str:
    return format_size(sum(written.size for written in objects))


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
