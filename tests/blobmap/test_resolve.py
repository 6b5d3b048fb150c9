"""Resolution: every rule of the format, and an answer for every string."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from blobmap.chunk_keys import METADATA_NAMES
from blobmap.manifest import Blob, Bucket, Manifest, Pin
from blobmap.resolve import Resolution, Trie
from tests.support import brute_force
from tests.support.strategies import bunches_and_keys

if TYPE_CHECKING:
    from blobmap.chunk_keys import KeyEncoding


def trie_of(*manifests: Manifest) -> Trie:
    trie = Trie()
    assert trie.add_all(manifests) == ()
    return trie


def rule(
    prefix: str, index: int = 0, width: int = 4, encoding: KeyEncoding = "v3_slash", *, name: str = "b_tas"
) -> Blob:
    return Blob(name, (prefix,), Bucket(index, width, encoding))


def plain(*prefixes: str, name: str = "b_all") -> Blob:
    return Blob(name, prefixes, None)


def spoken(trie: Trie, key: str) -> str:
    resolution = trie.lookup(key)
    return resolution.blob_id or resolution.kind


@settings(max_examples=250)
@given(bunches_and_keys())
def test_the_trie_agrees_with_the_dumb_resolver(case: tuple[list[Manifest], list[str]]) -> None:
    bunch, keys = case
    trie = trie_of(*bunch)
    expected = [brute_force.resolve(bunch, key) for key in keys]
    assert [trie.lookup(key) for key in keys] == expected
    assert list(trie.lookup_many([*keys, *keys])) == [*expected, *expected]


def test_an_answer_names_its_scope_and_epoch() -> None:
    trie = trie_of(
        Manifest("s.zarr", 7, ("lat/**",), (rule("tas/c"),), (Pin("kept", "why"),)),
        Manifest("s.zarr/inner", 3),
    )
    assert trie.lookup("s.zarr/tas/c/5/0") == Resolution("blob", "b_tas_1", "s.zarr", 7)
    assert trie.lookup("s.zarr/lat/c/0") == Resolution("hot", None, "s.zarr", 7)
    assert trie.lookup("s.zarr/kept/c/0") == Resolution("pinned", None, "s.zarr", 7)
    assert trie.lookup("s.zarr/other") == Resolution("unmanaged", None, "s.zarr", 7)
    assert trie.lookup("s.zarr/inner/other") == Resolution("unmanaged", None, "s.zarr/inner", 3)
    assert trie.lookup("elsewhere/x.nc") == Resolution("unmanaged", None, None, None)


@pytest.mark.parametrize("name", sorted(METADATA_NAMES))
def test_metadata_is_hot_wherever_it_lies(name: str) -> None:
    trie = trie_of(Manifest("s.zarr", 2, (), (plain(""),), (Pin("", "all of it"),)))
    assert trie.lookup(f"s.zarr/tas/{name}") == Resolution("hot", None, "s.zarr", 2)
    assert trie.lookup(f"elsewhere/{name}") == Resolution("hot", None, None, None)
    assert trie.lookup(name) == Resolution("hot", None, None, None)
    assert trie.lookup(f"s.zarr//{name}") == Resolution("hot", None, None, None)
    assert spoken(trie, f"s.zarr/{name}/0") == "pinned"
    assert spoken(trie, f"s.zarr/{name}.bak") == "pinned"
    assert spoken(trie, f"s.zarr/x{name}") == "pinned"


@pytest.mark.parametrize(
    "key", ["", "/", "s//0", "/s/0", "s/0/", "s/./0", "s/../0", ".", "..", "./s/0", "s/.", "//", "s/tas/c/1//0"]
)
def test_a_key_with_an_odd_segment_is_nobodys(key: str) -> None:
    trie = trie_of(Manifest("", 1, ("**",), (plain(""),), (Pin("", "all"),)), Manifest("s", 1, (), (rule("tas/c"),)))
    assert trie.lookup(key) == Resolution("unmanaged", None, None, None)


def test_scopes_and_prefixes_with_odd_segments_cover_nothing() -> None:
    trie = trie_of(
        Manifest("a/", 1, (), (plain("", name="b_slash"),)),
        Manifest("a", 1, (".", "x///**"), (plain("b//c", "/", "./d", name="b_odd"),), (Pin("y//z", "why"),)),
    )
    assert trie.lookup("a/b/c") == Resolution("blob", "b_odd_0", "a", 1)  # one slash is dropped: "/" is the scope
    assert spoken(trie, "a/b//c") == "unmanaged"
    assert spoken(trie, "a/x/0") == "b_odd_0"


def test_pins_come_before_hot_patterns_and_both_before_rules_whatever_the_scopes() -> None:
    outer = Manifest("a", 1, ("b/hot/**",), (plain("b"),), (Pin("b/kept/", "why"),))
    inner = Manifest("a/b", 1, ("kept/**",), (plain("", name="b_inner"), plain("hot", name="b_hot")))
    trie = trie_of(outer, inner)
    assert trie.lookup("a/b/kept/0") == Resolution("pinned", None, "a", 1)
    assert trie.lookup("a/b/hot/0") == Resolution("hot", None, "a", 1)
    assert trie.lookup("a/b/0") == Resolution("blob", "b_inner_0", "a/b", 1)


def test_the_innermost_scope_speaks_where_several_hold_a_key_back() -> None:
    outer = Manifest("a", 1, ("**",), (), (Pin("", "all of it"),))
    trie = trie_of(outer, Manifest("a/b", 2, ("**/x",), (), (Pin("c", "why"),)))
    assert trie.lookup("a/b/c/0") == Resolution("pinned", None, "a/b", 2)
    assert trie.lookup("a/b/d/0") == Resolution("pinned", None, "a", 1)


def test_the_longest_prefix_wins_between_rules_and_between_scopes() -> None:
    outer = Manifest("a", 1, (), (plain("b/c/d", name="b_long"), plain("b", name="b_tie"), plain("", name="b_short")))
    inner = Manifest("a/b", 1, (), (plain("c", name="b_inner"), plain("", name="b_wins_tie")))
    for order in ((outer, inner), (inner, outer)):
        trie = trie_of(*order)
        assert spoken(trie, "a/b/c/d/0") == "b_long_0"
        assert spoken(trie, "a/b/c/0") == "b_inner_0"
        assert spoken(trie, "a/b/0") == "b_wins_tie_0"
        assert spoken(trie, "a/0") == "b_short_0"


def test_the_last_of_two_rules_with_one_prefix_holds() -> None:
    trie = trie_of(Manifest("s", 1, (), (plain("x", name="b_one"), plain("x/", name="b_two"))))
    assert spoken(trie, "s/x/0") == "b_two_0"


def test_a_rule_that_does_not_fit_does_not_give_way_to_a_shorter_one() -> None:
    trie = trie_of(Manifest("s", 1, (), (plain(""), rule("tas/c"))))
    assert spoken(trie, "s/tas/c/extra.txt") == "unmanaged"
    assert spoken(trie, "s/tas/c") == "unmanaged"
    assert spoken(trie, "s/tas/extra.txt") == "b_all_0"


@pytest.mark.parametrize(
    ("pattern", "hot", "not_hot"),
    [
        ("**/x", ["s/x", "s/a/x", "s/a/b/x"], ["s/x/0", "s/ax", "x", "t/x"]),
        ("lat/**", ["s/lat", "s/lat/0", "s/lat/a/b"], ["s/latx/0", "s/a/lat/0", "lat/0"]),
        ("lat/*", ["s/lat", "s/lat/a/b"], ["s/latx/0"]),
        ("lat**", ["s/lat/0"], ["s/lat2/0", "s/lat**/0"]),
        ("lat*", ["s/lat/0"], ["s/lat2/0", "s/lat*/0"]),
        ("lat", ["s/lat", "s/lat/0"], ["s/lat2"]),
        ("lat/", ["s/lat", "s/lat/0"], ["s/lat2"]),
        ("star*/**", ["s/star*/0"], ["s/star/0", "s/starx/0"]),
        ("a/b*/**", ["s/a/b*/0"], ["s/a/b/0"]),
        ("**", ["s", "s/a"], ["t"]),
        ("*", ["s", "s/a"], ["t"]),
        ("", ["s", "s/a"], ["t"]),
        ("/**", ["s", "s/a"], ["t"]),
        ("**/a/b", ["s/**/a/b", "s/**/a/b/0"], ["s/a/b", "s/x/a/b"]),
        ("**/**", ["s/**", "s/a/**"], ["s/a", "s/**/a"]),
        ("**/*", ["s/*", "s/a/*"], ["s/a", "s/*/a"]),
        ("**/", [], ["s/a", "s"]),
    ],
)
def test_a_hot_pattern_means(pattern: str, hot: list[str], not_hot: list[str]) -> None:
    trie = trie_of(Manifest("s", 1, (pattern,)))
    assert [(key, spoken(trie, key)) for key in hot] == [(key, "hot") for key in hot]
    assert [(key, spoken(trie, key)) for key in not_hot] == [(key, "unmanaged") for key in not_hot]


@pytest.mark.parametrize(
    ("index", "encoding", "fits", "does_not"),
    [
        (0, "v3_slash", {"9": 2, "9/0/0": 2, "0": 0}, ["c/9", "9.0", "09/0", "+9", "-9", "1_0", "x", "9/x", "9/0x"]),
        (0, "v2_slash", {"9": 2, "9/0/0": 2}, ["c/9", "9.0", "\u0669/0", "\u00b2", "9/05"]),
        (0, "v2_flat", {"9": 2, "9.0.0": 2}, ["c.9", "9/0", "9.0/0", "9.", ".9", "9..0", "09.0", "9.0x"]),
        (1, "v3_slash", {"c/9": 2, "c/9/0": 2, "0/9": 2, "7/9/1": 2}, ["c", "9", "d/9", "c/c/9", "c.9", "cc/9"]),
        (1, "v2_slash", {"0/9": 2, "0/9/5": 2}, ["c/9", "9"]),
        (1, "v2_flat", {"c.9": 2, "c.9.0": 2, "0.9": 2}, ["c", "9", "c/9", "c.9/0", "d.9", "c.c.9", "c.9."]),
        (2, "v3_slash", {"c/0/9": 2, "0/0/9/1": 2}, ["c/9", "0/c/9"]),
        (2**63 - 1, "v3_slash", {}, ["c/0/0", "0"]),
    ],
)
def test_a_rule_reads(index: int, encoding: KeyEncoding, fits: dict[str, int], does_not: list[str]) -> None:
    trie = trie_of(Manifest("s", 1, (), (rule("tas", index, 4, encoding),)))
    assert {below: spoken(trie, f"s/tas/{below}") for below in fits} == {
        below: f"b_tas_{number}" for below, number in fits.items()
    }
    assert {below: spoken(trie, f"s/tas/{below}") for below in does_not} == dict.fromkeys(does_not, "unmanaged")


@pytest.mark.parametrize("scope", ["", "s.zarr", "a/b/s.zarr"])
@pytest.mark.parametrize("prefix", ["", "c", "c/"])
def test_a_store_that_is_one_array_resolves(scope: str, prefix: str) -> None:
    trie = trie_of(Manifest(scope, 1, (), (rule(prefix),)))
    start = "".join(f"{part}/" for part in (scope, prefix.removesuffix("/")) if part)
    assert spoken(trie, f"{start}9/0") == "b_tas_2"
    assert spoken(trie, f"{start}10/0") == "b_tas_2"
    assert spoken(trie, f"{start}x") == "unmanaged"


@pytest.mark.parametrize("digits", [17, 18, 19, 500, 513, 4300, 4301, 100_000])
def test_an_index_may_have_any_number_of_digits(digits: int) -> None:
    trie = trie_of(Manifest("s", 1, (), (rule("a/c", width=8), rule("b/c", width=1, name="b_one"))))
    assert spoken(trie, f"s/a/c/{'8' * digits}/0") == f"b_tas_{'1' * digits}"
    assert spoken(trie, f"s/b/c/{'9' * digits}") == f"b_one_{'9' * digits}"
    assert spoken(trie, f"s/b/c/0{'9' * digits}") == "unmanaged"


@pytest.mark.parametrize(
    "key",
    [
        "s/tas/c/\ud800",
        "\udfff",
        "s/tas/c/5\x00",
        "\x00",
        "s/tas/c/5\n",
        "/".join(["0"] * 200_000),
        "s/tas/c/" + "/".join(["0"] * 200_000) + "/x",
        "s/tas/c/" + "." * 100_000,
        "/" * 100_000,
        "a" * 1_000_000,
    ],
    ids=repr,
)
def test_every_string_has_an_answer(key: str) -> None:
    trie = trie_of(Manifest("s", 1, ("**/\ud800",), (rule("tas/c"),)))
    assert spoken(trie, key) in {"unmanaged", "hot"}
    assert [resolution.kind for resolution in trie.lookup_many([key, key])] == [trie.lookup(key).kind] * 2


def test_the_number_of_nodes_is_that_of_cuts() -> None:
    trie = Trie()
    assert len(trie) == 0
    trie.add(Manifest("s", 1, ("**/zarr.json", "lat/**"), (rule("tas/c"), rule("pr/c"))))
    assert len(trie) == 3
    for index in range(10_000):
        trie.lookup(f"s/tas/c/{index}/0")
    assert len(trie) == 3
    trie.add(Manifest("t", 1, (), (plain("x", "y"),), (Pin("x", "why"),)))
    assert len(trie) == 5
    trie.discard("s")
    assert len(trie) == 2
