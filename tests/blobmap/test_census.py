"""Sweep and census together: every object is counted once, where it belongs, however the listing is divided."""

from __future__ import annotations

import zlib
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import MemoryStore

from blobmap import Trie, sweep
from blobmap.census import Census, Size, Sizes, take_census
from blobmap.chunk_keys import METADATA_NAMES
from blobmap.manifest import Blob, Bucket, Manifest, Pin
from blobmap.storage import Storage
from tests.support.stores import RawArray, put_all, store_objects

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from blobmap.objects import Entry
    from tests.support.backends import Backend

STORES = {
    "p/eur.zarr": [
        RawArray("tas", (30, 40), (1, 1), ["time", "x"], nbytes=3),
        RawArray("z1", (12,), (1,), ["x"], separator=".", nbytes=5),
        RawArray("z10", (12,), (1,), ["x"], separator=".", nbytes=7),
        RawArray("time", (30,), (10,), ["time"], nbytes=2),
        RawArray("scalar", (), (), [], nbytes=1),
    ],
    "p/img.zarr": [
        RawArray("0", (20, 20), (1, 1), format=2, separator="/", nbytes=1),
        RawArray("1", (10, 10), (1, 1), format=2, separator="/", nbytes=2),
        RawArray("labels/n/0", (5, 5), (1, 1), format=2, separator="/", nbytes=3),
    ],
    "q/flat.zarr": [RawArray("v", (600, 3), (1, 1), format=2, separator=".", nbytes=9)],
    "alone.zarr": [RawArray("", (7,), (1,), ["x"], nbytes=4)],
}
LOOSE = [*(f"raw/2024/{number}.nc" for number in range(40)), "readme", "p/notes.txt", "p/eur.zarr/tas/README"]


def objects() -> dict[str, bytes]:
    found = {key: data for scope, arrays in STORES.items() for key, data in store_objects(scope, arrays).items()}
    return {**found, **dict.fromkeys(LOOSE, b"12345678")}


def manifests() -> Trie:
    trie = Trie()
    rules = (Blob("b_tas", ("tas/c",), Bucket(0, 7, "v3_slash")), Blob("b_z1", ("z1",), Bucket(1, 4, "v2_flat")))
    trie.add(Manifest("p/eur.zarr", 1, ("time/**",), rules, (Pin("z10", "x"),)))
    trie.add(Manifest("p", 4, (), (Blob("b_rest", ("img.zarr/0",), None),)))
    trie.add(Manifest("q/flat.zarr", 2, (), (Blob("b_v", ("v",), Bucket(0, 100, "v2_flat")),)))
    return trie


def expected(data: Mapping[str, bytes], trie: Trie) -> Census:
    """The dumb way: every key by itself, all nodes known from the start."""
    census = Census()
    for node, _, name in (key.rpartition("/") for key in data):
        if name in METADATA_NAMES:
            census.nodes[node] = census.nodes.get(node, frozenset()) | {name}
    places: defaultdict[str, Sizes] = defaultdict(dict)
    for key, body in data.items():
        answer = trie.lookup(key)
        fate = "metadata" if key.rpartition("/")[2] in METADATA_NAMES else answer.kind
        place = key.rpartition("/")[0]
        while place not in census.nodes and place:
            place = place.rpartition("/")[0]
        for sizes in (places[place], census.scopes.setdefault(answer.scope, {})):
            sizes.setdefault(fate, Size()).add(1, len(body))
        if answer.scope is not None and answer.blob_id is not None:
            census.blobs.setdefault((answer.scope, answer.blob_id), Size()).add(1, len(body))
    census.places = dict(places)
    return census


def compare(found: Census, data: Mapping[str, bytes], trie: Trie) -> None:
    wanted = expected(data, trie)
    assert found.nodes == wanted.nodes
    assert found.blobs == wanted.blobs
    assert found.scopes == wanted.scopes
    in_nodes = {place: sizes for place, sizes in found.by_node().items() if place in found.nodes}
    assert in_nodes == {place: sizes for place, sizes in wanted.places.items() if place in wanted.nodes}
    assert total(found.places.values()) == total(wanted.places.values()) == sum(map(len, data.values()))


def total(places: Iterable[Sizes]) -> int:
    return sum(size.stored_bytes for sizes in places for size in sizes.values())


def test_every_object_is_counted_once_on_every_store(backend: Backend) -> None:
    data = objects()
    del data["readme"]
    for size in {len(body) for body in data.values()}:
        backend.fill(*(key for key, body in data.items() if len(body) == size), data=b"x" * size)
    compare(
        take_census(backend.open(), manifests(), [""]),
        {key: b"x" * len(body) for key, body in data.items()},
        manifests(),
    )


