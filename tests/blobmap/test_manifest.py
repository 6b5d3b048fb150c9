"""The manifest: what is a valid one, how it is read and written, and the names that it uses."""

from __future__ import annotations

import copy
import json
from importlib import resources
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from blobmap import manifest as manifest_module
from blobmap.errors import ManifestError
from blobmap.manifest import (
    MAX_BYTES,
    SCHEMA_FILE,
    Blob,
    Bucket,
    Manifest,
    Pin,
    hot_pattern,
    manifest_key,
    parse_manifest,
    read_hot_pattern,
    render_manifest,
    scope_of_key,
)
from blobmap.resolve import Trie
from tests.support import conformance
from tests.support.strategies import AWKWARD, manifests

SCHEMA = json.loads(resources.files("blobmap").joinpath(SCHEMA_FILE).read_bytes())
VALIDATOR = Draft202012Validator(SCHEMA)
CASES = conformance.cases()
FULL: dict[str, Any] = {
    "schema_version": 3,
    "scope": "a/s.zarr",
    "epoch": 2,
    "generated_at": "2026-01-01T00:00:00+00:00",
    "generated_by": "blobmap 0.6.0",
    "policy": {"t_max_bytes": 107374182400, "t_aux_bytes": 1073741824, "width_clamp": 8},
    "hot_always": ["**/zarr.json", "lat/**"],
    "pinned": [
        {"prefix": "", "reason": "all of it"},
        {"prefix": "tas", "reason": "busy", "by": "me", "at": "2026-01-01T00:00:00Z", "until": None},
        {"prefix": "pr", "reason": "busy", "until": "2027-01-01"},
    ],
    "blobs": [
        {"id": "b_tas", "prefixes": ["tas/c"], "bucket": {"index": 0, "width": 2048, "key_encoding": "v3_slash"}},
        {"id": "b_rest", "prefixes": ["", "x"], "bucket": None},
    ],
    "provenance": {"tas": {"objects": 10, "mean": 2.5, "sharded": False, "note": None, "shape": [1, [2]]}},
}


def encoded(document: object) -> bytes:
    return json.dumps(document).encode()


def changed(path: str, value: object) -> bytes:
    """The full document with one value changed; a path like `blobs/0/id`."""
    document: Any = copy.deepcopy(FULL)
    place = document
    *steps, last = (int(step) if step.isdigit() else step for step in path.split("/"))
    for step in steps:
        place = place[step]
    place[last] = value
    return encoded(document)


def refusal(data: bytes, scope: str | None = None) -> str:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(data, source="a/manifest.json", scope=scope)
    message = str(caught.value)
    assert message.startswith("a/manifest.json: ")
    assert "\n" not in message
    assert len(message) < 400
    return message.removeprefix("a/manifest.json: ")


# Reading and writing.


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_real_manifest_is_read_and_written_as_it_was(case: conformance.Case) -> None:
    document = json.loads(case.manifest)
    VALIDATOR.validate(document)
    manifest = parse_manifest(case.manifest, source=str(case), scope=document["scope"])
    assert json.loads(render_manifest(manifest)) == document
    assert parse_manifest(render_manifest(manifest), source="again") == manifest


def test_every_field_is_read() -> None:
    manifest = parse_manifest(encoded(FULL), source="full", scope="a/s.zarr")
    assert (manifest.scope, manifest.epoch, manifest.hot_always) == ("a/s.zarr", 2, ("**/zarr.json", "lat/**"))
    assert manifest.blobs == (
        Blob("b_tas", ("tas/c",), Bucket(0, 2048, "v3_slash")),
        Blob("b_rest", ("", "x"), None),
    )
    assert manifest.pinned[1] == Pin("tas", "busy", "me", "2026-01-01T00:00:00Z", None)
    assert manifest.policy == FULL["policy"]
    assert (manifest.generated_at, manifest.generated_by) == ("2026-01-01T00:00:00+00:00", "blobmap 0.6.0")
    assert manifest.provenance is not None
    assert manifest.provenance["tas"] == {
        "objects": 10,
        "mean": 2.5,
        "sharded": False,
        "note": None,
        "shape": (1, (2,)),
    }


