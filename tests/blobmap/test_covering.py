from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import MemoryStore

from blobmap import ManifestStore, Trie
from blobmap.covering import Covering
from blobmap.errors import MissingError
from blobmap.manifest import Blob, Manifest
from blobmap.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blobmap.objects import Body


class CountingStorage(Storage):
    """A real store that notes what is read of it."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.read: list[str] = []
        self.listings = 0

    def get(self, key: str, *, limit: int | None = None) -> Body:
        self.read.append(key)
        return super().get(key, limit=limit)

    def pages(self, prefix: str = "", *, after: str | None = None):  # type: ignore[no-untyped-def]  # as above
        self.listings += 1
        return super().pages(prefix, after=after)


def held(scopes: Iterable[str]) -> tuple[CountingStorage, Covering]:
    memory = MemoryStore()
    writer = ManifestStore(memory)
    for scope in scopes:
        writer.write(Manifest(scope, 1, (), (Blob("b_all", ("",), None),)), etag=None)
    storage = CountingStorage(memory)
    return storage, Covering(ManifestStore(storage))


def read_scopes(storage: CountingStorage) -> set[str]:
    return {key.removesuffix("manifest.json").rstrip("/") for key in storage.read}


def test_few_keys_ask_at_their_own_prefixes_and_list_nothing() -> None:
    storage, covering = held(["", "a/st.zarr", "b/st.zarr"])
    covering.cover(["a/st.zarr/tas/c/0"])
    assert storage.listings == 0
    assert read_scopes(storage) == {"", "a", "a/st.zarr", "a/st.zarr/tas", "a/st.zarr/tas/c", "a/st.zarr/tas/c/0"}
    assert covering.trie.scopes() == ("", "a/st.zarr")
    covering.cover(["a/st.zarr/tas/c/0"])
    assert len(storage.read) == 6


def test_many_keys_list_once_and_read_what_they_meet() -> None:
    storage, covering = held([f"p{number}/st.zarr" for number in range(200)])
    keys = [f"p{number}/st.zarr/t/{number}" for number in range(100)]
    covering.cover(keys)
    covering.cover([*keys, "p150/st.zarr/x"])
    assert storage.listings == 1
    assert len(covering.trie.scopes()) == 101
    assert len(storage.read) == 101


def test_a_scope_is_read_before_the_first_key_in_it_is_answered() -> None:
    _, covering = held(["a", "a/b/c"])
    batches = [["x"] * 100, ["a/b/x"], ["a/b"], ["a/b/c/x"], ["a/b/c"]]
    answers = []
    for batch in batches:
        covering.cover(batch)
        answers.append(covering.trie.lookup(batch[0]).scope)
    assert answers == [None, "a", "a", "a/b/c", "a/b/c"]


@pytest.mark.parametrize("key", ["a/../b", "a//b", "/a", "a\udcff/b", "", ".blobmap/state/x", "a\0b", "x" * 5000])
def test_any_string_is_a_key(key: str) -> None:
    _, covering = held(["a"])
    covering.cover([key])
    covering.cover([key] * 100)
    assert covering.trie.lookup(key).kind == "unmanaged"
    assert covering.problems == []


def test_a_broken_manifest_is_told_and_not_asked_for_again() -> None:
    memory = MemoryStore()
    memory.put("a/manifest.json", b"{")
    covering = Covering(ManifestStore(memory))
    covering.cover(["a/b"])
    covering.cover(["a/b"])
    assert len(covering.problems) == 1
    assert "a/manifest.json" in covering.problems[0]


def test_around_a_scope_lie_those_above_and_those_inside() -> None:
    _, covering = held(["", "a", "a/b", "a/b/c", "a/bc", "d"])
    covering.around("a/b")
    assert covering.trie.scopes() == ("", "a", "a/b", "a/b/c")
    with pytest.raises(MissingError):
        ManifestStore(MemoryStore()).read("a/b")


SEGMENTS = st.sampled_from(["a", "b", "c", "ab", ""])
KEYS = st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join)
SCOPES = st.sets(st.lists(st.sampled_from(["a", "b", "ab"]), max_size=3).map("/".join), max_size=5)


@given(SCOPES, st.lists(KEYS, max_size=20), st.integers(1, 120))
def test_the_answers_are_those_of_all_manifests(scopes: set[str], keys: list[str], repeated: int) -> None:
    storage, covering = held(scopes)
    whole = Trie()
    whole.add_all(ManifestStore(storage).load_all())
    for start in range(0, len(keys), 3):
        batch = keys[start : start + 3] * repeated
        covering.cover(batch)
        assert list(covering.trie.lookup_many(batch)) == list(whole.lookup_many(batch))
