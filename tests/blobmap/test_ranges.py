"""From a blob to its objects: nothing is missed, little else is asked for."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, TypedDict

import obstore
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import LocalStore, MemoryStore

from blobmap.manifest import Blob, Bucket, Manifest, Pin
from blobmap.ranges import KeyRange, key_ranges, members
from blobmap.resolve import Trie
from blobmap.storage import Storage
from tests.support.strategies import bunches_and_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from blobmap.chunk_keys import KeyEncoding


class Listed(TypedDict):
    path: str


class Bucketful:
    """A listing in key order, in pages, that counts how often it is asked for one."""

    def __init__(self, keys: Iterable[str], page_size: int = 1_000) -> None:
        self.keys = sorted(set(keys))
        self.page_size = page_size
        self.requests = 0

    def pages(self, prefix: str, after: str | None) -> Iterator[Sequence[Listed]]:
        start = f"{prefix}/" if prefix else ""
        first = bisect_right(self.keys, max(start, after or ""))
        while True:
            self.requests += 1
            page = [key for key in self.keys[first : first + self.page_size] if key.startswith(start)]
            if page:
                yield [Listed(path=key) for key in page]
            if len(page) < self.page_size:
                return
            first += self.page_size

    def unordered_pages(self, prefix: str, after: str | None) -> Iterator[Sequence[Listed]]:
        for page in self.pages(prefix, after):
            yield list(reversed(page))
        yield []

    def objects(self, prefix: str) -> list[Listed]:
        start = f"{prefix}/" if prefix else ""
        return [
            Listed(path=key)
            for key in self.keys
            if key.startswith(start) and "/" not in key.removeprefix(start) and key
        ]


def members_of(
    bunch: Sequence[Manifest], manifest: Manifest, blob_id: str, keys: Iterable[str], *, ordered: bool
) -> list[str]:
    trie = Trie()
    trie.add_all(bunch)
    bucket = Bucketful(keys)
    pages = bucket.pages if ordered else bucket.unordered_pages
    found = members(manifest, blob_id, pages=pages, objects=bucket.objects, lookup=trie.lookup, ordered=ordered)
    return [entry["path"] for entry in found]


def assert_a_blob_is_what_resolves_to_it(bunch: Sequence[Manifest], keys: Iterable[str]) -> None:
    """Every blob that a key resolves to, and every blob beside it, has exactly the keys that resolve to it."""
    trie = Trie()
    trie.add_all(bunch)
    resolutions = {key: trie.lookup(key) for key in keys}
    asked = {(found.scope, found.blob_id) for found in resolutions.values() if found.blob_id is not None}
    for scope, blob_id in asked:
        manifest = next(one for one in bunch if one.scope == scope)
        expected = sorted(key for key, found in resolutions.items() if (found.scope, found.blob_id) == (scope, blob_id))
        for ordered in (True, False):
            assert sorted(members_of(bunch, manifest, str(blob_id), resolutions, ordered=ordered)) == expected


@settings(max_examples=200)
@given(bunches_and_keys())
def test_a_key_is_a_member_if_and_only_if_it_resolves_to_the_blob(case: tuple[list[Manifest], list[str]]) -> None:
    assert_a_blob_is_what_resolves_to_it(*case)


SPELLINGS: list[tuple[str, int, KeyEncoding, str]] = [
    ("x/c", 0, "v3_slash", "x/c/{}/1"),
    ("x/c", 0, "v3_slash", "x/c/{}"),
    ("x", 0, "v2_slash", "x/{}/0/0"),
    ("x", 0, "v2_flat", "x/{}.0"),
    ("x", 1, "v2_flat", "x/c.{}.0"),
    ("x", 1, "v2_flat", "x/0.{}"),
    ("x", 1, "v3_slash", "x/c/{}/0"),
    ("x", 1, "v3_slash", "x/0/{}"),
    ("x", 1, "v2_slash", "x/0/{}"),
    ("x", 2, "v3_slash", "x/c/0/{}"),
    ("", 0, "v2_slash", "{}/0"),
    ("", 0, "v2_flat", "{}"),
    ("", 1, "v2_flat", "c.{}"),
    ("", 1, "v3_slash", "c/{}"),
]
ODD_TEXTS = ("007", "0x", ":", "-1", "5:", "~", "", "50A")
BESIDE = ("x", "x/c", "x/zarr.json", "x/.zarray", "xx/c/1", "w/c/1", "x.c/1", "zarr.json")


@pytest.mark.parametrize("spelled", SPELLINGS, ids=lambda spelled: f"{spelled[1]}-{spelled[3]}")
@pytest.mark.parametrize(("scope", "width"), [("s.zarr", 4), ("s.zarr", 10), ("", 37), ("s.zarr", 2**62)])
def test_every_blob_of_an_array(scope: str, spelled: tuple[str, int, KeyEncoding, str], width: int) -> None:
    prefix, index, encoding, spelling = spelled
    manifest = Manifest(scope, 1, (), (Blob("b_x", (prefix,), Bucket(index, width, encoding)),))
    numbers = [*range(45), *range(95, 125), *range(995, 1_005), 9_999, 10_000, 10_001, 12_345_678]
    names = [*(spelling.format(number) for number in numbers), *(spelling.format(text) for text in ODD_TEXTS), *BESIDE]
    assert_a_blob_is_what_resolves_to_it([manifest], {f"{scope}/{name}" if scope else name for name in names})


@given(st.integers(1, 2_000), st.integers(0, 3_000), st.sampled_from([0, 1]))
def test_few_ranges_are_named(width: int, number: int, index: int) -> None:
    manifest = Manifest("s", 1, (), (Blob("b_x", ("x",), Bucket(index, width, "v2_flat")),))
    ranges = key_ranges(manifest, f"b_x_{number}")
    assert 1 <= len(ranges) <= min(width, 3) + 1
    assert all(one.prefix == "s/x" for one in ranges)


@pytest.mark.parametrize("width", [1, 2, 4, 7, 10, 37, 64, 100, 2048])
@pytest.mark.parametrize("spelling", ["x/{}/0", "x/{}"])
def test_an_ordered_listing_is_asked_at_most_once_an_index_and_ten_times_more(width: int, spelling: str) -> None:
    manifest = Manifest("s", 1, (), (Blob("b_x", ("x",), Bucket(0, width, "v2_slash")),))
    trie = Trie()
    trie.add(manifest)
    numbers = range(25_000)
    bucket = Bucketful((f"s/{spelling.format(number)}" for number in numbers), page_size=100)
    for number in sorted({0, 1, 2, 5, 10, 11, 99, 999 // width, 9_999 // width, 24_999 // width, 10**9}):
        bucket.requests = 0
        found = members(
            manifest, f"b_x_{number}", pages=bucket.pages, objects=bucket.objects, lookup=trie.lookup, ordered=True
        )
        expected = {f"s/{spelling.format(index)}" for index in numbers[number * width : (number + 1) * width]}
        assert {entry["path"] for entry in found} == expected
        assert bucket.requests <= width + 10


def test_a_blob_of_many_objects_is_read_page_after_page() -> None:
    manifest = Manifest("s", 1, (), (Blob("b_x", ("x",), Bucket(0, 2, "v2_slash")),))
    keys = [f"s/x/{row}/{column}" for row in range(12) for column in range(1_500)]
    found = members_of([manifest], manifest, "b_x_5", keys, ordered=True)
    assert sorted(found) == sorted(f"s/x/{row}/{column}" for row in (10, 11) for column in range(1_500))


def test_each_object_is_listed_once_where_prefixes_lie_within_each_other() -> None:
    blob = Blob("b_all", ("", "x", "x/c", "y"), None)
    manifest = Manifest("s", 1, (), (blob,), (Pin("y/kept", "why"),))
    keys = ["s", "s/x", "s/x/c", "s/x/c/0", "s/y/0", "s/y/kept/0", "s/z", "t/x", "s/zarr.json"]
    found = members_of([manifest], manifest, "b_all_0", keys, ordered=True)
    assert sorted(found) == ["s", "s/x", "s/x/c", "s/x/c/0", "s/y/0", "s/z"]


def test_an_inner_scope_takes_its_keys_away() -> None:
    outer = Manifest("s", 1, (), (Blob("b_all", ("",), None),))
    inner = Manifest("s/in", 1, (), (Blob("b_all", ("",), None),))
    keys = ["s/x", "s/in/x", "s/y"]
    assert sorted(members_of([outer, inner], outer, "b_all_0", keys, ordered=True)) == ["s/x", "s/y"]
    assert members_of([outer, inner], inner, "b_all_0", keys, ordered=True) == ["s/in/x"]


@pytest.mark.parametrize(
    "blob_id",
    ["", "_", "b_x", "b_x_", "b_x_00", "b_x_+1", "b_x_x", "x_0", "b_plain_1", "b_odd_0", "b_x_0_0", "b_\u0665"],
)
def test_what_is_no_blob_has_no_ranges(blob_id: str) -> None:
    manifest = Manifest(
        "s",
        1,
        (),
        (Blob("b_x", ("x",), Bucket(0, 4, "v2_slash")), Blob("b_plain", ("p",), None), Blob("b_odd", ("a//b",), None)),
    )
    assert key_ranges(manifest, blob_id) == ()


def test_identifiers_that_contain_each_other_are_told_apart() -> None:
    one, other = (Blob(name, (prefix,), Bucket(0, 1, "v2_slash")) for name, prefix in (("b_a", "a"), ("b_a_1", "a_1")))
    manifest = Manifest("s", 1, (), (one, other))
    assert {part.prefix for part in key_ranges(manifest, "b_a_1_0")} == {"s/a_1"}
    assert {part.prefix for part in key_ranges(manifest, "b_a_1")} == {"s/a"}


def test_a_number_beyond_every_key_is_looked_for_everywhere() -> None:
    manifest = Manifest("s", 1, (), (Blob("b_x", ("x",), Bucket(0, 1, "v2_slash")),))
    digits = "9" * 5_000
    assert key_ranges(manifest, f"b_x_{digits}") == (KeyRange("s/x"),)
    assert members_of([manifest], manifest, f"b_x_{digits}", [f"s/x/{digits}", "s/x/9"], ordered=True) == [
        f"s/x/{digits}"
    ]


@pytest.mark.parametrize(
    ("part", "inside", "outside"),
    [
        (KeyRange(""), ["a", "a/b"], []),
        (KeyRange("a"), ["a/b", "a/b/c"], ["a", "ab", "b/a"]),
        (KeyRange("a", one_level=True), ["a/b"], ["a/b/c", "a"]),
        (KeyRange("", one_level=True), ["a"], ["a/b"]),
        (KeyRange("a", after="a/5", end="a/70"), ["a/50", "a/6", "a/7/0"], ["a/5", "a/4", "a/70", "a/8"]),
    ],
)
def test_what_a_range_holds(part: KeyRange, inside: list[str], outside: list[str]) -> None:
    assert [part.holds(key) for key in inside] == [True] * len(inside)
    assert [part.holds(key) for key in outside] == [False] * len(outside)


KEYS = [f"s/{name}/c/{row}/{column}" for name in ("tas", "tas2") for row in range(120) for column in range(3)]


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> MemoryStore | LocalStore:
    found = MemoryStore() if request.param == "memory" else LocalStore(str(tmp_path))
    for key in (*KEYS, "s/tas/zarr.json", "s/orog/c", "s/orog/zarr.json"):
        obstore.put(found, key, b"x")
    return found


def test_the_objects_of_a_blob_in_a_store(store: MemoryStore | LocalStore) -> None:
    manifest = Manifest(
        "s", 1, (), (Blob("b_tas", ("tas/c",), Bucket(0, 37, "v3_slash")), Blob("b_orog", ("orog/c",), None))
    )
    trie = Trie()
    trie.add(manifest)
    storage = Storage(store)

    def keys_of(blob_id: str) -> list[str]:
        found = members(
            manifest,
            blob_id,
            pages=lambda prefix, after: storage.pages(prefix, after=after),
            objects=lambda prefix: storage.level(prefix).objects,
            lookup=trie.lookup,
            ordered=storage.is_remote,
        )
        return sorted(entry["path"] for entry in found)

    for number in range(5):
        rows = range(number * 37, min(120, (number + 1) * 37))
        assert keys_of(f"b_tas_{number}") == sorted(f"s/tas/c/{row}/{column}" for row in rows for column in range(3))
    assert keys_of("b_orog_0") == ["s/orog/c"]
