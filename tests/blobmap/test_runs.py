"""Keys that come one after another: what is remembered between them changes no answer."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blobmap import runs
from blobmap.manifest import Blob, Bucket, Manifest, Pin
from blobmap.resolve import Resolution, Trie
from tests.support import brute_force
from tests.support.strategies import ODD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blobmap.chunk_keys import KeyEncoding

WIDTHS = (1, 2, 3, 7, 10, 37, 64, 100, 128, 1000, 2048, 2**63 - 1)


def assert_same_answers(manifests: Sequence[Manifest], keys: Sequence[str]) -> None:
    trie = Trie()
    trie.add_all(manifests)
    expected = [brute_force.resolve(manifests, key) for key in keys]
    assert [trie.lookup(key) for key in keys] == expected
    assert list(trie.lookup_many(keys)) == expected
    fresh = Trie()
    fresh.add_all(manifests)
    assert list(fresh.lookup_many(iter(keys))) == expected


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("below", ["{}", "{}/0/0", "{}/0/{}"])
@pytest.mark.parametrize("order", ["counted", "listed", "backwards", "shuffled"])
def test_an_array_resolves_in_any_order(width: int, below: str, order: str) -> None:
    keys = [f"s/tas/c/{below.format(index, index % 3)}" for index in range(1_250)]
    if order == "listed":
        keys.sort()
    elif order == "backwards":
        keys.reverse()
    elif order == "shuffled":
        random.Random(3).shuffle(keys)  # noqa: S311  # an order, not a secret
    trie = Trie()
    trie.add(Manifest("s", 1, (), (Blob("b_tas", ("tas/c",), Bucket(0, width, "v3_slash")),)))
    expected = [f"b_tas_{int(key.split('/')[3]) // width}" for key in keys]
    assert [trie.lookup(key).blob_id for key in keys] == expected
    assert [resolution.blob_id for resolution in trie.lookup_many(keys)] == expected


ARRAYS = (
    Blob("b_a", ("a/c",), Bucket(0, 7, "v3_slash")),
    Blob("b_t", ("t",), Bucket(0, 100, "v2_slash")),
    Blob("b_t2", ("t2",), Bucket(0, 64, "v2_slash")),
    Blob("b_f", ("f",), Bucket(0, 37, "v2_flat")),
    Blob("b_d", ("d",), Bucket(1, 10, "v2_flat")),
    Blob("b_y", ("y/c",), Bucket(1, 3, "v3_slash")),
    Blob("b_v", ("v",), Bucket(1, 3, "v3_slash")),
    Blob("b_plain", ("plain",), None),
)
STARTS = ("s/a/c/", "s/t/", "s/t2/", "s/f/", "s/d/c.", "s/d/0.", "s/y/c/0/", "s/y/c/10/", "s/v/c/", "s/plain/", "s/a/")
NUMBERS = st.one_of(
    st.integers(0, 15), st.integers(90, 110), st.integers(990, 1_010), st.integers(5_000, 5_150), st.integers(0, 10**19)
).map(str)
TAILS = ("", "/0", "/0/0", "/1/0", ".0", ".0.0", ".1.0", "/", ".", "//0", "/00", "/c", ".c", "x", "/zarr.json", "/0.0")


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(st.sampled_from(STARTS), NUMBERS | NUMBERS | NUMBERS | st.sampled_from(ODD), st.sampled_from(TAILS)),
        min_size=1,
        max_size=60,
    ).map(lambda parts: ["".join(part) for part in parts])
)
def test_keys_of_many_arrays_in_turn(keys: list[str]) -> None:
    manifest = Manifest("s", 1, (), ARRAYS)
    assert_same_answers([manifest], keys)
    assert_same_answers([manifest], sorted(keys))


@pytest.mark.parametrize("encoding", ["v2_slash", "v2_flat"])
def test_an_array_at_the_root_of_the_bucket(encoding: KeyEncoding) -> None:
    separator = "." if encoding == "v2_flat" else "/"
    manifest = Manifest("", 1, (), (Blob("b_root", ("",), Bucket(0, 12, encoding)),))
    keys = [f"{index}{separator}{part}" for index in range(130) for part in range(2)]
    assert_same_answers([manifest], [*keys, *sorted(keys), "", "0", "00", "/0", ".0", "0.", "x", "10", "1", "010"])


def test_a_tail_that_was_seen_does_not_make_a_leading_zero_an_index() -> None:
    manifest = Manifest("s", 1, (), (Blob("b_x", ("x",), Bucket(0, 100, "v2_slash")),))
    keys = [f"s/x/{index}/0" for index in (*range(5_000, 5_012), *range(10, 20))]
    assert_same_answers([manifest], [*keys, "s/x/07/0", "s/x/00/0", "s/x/7/0", "s/x/007/0", "s/x/5007/0"])


def test_a_key_that_looks_like_a_tail_is_none() -> None:
    manifest = Manifest("s", 1, (), (Blob("b_x", ("x",), Bucket(0, 100, "v2_slash")),))
    keys = [f"s/x/{index}/0" for index in (*range(10), *range(10, 20), *range(5_000, 5_012), 500)]
    alike = [key.removeprefix(head) for key in keys for head in ("s/x/", "s/x/50", "s/x/500")]
    assert_same_answers([manifest], [text for key in keys for text in (key, *alike)])


class CountingTrie(Trie):
    """Counts the keys that had to be taken apart."""

    def __init__(self) -> None:
        super().__init__()
        self.taken_apart = 0

    def _follow(self, key: str, run: runs.Run) -> Resolution:
        self.taken_apart += 1
        return super()._follow(key, run)


@pytest.mark.parametrize(("width", "share"), [(2048, 0.07), (64, 0.16), (10, 0.4)])
@pytest.mark.parametrize("below", ["{}", "{}/0", "c.{}.0"])
def test_few_keys_of_a_listing_are_taken_apart(width: int, share: float, below: str) -> None:
    bucket = Bucket(1, width, "v2_flat") if "." in below else Bucket(0, width, "v2_slash")
    trie = CountingTrie()
    trie.add(Manifest("s", 1, (), (Blob("b_x", ("x",), bucket),)))
    keys = sorted(f"s/x/{below.format(index)}" for index in range(10_000))
    assert sum(1 for _ in trie.lookup_many(keys)) == len(keys)
    assert trie.taken_apart < share * len(keys)


def listing(array: str, count: int = 120) -> list[str]:
    return sorted(f"{array}/{index}/{part}" for index in range(count) for part in range(2))


@pytest.mark.parametrize(
    "manifests",
    [
        [Manifest("s", 1, ("**/0",), (Blob("b_x", ("x",), Bucket(0, 4, "v2_slash")),))],
        [Manifest("s", 1, ("**/x", "**/"), (Blob("b_x", ("x",), Bucket(0, 4, "v2_slash")),))],
        [Manifest("s", 1, ("x/7/**",), (Blob("b_x", ("x",), Bucket(0, 4, "v2_slash")),))],
        [Manifest("s", 1, (), (Blob("b_x", ("x",), Bucket(0, 4, "v2_slash")),), (Pin("x/11", "why"),))],
        [
            Manifest(
                "s",
                1,
                (),
                (Blob("b_x", ("x",), Bucket(0, 4, "v2_slash")), Blob("b_y", ("x/5",), Bucket(0, 1, "v2_slash"))),
            )
        ],
        [
            Manifest("s", 1, (), (Blob("b_x", ("x",), Bucket(0, 4, "v2_slash")),)),
            Manifest("s/x/8", 5, (), (Blob("b_in", ("",), None),)),
        ],
        [
            Manifest("", 2, ("s/x/9/**",), (Blob("b_out", ("s/x/10",), None),)),
            Manifest("s", 1, (), (Blob("b_x", ("x",), Bucket(0, 4, "v2_slash")),)),
        ],
        [
            Manifest("", 2, ("**/0",), (Blob("b_other", ("t",), None),)),
            Manifest("s", 1, (), (Blob("b_x", ("x",), Bucket(0, 4, "v2_slash")),)),
        ],
    ],
)
def test_something_within_an_array_is_not_passed_over(manifests: list[Manifest]) -> None:
    assert_same_answers(manifests, listing("s/x"))


def test_a_changed_manifest_is_seen_within_a_run() -> None:
    old, new = (
        Manifest("s", epoch, (), (Blob("b_x", ("x",), Bucket(0, width, "v2_slash")),))
        for epoch, width in ((1, 100), (2, 10))
    )
    keys = listing("s/x")
    trie = Trie()
    trie.add(old)
    answers = []
    for number, resolution in enumerate(trie.lookup_many(keys)):
        answers.append(resolution)
        if number == 59:
            trie.replace(new)
        if number == 79:
            trie.discard("s")
    assert answers == [
        *(brute_force.resolve([old], key) for key in keys[:60]),
        *(brute_force.resolve([new], key) for key in keys[60:80]),
        *(brute_force.resolve([], key) for key in keys[80:]),
    ]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_MOST_TAILS", 50)
    manifest = Manifest("s", 1, (), tuple(Blob(f"b_{name}", (name,), Bucket(0, 64, "v2_slash")) for name in "xyz"))
    keys = [f"s/{name}/{index}/{part}" for name in "xyz" for index in range(130) for part in range(7)]
    trie = Trie()
    trie.add(manifest)
    for key in keys:
        assert trie.lookup(key) == brute_force.resolve([manifest], key)
        assert max(len(tails) for tails in trie._tails.values()) <= 50
    assert len(trie._run.hints) <= 3
    assert len(trie._run.alone) <= 3
