from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from obstore.store import LocalStore, MemoryStore

from blobmap import ManifestStore, Policy, partition_store
from blobmap.blob_sizes import Window
from blobmap.census import Size
from blobmap.manifest import Blob, Bucket, Manifest, Pin
from blobmap.pins import add_pin
from blobmap.report import LARGE_COORDINATE_BYTES, ArrayNote, Report, Unclaimed, make_report
from blobmap.storage import Storage, open_storage
from tests.support.backends import small_options
from tests.support.stores import RawArray, put_all, write_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from blobmap.objects import Entry
    from tests.support.backends import Backend
    from tests.support.small_s3 import SmallS3

SMALL = Policy(t_max_bytes=200, t_hot_bytes=30)
TIME = RawArray("time", (20,), (1,), ["time"], nbytes=2)
TAS = RawArray("tas", (20, 3), (1, 3), ["time", "x"], nbytes=50)


def filled() -> tuple[MemoryStore, ManifestStore]:
    """Two rows: one store that is cut and pinned in part, a new one, and files; and an object outside of any row."""
    store, manifests = MemoryStore(), ManifestStore(MemoryStore())
    write_store(store, "a/st.zarr", [TAS, TIME, RawArray("pr", (20, 3), (1, 3), ["time", "x"], nbytes=10)])
    partition_store(store, manifests, "a/st.zarr", policy=SMALL)
    add_pin(manifests, "a/st.zarr", Pin("pr", "x"))
    write_store(store, "b/new.zarr", [RawArray("v", (4, 5), (1, 1), nbytes=7, present=[(0, 0), (3, 4), (1, 1)])])
    put_all(store, dict.fromkeys(["b/raw/x.nc", "b/raw/y.nc", "readme"], b"12345"))
    return store, manifests


def report_of(store: MemoryStore | Storage, manifests: ManifestStore, prefix: str = "") -> Report:
    storage = store if isinstance(store, Storage) else Storage(store)
    return make_report(storage, manifests, prefix, window=Window(100, 200))


def listed(store: MemoryStore, prefix: str = "") -> Size:
    entries = [entry for page in store.list(prefix or None) for entry in page]
    return Size(len(entries), sum(entry["size"] for entry in entries))


def test_the_sums_add_up_to_the_listing() -> None:
    store, manifests = filled()
    report = report_of(store, manifests)
    assert report.total.total == listed(store)
    rows = {row.name: row for row in report.rows}
    assert list(rows) == ["", "a", "b"]
    assert (rows["a"].total, rows["b"].total) == (listed(store, "a"), listed(store, "b"))
    assert rows["a"].archivable == Size(20, 1000)
    assert rows["a"].pinned == Size(20, 200)
    assert rows["a"].unmanaged == Size()
    assert rows["b"].unmanaged == Size(5, 31)
    assert rows[""].unmanaged == Size(1, 5)
    assert report.problems == []
    parts = [report.total.archivable, report.total.hot, report.total.pinned, report.total.unmanaged]
    assert sum(part.objects for part in parts) == listed(store).objects


def test_what_is_hot_is_told_by_class() -> None:
    store, manifests = filled()
    write_store(store, "a/st.zarr", [RawArray("crs", (), (), [], nbytes=1), RawArray("tiny", (3,), (3,), ["x"])])
    partition_store(store, manifests, "a/st.zarr")
    report = report_of(store, manifests)
    assert report.hot.pop("metadata").objects == 8
    assert report.hot == {"dimension coordinate": Size(20, 40), "scalar": Size(1, 1), "small array": Size(1, 4)}
    assert sum(size.stored_bytes for size in report.hot.values()) < report.total.hot.stored_bytes


def test_what_is_hot_below_a_pattern_and_no_array_is_told_too() -> None:
    store = MemoryStore()
    put_all(store, {"a/x/y": b"123"})
    manifests = ManifestStore(MemoryStore())
    manifests.write(Manifest("a", 1, ("x/**",)), etag=None)
    assert report_of(store, manifests).hot == {"other": Size(1, 3)}