@pytest.mark.parametrize("field", ["pinned", "policy", "generated_at", "generated_by", "provenance"])
def test_a_field_that_is_not_there_stays_away(field: str) -> None:
    document = {name: value for name, value in FULL.items() if name != field}
    assert json.loads(render_manifest(parse_manifest(encoded(document), source="x"))) == document


def test_what_is_written_is_strict_and_stable() -> None:
    manifest = Manifest("s/ü", 1, ("lat/**",), (Blob("b", ("ü",), None),), provenance={"z": 1, "a": "\ud800"})
    assert render_manifest(manifest).decode() == (
        '{\n  "schema_version": 3,\n  "scope": "s/ü",\n  "epoch": 1,\n  "hot_always": [\n    "lat/**"\n  ],\n'
        '  "pinned": [],\n  "blobs": [\n    {\n      "id": "b",\n      "prefixes": [\n        "ü"\n      ],\n'
        '      "bucket": null\n    }\n  ],\n  "provenance": {\n    "z": 1,\n    "a": "\\ud800"\n  }\n}\n'
    )


@given(manifests())
def test_what_is_written_is_read_back(manifest: Manifest) -> None:
    assert parse_manifest(render_manifest(manifest), source="x", scope=manifest.scope) == manifest


def test_a_manifest_that_nobody_could_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_module, "MAX_BYTES", 100)
    with pytest.raises(ManifestError, match=r"^the manifest of 's' has \d+ bytes, allowed: 100$"):
        render_manifest(Manifest("s", 1, ("x" * 100,)))


# What is valid. The schema and the types agree.

INTERESTING: list[Any] = [
    None, True, False, 0, 1, 2, 3, 4, -1, 3.0, 1.0, 0.0, -0.0, 2.5, 1e22, 1e300, 2**63 - 1, 2**63, float(2**63), 10**30,
    "", "x", "A", "b_a", "b_a\n", "b-a", "ü", "\u0665", "\n", "\x00", "\ud800", "v3_slash", "v2_slash", "v2_flat",
    [], [""], ["x", 3], [None], [[]], {}, {"x": 1}, {"x": 1.0}, {"x": 1.5}, {"x": True}, {"x": "1"}, {"x": None},
    {"index": 0, "width": 1, "key_encoding": "v2_flat"}, {"index": 0, "width": 1},
    {"id": "b", "prefixes": ["p"], "bucket": None}, {"prefix": "p", "reason": "r"}, {"prefix": "p", "reason": ""},
    {"prefix": "p", "reason": "r", "until": None}, {"prefix": "p", "reason": "r", "by": None},
]  # fmt: skip
interesting = st.sampled_from(INTERESTING).map(copy.deepcopy)
NAMES = [
    "scope",
    "epoch",
    "id",
    "bucket",
    "by",
    "at",
    "until",
    "index",
    "t_max_bytes",
    "x",
    "policy",
    "pinned",
    "provenance",
]


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """A real manifest, or the full one, with one to three things changed, added or taken away."""
    document = draw(
        st.sampled_from([FULL, FULL, *(json.loads(case.manifest) for case in CASES[::7])]).map(copy.deepcopy)
    )
    for _ in range(draw(st.integers(1, 3))):
        place = document
        while draw(st.integers(0, 3)):
            inner = place.values() if isinstance(place, dict) else place
            containers = [value for value in inner if isinstance(value, (dict, list))]
            if not containers:
                break
            place = draw(st.sampled_from(containers))
        if isinstance(place, list):
            place.insert(draw(st.integers(0, len(place))), draw(interesting))
        elif draw(st.booleans()) and place:
            name = draw(st.sampled_from(sorted(place)))
            if draw(st.booleans()):
                del place[name]
            else:
                place[name] = draw(interesting)
        else:
            place[draw(st.sampled_from(NAMES))] = draw(interesting)
    return document


