"""`blobmap-consumer backfill`, and what comes of it: a real broker, a real gateway, the file of embedded mode."""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from blobmap import ManifestStore
from blobmap.errors import RefusedError, UsageError
from blobmap.storage import StorageOptions, open_storage
from consumer import assembly
from consumer.aside import Aside
from consumer.backfill import Backfills
from consumer.broker import open_session
from consumer.by_hand import add_arguments, run_backfill
from consumer.catalog import Catalog
from consumer.deliveries import Deliveries, PatientSink
from consumer.embedded import EmbeddedQueue
from consumer.ports import Status
from consumer.settings import S3, Amqp, Bucket, Embedded, Manifests, Mover, Settings, Sink, Source
from consumer.tasks import parse_task
from tests.support.amqp import bench
from tests.support.backends import at_gateway
from tests.support.manifests import manifest
from tests.support.site import records
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.gateway import Gateway

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
MOVERS = (Mover(name="tape-a", buckets=("b",)), Mover(name="tape-b", buckets=("b", "blind")))


def settings(**more: Any) -> Settings:
    buckets = (
        Bucket(name="b", manifests="/m", data="/d"),
        Bucket(name="blind", manifests="/n"),
    )
    given: dict[str, Any] = {"source": Source(dialect="versitygw"), "bucket": buckets, "mover": MOVERS}
    return Settings(**(given | more))


def words(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    return parser.parse_args(given)


async def test_the_task_lies_in_the_file_beside_a_daemon_that_has_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "events.db"
    queue = await EmbeddedQueue.open(path, prefetch=10)
    asked = words("--bucket", "b", "--prefix", "a/s.zarr/", "--since", "2026-11-30T12:00", "--mover", "tape-a")
    await run_backfill(settings(embedded=Embedded(path=path)), asked)
    (message,) = await queue.messages("blobmap.tasks")
    await queue.close()
    task = parse_task(message.body)
    assert (task.bucket, task.scope, task.epoch, task.prefix) == ("b", None, None, "a/s.zarr")
    assert (task.since, task.mover, task.after, message.key) == (NOON, "tape-a", None, task.run)
    assert capsys.readouterr().err == (
        f"blobmap-consumer: task {task.run} in blobmap.tasks: tell mover 'tape-a' of bucket 'b', prefix 'a/s.zarr', "
        "modified since 2026-11-30T12:00:00+00:00\n"
    )


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (("--bucket", "x"), "--bucket 'x' is none of b, blind"),
        (("--bucket", "blind"), "bucket 'blind': data is missing"),
        (("--bucket", "b", "--mover", "x"), "--mover 'x' is none of bucket 'b': tape-a, tape-b"),
        (("--bucket", "b", "--prefix", "a//b"), "--prefix 'a//b': segments"),
        (("--bucket", "b", "--prefix", "/a"), "--prefix '/a': segments"),
        (("--bucket", "b"), "there is no such file"),
    ],
)
async def test_what_cannot_be_told_is_refused(tmp_path: Path, given: tuple[str, ...], fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        await run_backfill(settings(embedded=Embedded(path=tmp_path / "absent")), words(*given))


async def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    await asyncio.to_thread(path.write_bytes, b"no database at all, but long enough to be looked at")
    with pytest.raises((UsageError, RefusedError), match=r"embedded\.path"):
        await run_backfill(settings(embedded=Embedded(path=path)), words("--bucket", "b"))


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-11-30", datetime(2026, 11, 30, tzinfo=UTC)),
        ("2026-11-30T12:00:00Z", NOON),
        ("2026-11-30T13:00:00+01:00", NOON),
    ],
)
def test_times_are_utc_where_they_do_not_say(text: str, time: datetime) -> None:
    assert words("--bucket", "b", "--since", text).since == time


def test_what_is_no_time() -> None:
    with pytest.raises(argparse.ArgumentError, match="'yesterday' is no ISO 8601 date or time"):
        words("--bucket", "b", "--since", "yesterday")


@pytest.mark.services
async def test_from_the_command_to_one_mover(gateway: Gateway, bucket: str, amqp_url: str, tmp_path: Path) -> None:
    """Told by a worker's loop, through the real services, and then by a manifest of its own to both movers."""
    data = replace(
        at_gateway(gateway, bucket), directory=None
    )  # written through the gateway, which then has their tags
    keys = [f"s.zarr/t/c/{number}/0" for number in range(25)]
    data.fill(*keys, "s.zarr/zarr.json", "s.zarr/kept/c/0", "elsewhere/t/c/0")
    options = data.options
    given = settings(
        amqp=Amqp(url=SecretStr(amqp_url)),
        bucket=(Bucket(name="b", manifests=str(tmp_path), data=data.url),),
        mover=(MOVERS[0], Mover(name="tape-b", buckets=("b",))),
        sink=Sink(batch_objects=10),
        manifests=Manifests(refresh_s=0.2),
        s3=S3(
            endpoint=options.endpoint,
            allow_http=True,
            access_key_id=options.access_key_id,
            secret_access_key=SecretStr(options.secret_access_key or ""),
        ),
    )
    ManifestStore(open_storage(str(tmp_path), StorageOptions())).write(manifest("s.zarr"), etag=None)
    await run_backfill(given, words("--bucket", "b", "--mover", "tape-b"))
    stop = asyncio.Event()
    catalog = Catalog(assembly.manifest_roots(given), refresh_s=0.2, lease_s=0.4, give_up_s=10)
    await catalog.load()
    keeping = asyncio.create_task(catalog.keep(stop))
    session_at = open_session(
        parse(given), assembly.laid_out(given), queue="blobmap.tasks", prefetch=1, status=Status()
    )
    async with session_at as session, bench(amqp_url) as at:
        sink = PatientSink(session.sink, Status(), patience_s=60)
        backfills = Backfills(assembly.backfill_plan(given), catalog, assembly.data(given), sink=sink)
        loop = Deliveries(backfills, aside=Aside("blobmap.dead", "alerts", Status()), patience_s=60)
        working = asyncio.create_task(loop.run(session.source, sink, stop))
        told: dict[str, list[dict[str, Any]]] = {"a": [], "b": []}

        async def both() -> tuple[set[str], set[str]]:
            for mover in told:
                told[mover] += await records(at, f"blobmap.objects.tape-{mover}")
            return {record["key"] for record in told["a"]}, {record["key"] for record in told["b"]}

        async def by_hand() -> bool:
            return (await both())[1] == set(keys)

        async def by_manifest() -> bool:
            return (await both())[0] == set(keys)

        await eventually(by_hand, what="tape-b was told by hand")
        assert told["a"] == []
        await backfills.consider("b", "s.zarr")
        await eventually(by_manifest, what="tape-a was told by the manifest")
        listed = {entry["path"]: (entry["e_tag"] or "").strip('"') for page in data.open().pages() for entry in page}
        assert all(record["etag"] == listed[record["key"]] for record in told["a"] + told["b"])
        assert {record["id"] for record in told["a"]} == {record["id"] for record in told["b"]}
        stop.set()
        await working
        entries = [
            (group["movers"], entry[0])
            for body in await at.read_stream("blobmap.journal")
            for group in json.loads(body)["told"]
            for entry in group["entries"]
        ]
        assert {key for movers, key in entries if movers == ["tape-b"]} == set(keys)
        assert {key for movers, key in entries if movers == ["tape-a", "tape-b"]} == set(keys)
        assert await at.ready("blobmap.tasks") == await at.ready("blobmap.dead") == 0
    await keeping


def parse(given: Settings) -> Any:
    assert given.amqp is not None
    return given.amqp.address()