def test_blobs_are_counted_by_row_and_held_against_the_window() -> None:
    store, manifests = filled()
    manifests.write(Manifest("", 1, (), (Blob("b_raw", ("b/raw",), None), Blob("b_top", ("readme",), None))), etag=None)
    report = report_of(store, manifests)
    assert [(row.name, row.blobs) for row in report.rows] == [("", 0), ("a", 5), ("b", 1), ("readme", 1)]
    assert (report.total.blobs, report.blobs.blobs) == (7, 7)
    assert (report.blobs.below.blobs, report.blobs.inside.blobs, report.blobs.above.blobs) == (2, 5, 0)


def test_stored_objects_are_held_against_the_grid() -> None:
    store, manifests = filled()
    report = report_of(store, manifests)
    assert (report.total.array_objects, report.total.grid_objects) == (63, 80)
    assert report.incomplete == [ArrayNote("b/new.zarr", "v", "data", 3, 20, 21)]


def test_what_nobody_claims_is_named() -> None:
    store, manifests = filled()
    write_store(store, "a/st.zarr", [RawArray("ua", (2,), (1,), ["x"], nbytes=100)])
    put_all(store, {"a/st.zarr/notes.txt": b"1"})
    report = report_of(store, manifests)
    assert report.unclaimed == [
        Unclaimed("a/st.zarr", "a/st.zarr", Size(3, 201), ["ua"]),
        Unclaimed("b/new.zarr", None, Size(3, 21), ["v"]),
    ]
    assert report.loose == {"b": Size(2, 10), "": Size(1, 5)}


def test_a_prefix_is_counted_under_the_manifests_around_it() -> None:
    store, manifests = filled()
    report = report_of(store, manifests, "a/st.zarr/tas")
    assert report.total.total == listed(store, "a/st.zarr/tas")
    assert report.total.archivable == Size(20, 1000)
    write_store(store, "a/st.zarr", [RawArray("ua", (2,), (1,), ["x"], nbytes=100)])
    (unclaimed,) = report_of(store, manifests, "a/st.zarr/ua").unclaimed
    assert unclaimed.held_by == "a/st.zarr"


def test_arrays_that_have_outgrown_what_keeps_them_hot_are_named() -> None:
    store, manifests = MemoryStore(), ManifestStore(MemoryStore())
    coordinates = {"coordinates": "lat lon"}
    arrays = [
        RawArray("pr", (4, 3), (1, 3), ["time", "x"], nbytes=2, attributes=coordinates),
        RawArray("lat", (3,), (3,), ["x"], nbytes=4),
        RawArray("lon", (3,), (3,), ["x"], nbytes=4),
        RawArray("time", (4,), (1,), ["time"], nbytes=2),
    ]
    write_store(store, "a", arrays)
    partition_store(store, manifests, "a", policy=Policy(t_hot_bytes=100, t_aux_bytes=500))
    assert report_of(store, manifests).outgrown == []
    put_all(store, {f"a/pr/c/{index}/0": bytes(60) for index in range(4)})
    put_all(store, {"a/lat/c/0": bytes(400), "a/lon/c/0": bytes(600), "a/time/c/0": bytes(700)})
    assert report_of(store, manifests).outgrown == [
        ArrayNote("a", "lon", "auxiliary coordinate", 1, 1, 600),
        ArrayNote("a", "pr", "data", 4, 4, 240),
    ]


class Large(Storage):
    """A real store in which every object of some arrays seems to have a GiB: no test can store that."""

    def pages(self, prefix: str = "", *, after: str | None = None) -> Iterator[Sequence[Entry]]:
        for page in super().pages(prefix, after=after):
            yield [{**entry, "size": LARGE_COORDINATE_BYTES} if "/c/" in entry["path"] else entry for entry in page]


def test_coordinates_that_keep_much_on_disk_are_named() -> None:
    store, manifests = MemoryStore(), ManifestStore(MemoryStore())
    write_store(store, "a", [RawArray("time", (2,), (1,), ["time"]), RawArray("x", (1,), (1,), ["x"])])
    partition_store(store, manifests, "a")
    assert report_of(Large(store), manifests).large_coordinates == [
        ArrayNote("a", "time", "dimension coordinate", 2, 2, 2 * LARGE_COORDINATE_BYTES)
    ]