def accepted(document: object) -> bool:
    try:
        manifest = parse_manifest(encoded(document), source="mutant")
    except ManifestError as error:
        assert str(error).startswith("mutant: ")  # noqa: PT017  # the refusal is one of two right outcomes
        return False
    assert json.loads(render_manifest(manifest)) == document
    return True


@settings(max_examples=500)
@given(mutated())
def test_the_schema_and_the_types_agree_on_mutants(document: Any) -> None:
    assert accepted(document) == VALIDATOR.is_valid(document)


@pytest.mark.parametrize(
    "path",
    [
        "schema_version", "scope", "epoch", "hot_always", "hot_always/0", "blobs", "blobs/0", "blobs/0/id",
        "blobs/0/prefixes", "blobs/0/prefixes/0", "blobs/0/bucket", "blobs/0/bucket/index", "blobs/0/bucket/width",
        "blobs/0/bucket/key_encoding", "pinned", "pinned/0", "pinned/0/prefix", "pinned/0/reason", "pinned/0/by",
        "pinned/0/at", "pinned/0/until", "policy", "policy/t_max_bytes", "policy/x", "generated_at", "generated_by",
        "provenance", "provenance/x", "x", "blobs/0/x", "pinned/0/x", "blobs/0/bucket/x",
    ],
)  # fmt: skip
def test_the_schema_and_the_types_agree_on_every_value_everywhere(path: str) -> None:
    for value in INTERESTING:
        document = json.loads(changed(path, value))
        assert (value, accepted(document)) == (value, VALIDATOR.is_valid(document))


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$id"] == "https://waterpark.dkrz.de/blobmap/manifest-v3.schema.json"


# What a refusal says.


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("schema_version", 2, "schema_version is 2, allowed: exactly 3, another version is another format"),
        ("schema_version", "3", "schema_version is '3', allowed: exactly 3, another version is another format"),
        ("schema_version", True, "schema_version is True, allowed: exactly 3, another version is another format"),
        ("scope", 7, "scope is 7, allowed: a string"),
        ("epoch", 0, "epoch is 0, allowed: an integer of at least 1 and with at most 4300 digits"),
        ("epoch", True, "epoch is True, allowed: an integer of at least 1 and with at most 4300 digits"),
        ("epoch", 1.5, "epoch is 1.5, allowed: an integer of at least 1 and with at most 4300 digits"),
        ("hot_always", "x", "hot_always is 'x', allowed: a list"),
        ("hot_always/1", 3, "hot_always[1] is 3, allowed: only strings"),
        ("blobs/1", [], "blobs[1] is [], allowed: an object"),
        ("blobs/0/id", "b tas", "blobs[0].id is 'b tas', allowed: one or more of a-z, 0-9 and _"),
        ("blobs/0/id", 3, "blobs[0].id is 3, allowed: a string"),
        ("blobs/0/prefixes", [], "blobs[0].prefixes is (), allowed: a list of strings, at least 1"),
        ("blobs/0/bucket", 3, "blobs[0].bucket is 3, allowed: an object"),
        (
            "blobs/0/bucket/width",
            2**63,
            f"blobs[0].bucket.width is {2**63}, allowed: an integer of at least 1 and below {2**63}",
        ),
        (
            "blobs/0/bucket/index",
            -1,
            f"blobs[0].bucket.index is -1, allowed: an integer of at least 0 and below {2**63}",
        ),
        (
            "blobs/0/bucket/key_encoding",
            "v1",
            "blobs[0].bucket.key_encoding is 'v1', allowed: 'v3_slash', 'v2_slash', 'v2_flat'",
        ),
        ("blobs/0/colour", 1, "blobs[0] is one with a field 'colour', allowed: only id, prefixes, bucket"),
        ("pinned/2/reason", "", "pinned[2].reason is '', allowed: a string that is not empty"),
        ("pinned/2/by", None, "pinned[2].by is None, allowed: a value, or no such field"),
        ("pinned/2/until", 3, "pinned[2].until is 3, allowed: a string"),
        ("policy", [], "policy is [], allowed: an object"),
        ("policy/t_max_bytes", "1", "policy.t_max_bytes is '1', allowed: an integer with at most 4300 digits"),
        ("provenance", None, "provenance is None, allowed: a value, or no such field"),
        ("generated_at", 3, "generated_at is 3, allowed: a string"),
    ],
)
def test_a_refusal_names_field_value_and_what_is_allowed(path: str, value: object, message: str) -> None:
    assert refusal(changed(path, value)) == message


