from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blobmap.manifest import Blob, Bucket, Manifest, Pin
from consumer.events import GatewayTest, Kind, ObjectEvent, Refusal
from consumer.route import Document, Emit, Ignore, Outcome, Relist, Rules, Unclaimed, Withheld, route
from tests.support.manifests import manifest, trie

TRIES = {"data": trie(manifest("s.zarr", epoch=4), manifest("deep/er.zarr")), "other": trie()}
RULES = Rules(
    own_principals=frozenset({"svc-tape"}),
    manifest_roots={"manifests": ("",), "data": ("our/manifests",), "shared": ("cordex",)},
)


def event(key: str, kind: Kind = "created", bucket: str = "data", **more: Any) -> ObjectEvent:
    return ObjectEvent(bucket, key, kind, "objectcreated:put", **more)


def outcome(key: str, kind: Kind = "created", bucket: str = "data", **more: Any) -> Outcome:
    return route(event(key, kind, bucket, **more), TRIES, RULES)


@pytest.mark.parametrize("kind", ["created", "removed"])
def test_claimed(kind: Kind) -> None:
    told = event("s.zarr/t/c/25/0", kind)
    assert route(told, TRIES, RULES) == Emit(told, "s.zarr", "b_t_2", 4)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("s.zarr/lat/c/0", "hot"),
        ("s.zarr/kept/c/0", "pinned"),
        ("s.zarr/t/", "directory-marker"),
        ("s.zarr/zarr.json/", "directory-marker"),
        ("our/manifests/s.zarr/manifest.json", "manifest-bucket"),
        ("our/manifests", "manifest-bucket"),
    ],
)
@pytest.mark.parametrize("kind", ["created", "removed"])
def test_ignored_whatever_happened(key: str, reason: str, kind: Kind) -> None:
    assert outcome(key, kind) == Ignore(reason)  # type: ignore[arg-type]  # the table holds plain text


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("", "empty-key"),
        ("/", "odd-key"),
        ("//", "odd-key"),
        ("/s.zarr/t/c/0", "odd-key"),
        ("s.zarr//t/c/0", "odd-key"),
        ("s.zarr/./t/c/0", "odd-key"),
        ("s.zarr/x/../t/c/0", "odd-key"),
        ("s.zarr/t//", "odd-key"),
        ("..", "odd-key"),
        ("../s.zarr/t/c/0", "odd-key"),
        ("s.zarr/x/../zarr.json", "odd-key"),
    ],
)
@pytest.mark.parametrize("kind", ["created", "removed"])
def test_a_key_that_no_listing_shows_is_for_a_listing_to_tell(key: str, reason: str, kind: Kind) -> None:
    assert outcome(key, kind) == Relist(event(key, kind), reason)  # type: ignore[arg-type]  # the table holds plain text
    assert outcome(key, kind, principal="svc-tape") == Relist(event(key, kind, principal="svc-tape"), reason)  # type: ignore[arg-type]  # likewise


# --- documents


def rules_of_every_kind() -> Manifest:
    return replace(
        manifest("v.zarr"),
        hot_always=("hot/**",),
        blobs=(
            Blob("b_slash", ("g/slash/c",), Bucket(3, 10, "v3_slash")),
            Blob("b_dot", ("g/dot",), Bucket(2, 10, "v2_flat")),
            Blob("b_v2", ("g/v2",), Bucket(0, 10, "v2_slash")),
            Blob("b_all", ("g/all",), None),
            Blob("b_chunks", ("g/scalar/c",), None),
        ),
        pinned=(Pin("kept", "for a test"),),
    )


TRIES_OF_EVERY_KIND = {"data": trie(rules_of_every_kind())}


@pytest.mark.parametrize("place", ["slash", "dot", "v2", "all", "scalar"])
@pytest.mark.parametrize("name", ["zarr.json", ".zarray", ".zattrs"])
def test_the_document_of_what_is_claimed_is_known(place: str, name: str) -> None:
    told = event(f"v.zarr/g/{place}/{name}")
    assert route(told, TRIES_OF_EVERY_KIND, RULES) == Document(told, "v.zarr", known=True)


