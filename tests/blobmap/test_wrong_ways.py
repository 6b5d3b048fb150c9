"""Known ways to get a cut wrong; each of these was met in other programs, or in an earlier version of this one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from obstore.store import MemoryStore

from blobmap import ManifestStore, Policy, Trie, partition_store
from blobmap.claims import own_claims
from blobmap.decisions import Before
from blobmap.manifest import Blob, Manifest, Pin
from tests.support.measured import GIB, MIB, decide, measured, plan
from tests.support.stores import RawArray, chunk_keys, group_v3, store_objects, write_store

SMALL = Policy(t_max_bytes=64, t_hot_bytes=1)


def test_a_width_that_ignores_the_other_axes() -> None:
    array = measured(RawArray("v", (1000, 100), (1, 1), ["time", "x"], dtype="string"), 100 * MIB)
    row = decide(array)["v"]
    assert row.blobs is not None
    assert row.blobs.blob_bytes <= 100 * GIB
    assert row.blobs.last == 99


@pytest.mark.parametrize(
    ("grid", "dims", "axis"),
    [
        ((1, 1, 500), ["y", "x", "time"], 2),
        ((1, 1, 500), None, 2),
        ((50, 800, 1), ["member", "time", "x"], 1),
    ],
)
def test_always_cutting_axis_0(grid: tuple[int, ...], dims: list[str] | None, axis: int) -> None:
    row = decide(measured(RawArray("v", grid, (1,) * len(grid), dims, dtype="string"), GIB))["v"]
    assert row.blobs is not None
    assert row.blobs.axis == axis
    assert row.blobs.last > 0
    assert row.blobs.blob_bytes <= 100 * GIB


def test_a_rule_frozen_while_the_store_was_small_never_splits_later() -> None:
    data, store = MemoryStore(), MemoryStore()
    small = RawArray("v", (2, 4), (1, 4), ["time", "x"], nbytes=16)
    write_store(data, "st", [small])
    partition_store(data, ManifestStore(store), "st", policy=SMALL)
    grown = replace(small, shape=(40, 4))
    write_store(data, "st", [grown])
    assert not partition_store(data, ManifestStore(store), "st").written
    trie = Trie()
    trie.add_all(ManifestStore(store).load_all())
    assert [trie.lookup(key).blob_id for key in chunk_keys("st", grown)] == [f"b_v_{n // 4}" for n in range(40)]


def test_a_rule_frozen_while_the_store_was_half_uploaded_never_splits_later() -> None:
    raw = RawArray("v", (1000, 10), (1, 1), ["time", "x"], dtype="string")
    half = measured(raw, GIB, objects=3)
    whole = measured(raw, GIB)
    first, later = decide(half)["v"], decide(whole)["v"]
    assert first.blobs == later.blobs
    assert first.blobs is not None
    assert first.blobs.width == 10


def test_a_rule_for_the_whole_store_swallows_what_is_added_later() -> None:
    data, store = MemoryStore(), MemoryStore()
    write_store(data, "st", [RawArray("v", (4, 4), (1, 4), ["time", "x"])])
    outcome = partition_store(data, ManifestStore(store), "st", policy=SMALL)
    assert all(prefix for blob in outcome.manifest.blobs for prefix in blob.prefixes)
    trie = Trie()
    trie.add_all(ManifestStore(store).load_all())
    later = store_objects("st/in.zarr", [RawArray("w", (4, 4), (1, 4))])
    for key in ("st/time/c/0", "st/README.md", "st/v/README", *later):
        assert trie.lookup(key).kind == ("hot" if key.endswith("zarr.json") else "unmanaged")


def test_dimension_names_unread_send_a_large_coordinate_to_tape() -> None:
    cells = 12 * 4**10
    cell = measured(RawArray("cell", (cells,), (cells // 8,), ["cell"], dtype="int64"), 12 * MIB)
    tas = measured(RawArray("tas", (999, cells), (1, cells), ["time", "cell"]), 24 * MIB)
    rows = decide(cell, tas)
    assert cell.stored_bytes == 96 * MIB
    assert rows["cell"].verdict == "hot"
    assert rows["tas"].verdict == "cut"


@pytest.mark.parametrize(
    "dtype",
    [
        "string",
        "bfloat16",
        {"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 1}},
        {"name": "struct", "configuration": {"fields": [["a", "int32"], ["b", "string"]]}},
        "nobody/knows",
    ],
)
@pytest.mark.parametrize("fmt", [2, 3])
def test_arrays_are_dropped_for_a_type_that_nobody_knows(dtype: object, fmt: int) -> None:
    spelled = {"string": "|O", "bfloat16": "bfloat16", "nobody/knows": "?9"}.get(
        str(dtype), [["a", "<i4"], ["b", "|O"]]
    )
    raw = RawArray("v", (9, 4), (1, 4), ["t", "x"], fmt, dtype=dtype if fmt == 3 else spelled)  # type: ignore[arg-type]  # 2 or 3
    assert decide(measured(raw, GIB))["v"].verdict == "cut"


def test_ids_swap_when_the_listing_order_changes() -> None:
    arrays = [measured(RawArray(path, (9, 4), (1, 4)), GIB) for path in ("a_b", "a/b", "a.b", "A_b", "a__b")]
    one, other = plan(arrays).manifest.blobs, plan(reversed(arrays)).manifest.blobs
    assert one == other
    for array in arrays:
        (alone,) = plan([array]).manifest.blobs
        assert alone in one


def test_force_loses_pins_policy_or_the_epoch() -> None:
    array = measured(RawArray("v", (9, 4), (1, 4), ["time", "x"], dtype="string"), GIB)
    pins = (Pin("v", "in use", "me", "2026-01-01T00:00:00Z", None),)
    previous = Manifest("st", 41, blobs=(Blob("b_root", ("",), None),), pinned=pins, policy={"t_max_bytes": 2 * GIB})
    found = plan([array], Before(previous, 41, own_claims(previous, [array])), scope="st", force=True)
    assert found.manifest.pinned == pins
    assert found.manifest.policy == {"t_max_bytes": 2 * GIB}
    assert found.manifest.epoch == 42
    assert found.decisions[0].blobs is not None
    assert found.decisions[0].blobs.width == 2
    assert found.difference.removed == ("b_root",)


def test_an_inner_store_that_is_cut_later_moves_what_the_outer_one_claims() -> None:
    data, store = MemoryStore(), MemoryStore()
    inner = RawArray("in.zarr/v", (4, 4), (1, 4), ["time", "x"])
    write_store(data, "out", [inner])
    data.put("out/in.zarr/zarr.json", group_v3())
    partition_store(data, ManifestStore(store), "out", policy=SMALL)
    later = partition_store(data, ManifestStore(store), "out/in.zarr", policy=SMALL)
    assert later.manifest.blobs == ()
    trie = Trie()
    trie.add_all(ManifestStore(store).load_all())
    assert {trie.lookup(key).scope for key in chunk_keys("out", inner)} == {"out"}