def test_a_missing_and_an_unknown_field_are_named() -> None:
    assert refusal(b"{}") == "schema_version is missing, allowed: a value, it is required"
    assert refusal(changed("colour", 1)).startswith("the document is one with a field 'colour', allowed: only schema_")


def test_a_manifest_that_lies_elsewhere_is_refused() -> None:
    assert refusal(encoded(FULL), scope="a/t.zarr") == "scope is 'a/s.zarr', allowed: 'a/t.zarr', as it lies there"
    assert refusal(encoded(FULL), scope="") == "scope is 'a/s.zarr', allowed: '', as it lies there"


# Hostile documents.


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the document is one that begins with '', allowed: a JSON object"),
        (b" \n[]", "the document is one that begins with '[', allowed: a JSON object"),
        (b"<html>", "the document is one that begins with '<', allowed: a JSON object"),
        (
            b'{\n"a" 1}',
            "the document is not JSON at line 2, column 5 (Expecting ':' delimiter), allowed: JSON in UTF-8",
        ),
        (b'{"a": 1} {}', "the document is not JSON at line 1, column 10 (Extra data), allowed: JSON in UTF-8"),
        (
            b'{"a": "\x00"}',
            "the document is not JSON at line 1, column 8 (Invalid control character at), allowed: JSON",
        ),
        (b'{"a": "\xff"}', "the document is not UTF-8 at byte 7, allowed: JSON in UTF-8"),
        (b'{"a": "\xed\xa0\x80"}', "the document is not UTF-8 at byte 7, allowed: JSON in UTF-8"),
        (b"\xef\xbb\xbf{}", "the document is one that begins with '\\ufeff', allowed: a JSON object"),
        ('{"a": 1}'.encode("utf-16"), "the document is not UTF-8 at byte 0, allowed: JSON in UTF-8"),
        (b'{"a": NaN}', "the document is holding NaN, allowed: numbers that JSON has"),
        (b'{"a": -Infinity}', "the document is holding -Infinity, allowed: numbers that JSON has"),
        (b'{"a": 1e400}', "the document is holding the number '1e400', allowed: numbers up to 1.79"),
        (b'{"a": -1e400}', "the document is holding the number '-1e400', allowed: numbers up to 1.79"),
        (b'{"a": 1, "b": 2, "a": 3}', "the document is one with an object that has 'a' twice, allowed: every key once"),
        (b'{"a": ' + b"9" * 4_301 + b"}", "the document is holding an integer of more digits, allowed: 4300 digits"),
        (b'{"a": ' + b"9" * 5_000_000 + b"}", "the document is holding an integer of more digits, allowed: 4300"),
        (b'{"a":' + b"[" * 5_000_000, "the document is nested deeper, allowed: 64 levels of arrays and objects"),
        (b'{"a":' * 5_000_000, "the document is nested deeper, allowed: 64 levels of arrays and objects"),
        (
            b'{"a":' + b"[" * 64 + b"]" * 64 + b"}",
            "the document is nested deeper, allowed: 64 levels of arrays and objects",
        ),
        (b'{"a":' + b"[" * 63 + b"]" * 63 + b"}", "schema_version is missing"),
        (b" " * (MAX_BYTES + 1), "the document is 67108865 bytes long, allowed: 67108864 bytes"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_hostile_document_is_refused_by_name(data: bytes, message: str) -> None:
    assert refusal(data).startswith(message)


def nested(levels: int, value: Any = 0) -> Any:
    for _ in range(levels):
        value = [value]
    return value


def test_the_longest_and_the_deepest_that_are_allowed() -> None:
    deepest = changed("provenance", {"x": nested(62)})
    manifest = parse_manifest(deepest + b" " * (MAX_BYTES - len(deepest)), source="x")
    assert json.loads(render_manifest(manifest)) == json.loads(deepest)
    assert refusal(changed("provenance", {"x": nested(63)})).startswith("the document is nested deeper, allowed: 64")
    with pytest.raises(ManifestError, match=r"^provenance\.x(\[0\])+ is nested deeper, allowed: 64 levels$"):
        Manifest("s", 1, provenance={"x": nested(63)})
    with pytest.raises(ManifestError, match=r"^provenance\.x(\[0\])+ is nested deeper, allowed: 64 levels$"):
        Manifest("s", 1, provenance={"x": nested(62, {})})


def test_a_long_value_does_not_make_a_long_message() -> None:
    assert "..." in refusal(changed("blobs/0/id", "X" * 100_000))
    assert "..." in refusal(changed("epoch", list(range(100_000))))
    assert refusal(changed("blobs/0/bucket/width", 10**4_000)).startswith(
        "blobs[0].bucket.width is an integer of 13288 bits"
    )


# Values that our own code makes.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bucket(0, 0, "v3_slash"), "width is 0, allowed: an integer of at least 1 and below"),
        (lambda: Bucket(True, 1, "v3_slash"), "index is True, allowed: an integer"),
        (lambda: Blob("b_a\n", ("x",), None), r"id is 'b_a\\n', allowed: one or more of a-z, 0-9 and _"),
        (lambda: Blob("b_a", ["x"], None), r"prefixes is \['x'\], allowed: a list of strings, at least 1"),  # type: ignore[arg-type]  # what is tested
        (lambda: Blob("b_a", ("x",), {}), r"bucket is \{\}, allowed: a bucket or None"),  # type: ignore[arg-type]  # what is tested
        (lambda: Pin("x", ""), "reason is '', allowed: a string that is not empty"),
        (lambda: Pin("x", "why", until=3), "until is 3, allowed: a string"),  # type: ignore[arg-type]  # what is tested
        (lambda: Manifest("s", 0), "epoch is 0, allowed: an integer of at least 1"),
        (lambda: Manifest("s", 10**4_300), "epoch is an integer of 14285 bits, allowed: an integer of at least 1"),
        (lambda: Manifest("s", 1, blobs=(Pin("x", "why"),)), r"blobs\[0\] is Pin\(.*\), allowed: only rules"),  # type: ignore[arg-type]  # what is tested
        (lambda: Manifest("s", 1, policy={"x": 1.0}), r"policy\.x is 1\.0, allowed: an integer"),  # type: ignore[dict-item]  # what is tested
        (lambda: Manifest("s", 1, provenance={3: 1}), "a key of provenance is 3, allowed: a string"),  # type: ignore[dict-item]  # what is tested
        (lambda: Manifest("s", 1, provenance={"x": float("nan")}), r"provenance\.x is nan, allowed: what JSON has"),
        (lambda: Manifest("s", 1, provenance={"x": [{1}]}), r"provenance\.x\[0\] is \{1\}, allowed: what JSON has"),
        (
            lambda: Manifest("s", 1, provenance={"x": 10**4_300}),
            r"provenance\.x is an integer of 14285 bits, allowed: an",
        ),
    ],
)
def test_an_invalid_value_cannot_be_made(make: Any, message: str) -> None:
    with pytest.raises(ManifestError, match=f"^{message}"):
        make()


