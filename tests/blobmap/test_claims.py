from __future__ import annotations

import pytest

from blobmap.claims import is_neighbour, other_claims, own_claims, resolve_layout
from blobmap.decisions import Claim
from blobmap.manifest import Blob, Bucket, Manifest, Pin
from blobmap.resolve import Trie
from tests.support.measured import layout_of, measured
from tests.support.stores import RawArray

V3 = RawArray("g/tas", (9, 4, 4), (1, 4, 4))
V3_DOT = RawArray("g/tas", (9, 4, 4), (1, 4, 4), separator=".")
V2 = RawArray("g/tas", (9, 4, 4), (1, 4, 4), format=2)
FANOUT = RawArray("g/tas", (9, 4, 4), (1, 4, 4), members={"chunk_key_encoding": {"name": "fanout"}})


def rule(prefix: str, index: int, encoding: str) -> Blob:
    return Blob("b", (prefix,), Bucket(index, 2, encoding))  # type: ignore[arg-type]  # one of the three


@pytest.mark.parametrize(
    ("raw", "blob", "axis"),
    [
        (V3, rule("g/tas/c", 1, "v3_slash"), 1),
        (V3, rule("g/tas", 2, "v3_slash"), 1),
        (V3, rule("g/tas/c/", 0, "v3_slash"), 0),
        (V3_DOT, rule("g/tas", 3, "v2_flat"), 2),
        (V2, rule("g/tas", 2, "v2_slash"), 2),
        (V3, Blob("b", ("",), None), None),
        (V3, Blob("b", ("x", "g", "g/tas"), None), None),
        (V3, Blob("b", ("x", "g/tas/c"), Bucket(0, 2, "v3_slash")), 0),
        (FANOUT, Blob("b", ("g",), None), None),
    ],
)
def test_a_rule_claims_an_array_if_its_keys_resolve_by_it(raw: RawArray, blob: Blob, axis: int | None) -> None:
    claims = own_claims(Manifest("a/st.zarr", 1, blobs=(blob,)), [measured(raw, 5)])
    assert claims == {"g/tas": Claim("a/st.zarr", blob, axis)}


@pytest.mark.parametrize(
    ("raw", "blob"),
    [
        (V2, rule("", 0, "v2_slash")),
        (V2, rule("g/tas", 0, "v2_flat")),
        (V3, rule("g/tas", 0, "v3_slash")),
        (V3, rule("g/tas", 0, "v2_slash")),
        (FANOUT, rule("g/tas/c", 0, "v3_slash")),
        (V3, rule("g/ta", 0, "v3_slash")),
    ],
)
def test_a_rule_that_cannot_read_the_keys_claims_nothing(raw: RawArray, blob: Blob) -> None:
    assert own_claims(Manifest("a/st.zarr", 1, blobs=(blob,)), [measured(raw, 5)]) == {}


def test_a_prefix_with_numbers_in_front_of_the_array_divides_no_axis() -> None:
    levels = RawArray("0/1", (4, 4), (1, 4), format=2)
    blob = rule("", 0, "v2_slash")
    assert own_claims(Manifest("img", 1, blobs=(blob,)), [measured(levels, 5)]) == {"0/1": Claim("img", blob, None)}


def test_a_rule_for_a_part_of_an_array_does_not_claim_it() -> None:
    part = Blob("b", ("g/tas/c/0",), None)
    array = [measured(V3, 5)]
    assert own_claims(Manifest("st", 1, blobs=(part,)), array) == {}
    assert other_claims("st", [Manifest("", 1, blobs=(Blob("b", ("st/g/tas/c/0/0",), None),))], array) == {}
    whole = Blob("all", ("g/tas/c",), None)
    assert own_claims(Manifest("st", 1, blobs=(part, whole)), array) == {"g/tas": Claim("st", whole, None)}


def test_own_hot_patterns_and_pins_are_no_claims() -> None:
    manifest = Manifest("st", 1, hot_always=("g/tas/**",), pinned=(Pin("g", "mine"),))
    assert own_claims(manifest, [measured(V3, 5)]) == {}
    claiming = Manifest("st", 1, pinned=(Pin("g", "mine"),), blobs=(rule("g/tas/c", 0, "v3_slash"),))
    assert list(own_claims(claiming, [measured(V3, 5)])) == ["g/tas"]


def test_rules_and_hot_patterns_of_other_scopes_claim() -> None:
    outer = Manifest("a", 3, hot_always=("st/g/tas/**",), pinned=(Pin("", "all"),))
    inner = Manifest("a/st/g", 1, blobs=(rule("tas/c", 1, "v3_slash"),))
    array = [measured(V3, 5)]
    assert other_claims("a/st", [outer], array) == {"g/tas": Claim("a", None, None)}
    assert other_claims("a/st", [inner], array) == {"g/tas": Claim("a/st/g", inner.blobs[0], 1)}
    assert other_claims("a/st", [], array) == {}


def test_an_array_that_is_the_scope_is_asked_by_its_own_keys() -> None:
    raw = RawArray("", (9, 4), (1, 4))
    manifest = Manifest("st", 1, blobs=(rule("c", 0, "v3_slash"),))
    assert own_claims(manifest, [measured(raw, 5)])[""].axis == 0
    root = Manifest("", 1, blobs=(rule("c", 0, "v3_slash"),))
    assert own_claims(root, [measured(raw, 5)])[""].axis == 0


def test_a_v2_array_with_a_default_separator_may_be_claimed_in_either_spelling() -> None:
    trie = Trie()
    trie.add(Manifest("st", 1, blobs=(rule("g/tas", 0, "v2_slash"),)))
    silent = RawArray("g/tas", (9, 4, 4), (1, 4, 4), format=2, separator=None)
    dotted = RawArray("g/tas", (9, 4, 4), (1, 4, 4), format=2, separator=".")
    assert resolve_layout(trie, "st", layout_of(silent)).kind == "blob"
    assert resolve_layout(trie, "st", layout_of(dotted)).kind == "unmanaged"
    assert resolve_layout(trie, "st", layout_of(V2)).kind == "blob"


@pytest.mark.parametrize(
    ("scope", "other", "yes"),
    [("a/b", "a", True), ("a", "a/b/c", True), ("", "a", True), ("a", "", True), ("a", "a", False), ("a", "ab", False)],
)
def test_scopes_are_neighbours_if_one_lies_in_the_other(scope: str, other: str, *, yes: bool) -> None:
    assert is_neighbour(scope, other) is yes
