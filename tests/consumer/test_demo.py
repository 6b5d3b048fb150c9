from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import zarr

from blobmap.errors import RefusedError, UsageError
from consumer.demo import run_demo
from consumer.demo_store import Written, notification, write_store
from consumer.events import ObjectEvent, parse_message
from tests.support.consumer_process import consumer

RECORDED = Path(__file__).parents[1] / "golden/versitygw_events.ndjson"


async def test_the_demo_shows_the_whole_way(tmp_path: Path) -> None:
    async with consumer(tmp_path / "process", "demo", "--dir", str(tmp_path / "demo")) as process:
        assert await process.end() == 0
    records = [json.loads(line) for line in process.out.splitlines()]
    announced = [record for record in records if record["source"] == "event"]
    blobs = {record["blob_id"] for record in announced}
    assert {record["key"] for record in announced} == {
        f"ocean.zarr/{variable}/c/{step}/0/0" for variable in ("salt", "temp") for step in range(24)
    }
    assert blobs == {f"b_{variable}_{number}" for variable in ("salt", "temp") for number in range(3)}
    assert len(announced) == 48
    late = {record["key"] for record in records if record["scope"] == "new.zarr"}
    assert late == {f"new.zarr/wind/c/{step}/0/0" for step in range(6)}
    assert "It has epoch 1 now" in process.err
    assert "Of 53 objects of ocean.zarr, 48 are chunks of blobs" in process.err
    assert "{" not in process.err, "no log lines between the explanations"
    assert (tmp_path / "demo/manifests/ocean.zarr/manifest.json").exists()


async def test_the_demo_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    async with consumer(tmp_path / "process", "demo") as process:
        assert await process.end() == 0
    assert list((tmp_path / "tmp").iterdir()) == []


async def test_the_demo_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(UsageError, match="is not empty"):
        await run_demo(tmp_path)


async def test_a_demo_that_cannot_go_on_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consumer.daemon.serve_http", _no_port)
    with pytest.raises(RefusedError, match="no port"):
        await run_demo(tmp_path / "demo")


def _no_port(*_: object, **__: object) -> Any:
    raise RefusedError("no port")


def test_the_store_of_the_demo_is_one_for_zarr(tmp_path: Path) -> None:
    write_store(tmp_path, "s.zarr", times=3, variables=("temp",))
    group = zarr.open_group(str(tmp_path / "s.zarr"), mode="r")
    temp = group["temp"]
    assert isinstance(temp, zarr.Array)
    assert (temp.shape, temp.chunks, temp.metadata.dimension_names) == (  # type: ignore[union-attr]  # zarr v3
        (3, 64, 64),
        (1, 64, 64),
        ("time", "y", "x"),
    )
    assert bytes(temp[2, 0, 0].tobytes()) == b"\x02" * 4  # type: ignore[union-attr]  # an array scalar


def shape(value: object) -> object:
    """The field names of a JSON value, all the way down."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    return [shape(inner) for inner in value] if isinstance(value, list) else None


def test_its_notifications_look_like_recorded_ones() -> None:
    recorded = next(row for row in map(json.loads, RECORDED.read_text().splitlines()) if row["action"] == "put")
    built = notification("bucket", Written("a b", 5, "5d41402abc4b2a76b9719d911017c592"))
    assert shape(json.loads(built)) == shape(json.loads(recorded["body"]))
    events = [parse_message(body, "versitygw") for body in (built, recorded["body"].encode())]
    ((one,), (other,)) = events
    assert isinstance(one, ObjectEvent)
    assert isinstance(other, ObjectEvent)
    assert (one.bucket, one.key, one.size, one.etag, one.kind) == (
        other.bucket,
        other.key,
        other.size,
        other.etag,
        other.kind,
    )