def test_a_manifest_does_not_change_with_what_it_was_made_from() -> None:
    policy, provenance = {"t_max_bytes": 1}, {"tas": {"shape": [1, 2]}}
    manifest = Manifest("s", 1, policy=policy, provenance=provenance)
    policy["t_max_bytes"] = 2
    provenance["tas"]["shape"].append(3)
    assert manifest.policy == {"t_max_bytes": 1}
    assert manifest.provenance == {"tas": {"shape": (1, 2)}}
    assert manifest == Manifest("s", 1, policy={"t_max_bytes": 1}, provenance={"tas": {"shape": [1, 2]}})


# Where manifests are kept.

PLACES = [("", "manifest.json"), ("s.zarr", "s.zarr/manifest.json"), ("a/b c/ü", "a/b c/ü/manifest.json"),
          ("manifest.json", "manifest.json/manifest.json"), (".blobmaps", ".blobmaps/manifest.json")]  # fmt: skip


@pytest.mark.parametrize(("scope", "key"), PLACES)
def test_scope_and_key_of_a_manifest(scope: str, key: str) -> None:
    assert manifest_key(scope) == key
    assert scope_of_key(key) == scope


@pytest.mark.parametrize(
    "key",
    ["", "x.json", "s/other.json", "s/manifest.json.bak", "s/manifest.json/", "/manifest.json", "a//manifest.json",
     "a/./manifest.json", "../manifest.json", ".blobmap/manifest.json", ".blobmap/state/s/manifest.json"],
)  # fmt: skip
def test_a_key_that_is_of_no_manifest(key: str) -> None:
    assert scope_of_key(key) is None


