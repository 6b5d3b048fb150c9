"""Stores that grow in every way that writers know, cut again after each step."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore

from blobmap import ManifestStore, Policy, Trie, partition_store
from blobmap.cuts import slab_objects
from tests.support.growth import SCOPE, GrowingArray, GrowingStore, additions, append, changes, growth
from tests.support.invariants import (
    assert_all_claimed,
    assert_all_hot,
    assert_existing_keys_keep_their_blob,
    assert_metadata_is_never_claimed,
    assert_size_promise,
    trie_of,
)
from tests.support.stores import put_all

if TYPE_CHECKING:
    from blobmap.service import Outcome

POLICY = Policy(t_max_bytes=500, t_hot_bytes=40, pow2_floor=16)


class Growing:
    """A growing store, its manifests, and what was true when each rule was made."""

    def __init__(self) -> None:
        self.store = GrowingStore()
        self.manifests = ManifestStore(MemoryStore())
        self.trie = Trie()
        self.keys: set[str] = set()
        self.slabs: dict[str, tuple[int, int]] = {}

    def cut(self) -> Outcome:
        """Partition as it is now, and check what has to hold after every step."""
        data = MemoryStore()
        objects = self.store.objects()
        put_all(data, objects)
        outcome = partition_store(data, self.manifests, SCOPE, policy=POLICY if not self.keys else None)
        after = trie_of(outcome.manifest)
        ids = [blob.id for blob in outcome.manifest.blobs]
        assert len(ids) == len(set(ids))
        coordinates = [key for array in self.store.coordinates() for key in array.sizes_by_key()]
        surviving = self.keys.intersection(objects).difference(coordinates)
        assert_existing_keys_keep_their_blob(self.trie, after, surviving)
        assert_metadata_is_never_claimed(after, objects)
        assert_all_hot(after, coordinates)
        for row in outcome.decisions:
            keys = self.store.arrays[row.path].sizes_by_key()
            if row.verdict in ("cut", "kept"):
                assert_all_claimed(after, keys)
            elif row.verdict == "hot":
                assert_all_hot(after, keys)
                assert row.role == "dimension coordinate" or sum(keys.values()) < POLICY.t_hot_bytes
            else:
                assert any(f"{row.path!r} gets no rule" in line for line in outcome.warnings)
        again = partition_store(data, self.manifests, SCOPE)
        assert not again.written
        self.trie, self.keys = after, set(objects)
        return outcome

    def check_sizes(self, outcome: Outcome) -> None:
        """The size promise, for every array that has a rule of several slabs a blob."""
        assert outcome.manifest.provenance is not None
        for row in outcome.decisions:
            array = self.store.arrays[row.path]
            if row.verdict == "cut" and row.blobs is not None and row.blobs.axis is not None:
                self.slabs[row.path] = (row.blobs.axis, slab_objects(array.grid(), row.blobs.axis))
            if row.verdict not in ("cut", "kept") or row.blobs is None:
                continue
            entry: Any = outcome.manifest.provenance[row.path]
            axis, slab = self.slabs[row.path]
            if row.blobs.width == 1:
                continue
            assert_size_promise(
                self.trie,
                array.sizes_by_key(),
                POLICY,
                planned_bytes=entry["planned_object_bytes"],
                slab_growth=Fraction(slab_objects(array.grid(), axis), slab),
                clamp=True,
            )


@given(st.lists(additions, min_size=1, max_size=4), st.lists(changes, max_size=6))
@settings(max_examples=120)
def test_existing_keys_keep_their_blob_and_everything_archivable_is_claimed(first: list[Any], later: list[Any]) -> None:
    growing = Growing()
    for action, arguments in first:
        action(growing.store, *arguments)
    growing.cut()
    for action, arguments in later:
        action(growing.store, *arguments)
        growing.cut()


@given(st.lists(additions, min_size=1, max_size=3), st.lists(growth, min_size=1, max_size=6), st.data())
@settings(max_examples=80)
def test_no_blob_of_a_growing_array_breaks_the_size_promise(
    first: list[Any], later: list[Any], data: st.DataObject
) -> None:
    growing = Growing()
    for action, arguments in first:
        action(growing.store, *arguments)
    growing.check_sizes(growing.cut())
    for action, arguments in later:
        for array in growing.store.arrays.values():
            array.compression = data.draw(st.sampled_from([1, 2, 3, 8, 64]))
        action(growing.store, *arguments)
        growing.check_sizes(growing.cut())


def test_an_appended_array_gets_new_blobs_and_no_new_manifest() -> None:
    growing = Growing()
    growing.store.add(GrowingArray("tas", [40, 8], [4, 8], ["time", "x"], (3, "/")))
    first = growing.cut()
    assert first.manifest.epoch == 1
    for _ in range(5):
        append(growing.store, 0, 0, 400)
        assert growing.cut().manifest.epoch == 1
    assert growing.trie.lookup(f"{SCOPE}/tas/c/500/0").blob_id == "b_tas_71"


def test_an_array_that_stops_compressing_stays_within_the_clamp() -> None:
    growing = Growing()
    growing.store.add(GrowingArray("tas", [400, 4], [4, 4], ["time", "x"], (3, "/"), compression=64))
    growing.check_sizes(growing.cut())
    growing.store.arrays["tas"].compression = 1
    append(growing.store, 0, 0, 4000)
    outcome = growing.cut()
    growing.check_sizes(outcome)
    row = outcome.decisions[0]
    assert row.blobs is not None
    assert row.blobs.width == 32
    assert outcome.warnings == ()
