from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from obstore.store import LocalStore, MemoryStore

from blobmap import ManifestStore, partition_store
from blobmap.errors import UnavailableError
from blobmap.manifest import Blob, Manifest
from blobmap.scan import FoundForeign, FoundStore, Scan, scan_stores
from blobmap.storage import Storage
from tests.support.recording import RecordingStorage
from tests.support.stores import RawArray, group_v3, put_all, store_objects, write_store

if TYPE_CHECKING:
    from pathlib import Path

ARRAYS = [RawArray("g/tas", (9, 4), (1, 4), ["time", "x"]), RawArray("g/time", (9,), (9,), ["time"])]


def scan(objects: dict[str, bytes], manifests: MemoryStore | None = None, prefix: str = "") -> Scan:
    data = MemoryStore()
    put_all(data, objects)
    return scan_stores(data, ManifestStore(manifests or MemoryStore()), prefix)


def store_at(scope: str, fmt: int = 3) -> dict[str, bytes]:
    return store_objects(scope, [RawArray(a.path, a.shape, a.chunks, a.dims, fmt) for a in ARRAYS])  # type: ignore[arg-type]  # 2 or 3


def test_stores_are_found_at_any_depth_and_in_both_formats() -> None:
    objects = {
        **store_at("top.zarr"),
        **store_at("a/b/c/d/deep", fmt=2),
        **store_objects("a/single", [RawArray("", (9, 4), (1, 4), format=2)]),
        "empty.zarr/zarr.json": group_v3(),
    }
    found = scan(objects)
    assert [(store.scope, store.arrays, store.epoch, store.is_new) for store in found.stores] == [
        ("a/b/c/d/deep", 2, None, True),
        ("a/single", 1, None, True),
        ("empty.zarr", 0, None, True),
        ("top.zarr", 2, None, True),
    ]
    assert (found.foreign, found.problems) == ((), ())
    assert found.stores[0].unclaimed == ("g/tas", "g/time")
    below = scan(objects, prefix="a/b/")
    assert [store.scope for store in below.stores] == ["a/b/c/d/deep"]
    assert [store.scope for store in scan(objects, prefix="top.zarr").stores] == ["top.zarr"]
    assert scan(objects, prefix="nowhere") == Scan()
    assert scan({}) == Scan()


def test_a_store_at_the_root_of_the_bucket_is_found() -> None:
    found = scan(store_at(""))
    assert [(store.scope, store.arrays) for store in found.stores] == [("", 2)]


def test_a_scan_reads_documents_and_lists_no_array() -> None:
    data = MemoryStore()
    objects = write_store(data, "a/st", ARRAYS)
    storage = RecordingStorage(data)
    scan_stores(storage, ManifestStore(MemoryStore()))
    assert sorted(storage.got) == sorted(key for key in objects if key.endswith("zarr.json"))
    assert storage.listed == []
    assert sorted(storage.levels) == ["", "a", "a/st", "a/st/g"]


def test_a_cut_store_has_its_epoch_and_new_arrays_are_marked() -> None:
    data, manifests = MemoryStore(), MemoryStore()
    write_store(data, "st", ARRAYS)
    partition_store(data, ManifestStore(manifests), "st")
    (cut,) = scan_stores(data, ManifestStore(manifests)).stores
    assert cut == FoundStore("st", 1, 2)
    assert not cut.is_new
    write_store(data, "st", [RawArray("g/pr", (9, 4), (1, 4), ["time", "x"])])
    (grown,) = scan_stores(data, ManifestStore(manifests)).stores
    assert grown == FoundStore("st", 1, 3, unclaimed=("g/pr",))


def test_a_store_that_another_scope_claims_is_not_new() -> None:
    manifests = MemoryStore()
    ManifestStore(manifests).write(Manifest("", 1, blobs=(Blob("b_root", ("out",), None),)), etag=None)
    (store,) = scan(store_at("out/st"), manifests).stores
    assert store == FoundStore("out/st", None, 2, claimed_by=("",))
    assert not store.is_new


def test_stores_inside_a_store_are_said_and_not_entered() -> None:
    objects = {
        **store_at("out"),
        **store_at("out/g/in.zarr"),
        **store_at("out/raw/x/gap"),
    }
    metadata = {"metadata": {"v": {"node_type": "array"}}}
    objects["out/cons/zarr.json"] = group_v3(consolidated_metadata=metadata)
    (store,) = scan(objects).stores
    assert store.arrays == 6
    assert store.inner == ("out/cons", "out/g/in.zarr", "out/raw/x/gap")


FOREIGN = {
    "cmip/tas_1850.nc": b"12",
    "cmip/v1/tas_1851.nc": b"345",
    "cmip/v1/README": b"6",
    "era/00.grb2": b"1",
    "era/01.GRIB": b"1",
    "packed.zarr.zip": b"123",
    **dict.fromkeys(("ice/repo", "ice/snapshots/A", "ice/manifests/B", "ice/chunks/C"), b"1"),
    **dict.fromkeys(("ice1/refs/branch.main/ref.json", "ice1/snapshots/A", "ice1/chunks/C"), b"22"),
    "kerchunk/ref.json": json.dumps({"version": 1, "refs": {".zgroup": "{}"}}).encode(),
    "kerchunk/more.json": json.dumps({"version": 1, "refs": {".zgroup": "{}", "a": "b"}}).encode(),
    "parq/ref.parq/.zmetadata": b'{"metadata": {}, "record_size": 10}',
    "parq/ref.parq/tas/refs.0.parq": b"1234",
    "config/settings.json": b'{"a": 1}',
    "markers/.zattrs": b"{}",
    "broken/.zmetadata": b"{}",
}