@pytest.mark.parametrize("scope", ["/", "a/", "/a", "a//b", "a/../b", ".", ".blobmap", ".blobmap/state"])
def test_a_scope_that_no_manifest_can_be_kept_for(scope: str) -> None:
    with pytest.raises(ManifestError, match=r"^no manifest can be kept for scope '.*', allowed: "):
        manifest_key(scope)


# Hot patterns.


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("", "**"),
        ("lat", "lat/**"),
        ("grp/lat", "grp/lat/**"),
        ("star*", "star*/**"),
        ("x/**", "x/**/**"),
        ("x/*", "x/*/**"),
        ("a**", "a**/**"),
        ("*", "*/**"),
        (".blobmap", ".blobmap/**"),
        ("**", None),
        ("**/x", None),
        ("a//b", None),
        ("a/../b", None),
        ("/a", None),
    ],
)
def test_the_pattern_of_an_array(path: str, pattern: str | None) -> None:
    assert hot_pattern(path) == pattern
    if pattern is not None:
        assert read_hot_pattern(pattern) == ("prefix", path)


@given(st.lists(st.sampled_from(AWKWARD) | st.text(max_size=3), min_size=1, max_size=3).map("/".join))
def test_a_pattern_keeps_its_array_hot_and_no_other(path: str) -> None:
    pattern = hot_pattern(path)
    if pattern is None:
        return
    trie = Trie()
    trie.add(Manifest("s", 1, (pattern,)))
    inside = f"s/{path}/0" if path else "s/0"
    assert trie.lookup(inside).kind == "hot"
    assert trie.lookup("s/neighbour/0").kind == ("unmanaged" if path else "hot")
    assert trie.lookup(f"s/{path}x/0").kind == "unmanaged" or not path


@pytest.mark.parametrize(
    ("pattern", "meaning"),
    [
        ("**/x", ("name", "x")),
        ("**/", ("name", "")),
        ("**/**", ("name", "**")),
        ("**/a/b", ("prefix", "**/a/b")),
        ("**", ("prefix", "")),
        ("", ("prefix", "")),
        ("a", ("prefix", "a")),
        ("a/", ("prefix", "a")),
        ("a//", ("prefix", "a/")),
        ("a/**", ("prefix", "a")),
        ("a/*", ("prefix", "a")),
        ("a**", ("prefix", "a")),
        ("a*", ("prefix", "a")),
        ("a***", ("prefix", "a*")),
        ("*x", ("prefix", "*x")),
    ],
)
def test_what_a_pattern_means(pattern: str, meaning: tuple[str, str]) -> None:
    assert read_hot_pattern(pattern) == meaning