@pytest.mark.parametrize(
    ("key", "scope", "known"),
    [
        ("s.zarr/zarr.json", "s.zarr", True),
        ("s.zarr/.zattrs", "s.zarr", True),
        ("s.zarr/t/zarr.json", "s.zarr", True),
        ("s.zarr/lat/zarr.json", "s.zarr", True),
        ("s.zarr/kept/zarr.json", "s.zarr", True),
        ("s.zarr/g/.zgroup", "s.zarr", True),
        ("s.zarr/g/.zmetadata", "s.zarr", True),
        ("s.zarr/g/zarr.json", "s.zarr", False),
        ("s.zarr/t2/zarr.json", "s.zarr", False),
        ("s.zarr/new/.zarray", "s.zarr", False),
        ("new.zarr/zarr.json", None, False),
        ("new.zarr/.zgroup", None, False),
        ("new.zarr/t/.zattrs", None, False),
        ("deep/zarr.json", None, False),
        ("deep/er.zarr/zarr.json", "deep/er.zarr", True),
        (".zmetadata", None, False),
        ("zarr.json", None, False),
    ],
)
def test_a_document_is_known_where_nothing_has_to_be_done_about_it(key: str, scope: str | None, *, known: bool) -> None:
    assert outcome(key) == Document(event(key), scope, known)
    assert outcome(key, principal="svc-tape") == Document(event(key, principal="svc-tape"), scope, known=True)
    assert outcome(key, "removed") == Ignore("metadata")


def test_a_neighbour_of_the_manifests_is_data() -> None:
    assert isinstance(outcome("our/manifests2/t/c/0"), Unclaimed)


def test_unclaimed() -> None:
    assert outcome("new.zarr/t/c/0") == Unclaimed(event("new.zarr/t/c/0"), None)
    assert outcome("s.zarr/new/c/0") == Unclaimed(event("s.zarr/new/c/0"), "s.zarr")
    assert outcome("s.zarr/t/c/x") == Unclaimed(event("s.zarr/t/c/x"), "s.zarr")


def test_n14_a_removal_flags_nothing() -> None:
    assert outcome("never/existed.zarr/t/c/0", "removed") == Ignore("removed-unclaimed")
    assert outcome("never/existed.zarr/zarr.json", "removed") == Ignore("metadata")
    assert outcome("", "removed") == Relist(event("", "removed"), "empty-key")


def test_writes_of_own_accounts_are_no_news() -> None:
    kinds: tuple[Kind, ...] = ("created", "removed")
    for kind in kinds:
        told = event("s.zarr/t/c/0", kind, principal="svc-tape")
        assert route(told, TRIES, RULES) == Withheld(told, "s.zarr", "b_t_0")
        assert outcome("new.zarr/t/c/0", kind, principal="svc-tape") == Ignore("own-principal")
    assert outcome("s.zarr/lat/c/0", principal="svc-tape") == Ignore("hot")
    assert isinstance(outcome("s.zarr/t/c/0", principal="somebody"), Emit)
    assert isinstance(outcome("s.zarr/t/c/0", principal=None), Emit)


@pytest.mark.parametrize(
    ("bucket", "key", "reason"),
    [
        ("manifests", "cordex/s.zarr/manifest.json", "manifest-bucket"),
        ("manifests", "", "manifest-bucket"),
        ("shared", "cordex/s.zarr/manifest.json", "manifest-bucket"),
        ("shared", "cordex2/x", "foreign-bucket"),
        ("Test-Bucket", "s.zarr/t/c/0", "foreign-bucket"),
    ],
)
def test_buckets_that_are_not_data(bucket: str, key: str, reason: str) -> None:
    assert outcome(key, bucket=bucket) == Ignore(reason)  # type: ignore[arg-type]  # the table holds plain text


def test_each_bucket_has_its_own_manifests() -> None:
    assert outcome("s.zarr/t/c/0", bucket="other") == Unclaimed(event("s.zarr/t/c/0", bucket="other"), None)


def test_no_news() -> None:
    assert outcome("s.zarr/t/c/0", "other") == Ignore("no-news")
    assert route(GatewayTest(), TRIES, RULES) == Ignore("test-event")


def test_a_refusal_stays_one() -> None:
    refusal = Refusal("bad-record", "why", b"{}")
    assert route(refusal, TRIES, RULES) is refusal


@given(key=st.text(), kind=st.sampled_from(["created", "removed", "other"]), bucket=st.sampled_from(["data", "x"]))
def test_every_key_has_one_answer(key: str, kind: Kind, bucket: str) -> None:
    answer = route(event(key, kind, bucket), TRIES, RULES)
    assert isinstance(answer, Emit | Relist | Ignore | Unclaimed | Document)
    if not key or {"", ".", ".."} & set(key.split("/")):
        assert isinstance(answer, Relist | Ignore), "a key that no listing shows must not be answered"
