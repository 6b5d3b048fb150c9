from __future__ import annotations

from dataclasses import replace

import pytest
from obstore.store import MemoryStore

from blobmap import ManifestStore, Policy, Trie, partition_store
from blobmap.errors import MissingError
from blobmap.state import Unclaimable, read_state
from blobmap.unclaimed import Unclaimed, find_unclaimed
from tests.support.recording import RecordingStorage
from tests.support.stores import RawArray, put_all, write_store

TAS = RawArray("atm/tas", (4, 4), (1, 4), dims=("time", "y"))
OLD = RawArray("old", (4, 4), (1, 4), format=2, separator=None)
ODD = RawArray("odd", (4,), (1,), dims=("time",), members={"chunk_key_encoding": {"name": "unheard-of"}})


@pytest.fixture
def data() -> MemoryStore:
    return MemoryStore()


def partitioned(data: MemoryStore, scope: str) -> tuple[ManifestStore, Trie]:
    manifests = ManifestStore(MemoryStore())
    partition_store(data, manifests, scope, policy=Policy(t_hot_bytes=0))
    trie = Trie()
    trie.add_all(manifests.load_all())
    return manifests, trie


@pytest.mark.parametrize("scope", ["s", ""])
def test_before_a_cut_everything_is_unclaimed_and_after_it_nothing(data: MemoryStore, scope: str) -> None:
    write_store(data, scope, [TAS, OLD])
    storage = RecordingStorage(data)
    assert set(find_unclaimed(storage, Trie(), scope).etags) == {"atm/tas", "old"}
    assert storage.listed == [], "no array is listed"
    _, trie = partitioned(data, scope)
    assert find_unclaimed(storage, trie, scope).etags == {}


def test_what_was_tried_in_vain_is_tried_again_when_it_changes(data: MemoryStore) -> None:
    write_store(data, "s", [TAS])
    put_all(data, {"s/odd/zarr.json": ODD.documents()["zarr.json"], "s/odd/0": b"1"})
    manifests, trie = partitioned(data, "s")
    tried = read_state(manifests.storage, "s").unclaimable
    storage = RecordingStorage(data)
    found = find_unclaimed(storage, trie, "s")
    assert set(found.etags) == {"odd"}
    assert found.worth_trying(tried) == ()
    assert found.worth_trying({"odd": replace(tried["odd"], version="0")}) == ("odd",)
    put_all(data, {"s/odd/zarr.json": ODD.documents()["zarr.json"] + b" "})
    assert find_unclaimed(storage, trie, "s").worth_trying(tried) == ("odd",)


def test_an_array_that_nobody_has_tried_is_worth_it() -> None:
    found = Unclaimed({"a": "1", "b": "2"})
    assert found.worth_trying({"a": Unclaimable("why", "1", "another")}) == ("a", "b")


def test_a_document_that_cannot_be_read_is_named(data: MemoryStore) -> None:
    write_store(data, "s", [TAS])
    put_all(data, {"s/broken/zarr.json": b"{"})
    found = find_unclaimed(RecordingStorage(data), Trie(), "s")
    assert set(found.etags) == {"atm/tas"}
    assert len(found.problems) == 1
    assert "s/broken" in found.problems[0]


def test_where_no_store_is_there_is_an_error(data: MemoryStore) -> None:
    with pytest.raises(MissingError, match="no zarr store at 's'"):
        find_unclaimed(RecordingStorage(data), Trie(), "s")