class Paged(Storage):
    """A real store whose pages are short, in key order as from a server or in any order as from a directory."""

    def __init__(self, store: MemoryStore, *, page: int, ordered: bool) -> None:
        super().__init__(store)
        self._page = page
        self.is_remote = self.is_ordered = ordered
        self.listings = 0

    def pages(self, prefix: str = "", *, after: str | None = None) -> Iterator[Sequence[Entry]]:
        self.listings += 1
        found = sorted((entry for page in super().pages(prefix, after=after) for entry in page), key=_path)
        if not self.is_remote:
            # A directory gives its names in any order, but finishes one before the next.
            found.sort(key=lambda entry: [zlib.crc32(segment.encode()) for segment in entry["path"].split("/")])
        return iter([found[start : start + self._page] for start in range(0, len(found), self._page)])


def _path(entry: Entry) -> str:
    return entry["path"]


@pytest.fixture(scope="module")
def memory() -> MemoryStore:
    store = MemoryStore()
    put_all(store, objects())
    return store


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("page", [1, 7, 50, 400, 5000])
def test_the_division_changes_nothing(memory: MemoryStore, page: int, ordered: bool) -> None:
    storage = Paged(memory, page=page, ordered=ordered)
    data, trie = objects(), manifests()
    census = take_census(storage, trie, [""])
    assert (census.scopes, census.nodes) == (expected(data, trie).scopes, expected(data, trie).nodes)
    if page > 1:  # one key alone does not show that an array called 0 is no chunk
        compare(census, data, trie)
    if page < 400:
        assert storage.listings > 1


@pytest.mark.parametrize("ordered", [True, False])
def test_only_the_prefixes_are_counted(memory: MemoryStore, ordered: bool) -> None:
    storage = Paged(memory, page=20, ordered=ordered)
    prefixes = ["p/img.zarr", "q"]
    data = {key: body for key, body in objects().items() if key.startswith(("p/img.zarr/", "q/"))}
    compare(take_census(storage, manifests(), prefixes), data, manifests())
    assert take_census(storage, manifests(), ["nothing"]) == Census()


NAMES = st.sampled_from(["a", "b", "c", "0", "1", "10", "2", "x.nc", "zarr.json", ".zarray", "0.0", "10.2"])
KEYS = st.lists(NAMES, min_size=1, max_size=5).map("/".join)


@given(st.sets(KEYS, max_size=60), st.integers(1, 9), st.booleans())
def test_any_keys_are_counted_once(keys: set[str], page: int, ordered: bool) -> None:
    store = MemoryStore()
    put_all(store, dict.fromkeys(keys, b"12"))
    trie = manifests()
    found = take_census(Paged(store, page=page, ordered=ordered), trie, [""])
    wanted = expected(dict.fromkeys(keys, b"12"), trie)
    assert found.scopes == wanted.scopes
    assert found.nodes == wanted.nodes
    assert total(found.places.values()) == 2 * len(keys)


def test_stores_are_the_topmost_nodes(memory: MemoryStore) -> None:
    assert take_census(Storage(memory), manifests(), [""]).stores() == sorted(STORES)
    assert Census(nodes=dict.fromkeys(["", "a", "a/b"], frozenset())).stores() == [""]


def test_progress_is_told(memory: MemoryStore) -> None:
    told: list[int] = []
    take_census(Storage(memory), Trie(), [""], on_progress=told.append)
    assert told == sorted(told)
    assert told[-1] == len(objects())


def test_what_a_large_array_has_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    put_all(store, {f"a/t/c/{index}/0": b"x" for index in range(3000)})
    put_all(store, {"a/t/zarr.json": b"{}", "a/zarr.json": b"{}"})
    listed: list[sweep.Part] = []
    original = sweep.Sweep._list_in_order

    def noted(self: sweep.Sweep[Any], part: sweep.Part, pages: Iterator[Sequence[Entry]]) -> object:
        listed.append(part)
        return original(self, part, pages)

    monkeypatch.setattr(sweep.Sweep, "_list_in_order", noted)
    storage = Paged(store, page=100, ordered=True)
    census = take_census(storage, Trie(), [""])
    assert census.places["a/t"]["unmanaged"] == Size(3000, 3000)
    within = [part for part in listed if part.one_node and part.prefix == "a/t"]
    assert len(within) > 3
    assert {part.prefix for part in listed} <= {"", "a", "a/t"}


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("children", [5, 300])
def test_what_is_known_to_be_divided_is(children: int, ordered: bool) -> None:
    store = MemoryStore()
    data = {f"p/s{number}/t/c/{index}": b"x" for number in range(children) for index in range(3)}
    data["p/loose"] = b"xx"
    put_all(store, data)
    storage = Paged(store, page=1000, ordered=ordered)
    compare(take_census(storage, manifests(), [""], outer=["", "p", "p/s0"]), data, manifests())
    assert storage.listings <= (12 if ordered and children > 256 else 2 + 2 * children)