def test_arrays_called_by_numbers_are_not_called_empty() -> None:
    store, manifests = MemoryStore(), ManifestStore(MemoryStore())
    write_store(store, "img.zarr", [RawArray("0", (4, 4), (1, 1), format=2, separator="/")])
    put_all(store, {"img.zarr/5": b"may be a chunk of a group's"})
    report = report_of(store, manifests)
    assert report.incomplete == []
    assert report.total.grid_objects == 0


@pytest.mark.parametrize("prefix", ["", "img.zarr", "img.zarr/0"])
def test_arrays_called_by_numbers_are_not_called_incomplete(prefix: str) -> None:
    """Of more than a page: until its document is met, `0/7/3` may be a chunk of an array that is called `img.zarr`."""
    store, manifests = MemoryStore(), ManifestStore(MemoryStore())
    write_store(store, "img.zarr", [RawArray("0", (50, 50), (1, 1), ["y", "x"], keys="v2")])
    report = report_of(store, manifests, prefix)
    assert report.incomplete == []
    assert report.total.array_objects == report.total.grid_objects
    assert report.total.unmanaged == Size(2500, 10_000)


def test_directory_markers_and_odd_keys(backend: Backend) -> None:
    backend.fill("a/x", "a/y/z")
    storage = backend.open()
    report = report_of(storage, ManifestStore(MemoryStore()))
    assert report.total.total == Size(2, 2)


def test_what_cannot_be_read_is_told_and_not_counted(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path.parent)
    (tmp_path / "x").write_bytes(b"1")
    memory = MemoryStore()
    memory.put("a/manifest.json", b"{")
    report = report_of(Storage(LocalStore(tmp_path)), ManifestStore(memory))
    assert report.total.total == Size(1, 1)
    assert any("'link' could not be listed" in problem for problem in report.problems)
    assert any("a/manifest.json" in problem for problem in report.problems)


def test_a_policy_of_another_writer_is_read_as_far_as_it_goes() -> None:
    store, manifests = MemoryStore(), ManifestStore(MemoryStore())
    write_store(store, "a", [RawArray("v", (4,), (1,), ["x"], nbytes=10)])
    rule = Blob("b_t", ("t/c",), Bucket(0, 1, "v3_slash"))
    manifests.write(Manifest("a", 1, ("v/**",), (rule,), policy={"t_hot_bytes": 39, "t_max_bytes": -1}), etag=None)
    assert [note.path for note in report_of(store, manifests).outgrown] == ["v"]


@pytest.mark.parametrize("scopes", [3, 100])
def test_many_scopes_are_counted_like_few(scopes: int) -> None:
    store, manifests = MemoryStore(), ManifestStore(MemoryStore())
    for number in range(scopes):
        write_store(store, f"p/s{number}", [RawArray("v", (4,), (1,), ["x"], nbytes=10)])
        rule = Blob("b_v", ("v/c",), Bucket(0, 2, "v3_slash"))
        manifests.write(Manifest(f"p/s{number}", 1, (), (rule,)), etag=None)
    report = report_of(store, manifests)
    assert report.total.total == listed(store)
    assert report.total.blobs == 2 * scopes


def test_a_key_that_cannot_be_addressed_costs_no_other_key(small_s3: SmallS3) -> None:
    good = ["st.zarr/t/c/0/0", "st.zarr/t/c/0/1", "st.zarr/t/c/1/0"]
    small_s3.objects = {
        **dict.fromkeys([*good, "st.zarr//t/c/0/9", "raw//"], b"123"),
        "st.zarr/": b"",
        "st.zarr/t/": b"",
    }
    storage = open_storage(f"s3://{small_s3.bucket}", small_options(small_s3))
    report = report_of(storage, ManifestStore(MemoryStore()))
    assert report.total.total == Size(3, 9)
    assert [problem.rpartition(": ")[2] for problem in report.problems] == [
        "'raw//' could not be listed, and is not counted",
        "'st.zarr//' could not be listed, and is not counted",
    ]
