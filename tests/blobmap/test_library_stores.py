from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from obstore.store import LocalStore, MemoryStore

from blobmap import ManifestStore, Policy, partition_store
from blobmap.chunk_keys import METADATA_NAMES
from tests.support import library_stores as library
from tests.support.invariants import assert_all_claimed, assert_all_hot, assert_metadata_is_never_claimed, trie_of

if TYPE_CHECKING:
    from pathlib import Path

    from blobmap.decisions import Decision
    from blobmap.service import Outcome
    from tests.support.library_stores import Format

POLICY = Policy(t_max_bytes=2000, t_hot_bytes=1, t_aux_bytes=500)


@dataclass
class Place:
    """Where a library writes a store, and where we find it."""

    data: LocalStore | MemoryStore
    scope: str
    target: library.Target

    def cut(self, policy: Policy = POLICY) -> tuple[Outcome, dict[str, Decision]]:
        """Partition, and check every object against the row of its array."""
        outcome = partition_store(self.data, ManifestStore(MemoryStore()), self.scope, policy=policy)
        rows = {row.path: row for row in outcome.decisions}
        keys = [entry["path"] for page in self.data.list() for entry in page]
        trie = trie_of(outcome.manifest)
        assert_metadata_is_never_claimed(trie, keys)
        chunks: dict[str, list[str]] = {path: [] for path in rows}
        for key in keys:
            below = key.removeprefix(f"{self.scope}/") if self.scope else key
            if key.rpartition("/")[2] not in METADATA_NAMES:
                chunks[max((path for path in rows if below.startswith(path + "/")), key=len)].append(key)
        for path, row in rows.items():
            assert row.objects == len(chunks[path])
            assert row.verdict in ("cut", "hot")
            (assert_all_claimed if row.verdict == "cut" else assert_all_hot)(trie, chunks[path])
        assert outcome.problems == ()
        return outcome, rows


@pytest.fixture(params=["directory", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "directory":
        return Place(LocalStore(tmp_path), "st", library.in_directory(tmp_path / "st"))
    memory = MemoryStore()
    return Place(memory, "", library.in_obstore(memory))


@pytest.mark.parametrize("fmt", [2, 3])
@pytest.mark.parametrize("consolidated", [True, False])
def test_a_dataset_of_xarray(place: Place, fmt: Format, *, consolidated: bool) -> None:
    library.write_dataset(place.target, fmt, consolidated=consolidated)
    outcome, rows = place.cut()
    assert {path: row.role for path, row in rows.items()} == {
        "crs": "scalar",
        "lat": "auxiliary coordinate",
        "lon": "auxiliary coordinate",
        "obs": "data",
        "pr": "data",
        "station": "dimension coordinate",
        "tas": "data",
        "time": "dimension coordinate",
        "x": "dimension coordinate",
        "y": "dimension coordinate",
    }
    assert {path for path, row in rows.items() if row.verdict == "cut"} == {"obs", "pr", "tas"}
    assert {path: row.blobs.axis for path, row in rows.items() if row.blobs} == {"obs": 1, "pr": 0, "tas": 0}
    assert rows["tas"].objects == rows["tas"].grid_objects == 48
    assert outcome.warnings == ()


@pytest.mark.parametrize("fmt", [2, 3])
def test_a_tree_of_xarray(place: Place, fmt: Format) -> None:
    library.write_tree(place.target, fmt)
    _, rows = place.cut()
    assert {path for path, row in rows.items() if row.verdict == "cut"} == {"atm/tas", "atm/hi/tas", "ocean/pr"}
    assert rows["atm/hi/tas"].blobs is not None
    assert rows["atm/hi/tas"].blobs.id == "b_atm__hi__tas"


def test_shards_of_zarr_are_the_objects(place: Place) -> None:
    library.write_sharded(place.target)
    _, rows = place.cut()
    assert (rows["hus"].objects, rows["hus"].grid_objects, rows["hus"].sharded) == (8, 8, True)
    assert rows["hus"].mean_object_bytes > 8 * 8 * 4
    assert rows["time"].role == "dimension coordinate"


@pytest.mark.parametrize("fmt", [2, 3])
def test_arrays_of_any_type_are_read(place: Place, fmt: Format) -> None:
    library.write_types(place.target, fmt)
    _, rows = place.cut()
    assert {path: row.objects for path, row in rows.items()} == dict.fromkeys(
        ["bools", "bytes", "complex", "records", "spans", "strings", "times", "variable"], 4
    )
    assert {row.verdict for row in rows.values()} == {"cut"}


@pytest.mark.parametrize("fmt", [2, 3])
def test_chunk_keys_in_every_spelling_of_zarr(place: Place, fmt: Format) -> None:
    library.write_separators(place.target, fmt)
    outcome, rows = place.cut()
    assert len(rows) == (2 if fmt == 2 else 4)
    assert {row.objects for row in rows.values()} == {12}
    encodings = [blob.bucket.key_encoding for blob in outcome.manifest.blobs if blob.bucket]
    assert encodings == ["v2_flat", "v2_slash", *(["v2_flat", "v3_slash"] if fmt == 3 else [])]