def test_foreign_layouts_are_named_as_what_they_are_with_counts() -> None:
    found = scan({**FOREIGN, **store_at("st")})
    sizes = [len(FOREIGN[key]) for key in ("kerchunk/ref.json", "kerchunk/more.json")]
    parquet = [len(FOREIGN[key]) for key in FOREIGN if key.startswith("parq")]
    assert found.foreign == (
        FoundForeign("", "zip archive", 1, 3),
        FoundForeign("cmip", "netCDF or HDF5 files", 2, 5),
        FoundForeign("cmip", "other objects", 1, 1),
        FoundForeign("config", "other objects", 1, 8),
        FoundForeign("era", "GRIB files", 2, 2),
        FoundForeign("ice", "icechunk repository", 4, 4),
        FoundForeign("ice1", "icechunk repository", 3, 6),
        FoundForeign("kerchunk", "kerchunk references", 2, sum(sizes)),
        FoundForeign("parq", "kerchunk references", 2, sum(parquet)),
    )
    assert [store.scope for store in found.stores] == ["st"]


def test_foreign_counts_stand_at_the_highest_folder_without_a_store() -> None:
    objects = {**store_at("a/x/st"), "a/x/n/1.nc": b"1", "a/x/n/m/2.nc": b"1", "a/3.nc": b"1", "a/y/z/4.nc": b"1"}
    assert scan(objects).foreign == (
        FoundForeign("a", "netCDF or HDF5 files", 1, 1),
        FoundForeign("a/x/n", "netCDF or HDF5 files", 2, 2),
        FoundForeign("a/y", "netCDF or HDF5 files", 1, 1),
    )
    assert scan(objects, prefix="a/y").foreign == (FoundForeign("a/y/z", "netCDF or HDF5 files", 1, 1),)


def test_a_long_json_document_is_not_opened() -> None:
    data = MemoryStore()
    data.put("x/big.json", b" " * (17 * 2**20))
    storage = RecordingStorage(data)
    assert scan_stores(storage, ManifestStore(MemoryStore())).foreign[0].kind == "other objects"
    assert storage.got == []


def test_chunks_without_a_document_are_searched_and_not_walked() -> None:
    data = MemoryStore()
    put_all(data, {f"lost/{i}/{j}/0": b"1" for i in range(150) for j in range(3)})
    write_store(data, "lost/7/x", ARRAYS)
    storage = RecordingStorage(data)
    found = scan_stores(storage, ManifestStore(MemoryStore()))
    assert found.foreign == (FoundForeign("lost", "other objects", 450, 450),)
    assert [store.scope for store in found.stores] == ["lost/7/x"]
    assert len(storage.levels) < 10


def test_what_cannot_be_read_is_named_and_the_rest_is_scanned(tmp_path: Path) -> None:
    for key, content in {**store_at("good"), **store_at("bad"), "bad/g/tas/zarr.json": b"{"}.items():
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "good/link").symlink_to("/etc")
    manifests = MemoryStore()
    manifests.put("other/manifest.json", b"{")
    found = scan_stores(LocalStore(tmp_path), ManifestStore(manifests))
    assert [(store.scope, store.arrays) for store in found.stores] == [("bad", 1), ("good", 2)]
    assert len(found.problems) == 3
    assert found.problems[0].startswith("bad/g/tas/zarr.json: ")
    assert "'good/link' could not be listed" in found.problems[1]
    assert "other/manifest.json" in found.problems[2]
    assert found.stores[0].problems == found.problems[:1]


def test_a_broken_root_document_is_a_store_with_a_problem() -> None:
    (store,) = scan({**store_at("st"), "st/zarr.json": b"{"}).stores
    assert (store.scope, store.arrays, len(store.problems)) == ("st", 2, 1)


def test_a_store_that_goes_away_ends_the_scan() -> None:
    data = MemoryStore()
    put_all(data, FOREIGN)
    with pytest.raises(UnavailableError):
        scan_stores(RecordingStorage(data, fail_at="ice"), ManifestStore(MemoryStore()))


def test_excluded_segments_are_not_scanned() -> None:
    assert scan({**store_at(".sgwtmp/st"), "x/.snapshot/a.nc": b"1"}) == Scan()


def test_progress_is_told() -> None:
    data = MemoryStore()
    write_store(data, "a/st", ARRAYS)
    told: list[tuple[int, int]] = []
    scan_stores(Storage(data), ManifestStore(MemoryStore()), on_progress=lambda *seen: told.append(seen))
    assert told == [(1, 0), (2, 0), (3, 1)]
