"""Listings around keys that cannot be addressed: what can be listed is, and the rest is named."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blobmap.gaps import Gaps
from blobmap.objects import RawPage
from blobmap.odd_keys import Fence, OddKeyError, key_in_error
from blobmap.storage import Storage, open_storage
from blobmap.store_keys import valid_offset
from tests.support.backends import Backend, at_gateway, small_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from blobmap.objects import Entry, Level
    from tests.services.gateway import Gateway
    from tests.support.small_s3 import SmallS3

GOOD = ["a.zarr/zarr.json", "a.zarr/t/c/0/0", "a.zarr/t/c/0/1", "b.zarr/0", "b.zarr/t/zarr.json", "z"]


def put_raw(server: SmallS3, keys: Iterable[str]) -> None:
    server.objects = dict.fromkeys(keys, b"1")


def listed(storage: Storage, prefix: str = "", *, after: str | None = None) -> list[str]:
    return [entry["path"] for page in storage.pages(prefix, after=after) for entry in page]


def opened(server: SmallS3, prefix: str = "") -> Storage:
    return open_storage(f"s3://{server.bucket}/{prefix}", small_options(server))


def is_good(key: str) -> bool:
    return not any(
        segment in {"", ".", ".."} or any(ord(letter) < 32 or ord(letter) == 127 for letter in segment)
        for segment in key.split("/")
    )


# Each odd key, and the prefix that is named for it.
ODD = [
    ("a.zarr//t/c/0/9", "a.zarr//"),
    ("raw//", "raw//"),
    ("a.zarr/t//", "a.zarr/t//"),
    ("a.zarr/t/../u", "a.zarr/t/../"),
    ("a.zarr/..", "a.zarr/.."),
    ("a.zarr/./x", "a.zarr/./"),
    ("a.zarr/t/c\n/0", "a.zarr/t/c\n/"),
    ("b.zarr/\x01", "b.zarr/\x01"),
    ("b.zarr/q\x7fr/0", "b.zarr/q\x7fr/"),
    ("new\nline", "new\nline"),
    ("../up", "../"),
    ("/lead", "/"),
    ("/a.zarr/lead", "/"),
    ("//twice/lead", "/"),
]
EACH = pytest.mark.parametrize(("odd", "gap"), ODD, ids=[f"O01-{odd!r}" for odd, _ in ODD])


@EACH
def test_one_odd_key_costs_no_other_key(small_s3: SmallS3, odd: str, gap: str) -> None:
    put_raw(small_s3, [*GOOD, odd])
    storage = opened(small_s3)
    assert listed(storage) == sorted(GOOD)
    assert storage.unreadable == [gap]
    assert storage.odd_keys == [odd]


@EACH
def test_other_stores_are_still_whole(small_s3: SmallS3, odd: str, gap: str) -> None:
    put_raw(small_s3, [*GOOD, odd])
    for storage in (opened(small_s3), opened(small_s3)):
        for store in ("a.zarr", "b.zarr"):
            assert listed(storage, store) == sorted(key for key in GOOD if key.startswith(store))
            assert storage.gaps(store) == ((gap,) if odd.startswith(store) else ())


@EACH
def test_levels_go_around_odd_names(small_s3: SmallS3, odd: str, gap: str) -> None:
    put_raw(small_s3, [*GOOD, odd])
    storage = opened(small_s3)
    root = storage.level()
    assert set(root.prefixes) - {"raw"} == {"a.zarr", "b.zarr"}
    assert [entry["path"] for entry in root.objects] == ["z"]
    assert bool(storage.unreadable) == (gap in {"/", "../", "new\nline"})
    level = storage.level("a.zarr")
    assert (list(level.prefixes), [entry["path"] for entry in level.objects]) == (["a.zarr/t"], ["a.zarr/zarr.json"])
    assert bool(storage.gaps("a.zarr")) == (gap in {"a.zarr//", "a.zarr/..", "a.zarr/./"})


def test_below_a_prefix_of_the_bucket_keys_are_named_as_they_are_in_the_store(small_s3: SmallS3) -> None:
    put_raw(small_s3, ["p/q/a//x", "p/q/a/b", "p/q/c", "p/q//lead", "p/q2", "/lead"])
    storage = opened(small_s3, "p/q")
    assert listed(storage) == ["a/b", "c"]
    assert storage.unreadable == ["/", "a//"]
    assert storage.odd_keys == ["/lead", "a//x"]


def test_bytes_that_are_no_text_are_told_as_escapes() -> None:
    gaps = Gaps()
    page = RawPage(tuple(entry_of(key) for key in ("s/caf\udce9", "s/ok", "s/\udcff/x")), ())
    [good] = Fence(NeverRaw([]), gaps).good_part(iter([page]))
    assert [entry["path"] for entry in good] == ["s/ok"]
    assert gaps.odd_keys == ["s/caf\\xe9", "s/\\xff/x"]
    assert gaps.unreadable == ["s/caf\\xe9", "s/\\xff/"]


def test_keys_that_begin_with_a_slash_beside_the_same_without(small_s3: SmallS3) -> None:
    put_raw(small_s3, [f"{root}{key}" for root in ("", "/") for key in ("0", ".a", "a/b", "c")])
    storage = opened(small_s3)
    assert listed(storage) == [".a", "0", "a/b", "c"]
    assert storage.unreadable == ["/"]
    assert sorted(storage.odd_keys) == ["/.a", "/0", "/a/b", "/c"]
    assert listed(storage, after="a/a") == ["a/b", "c"]
    assert listed(storage, after="a/b") == ["c"]


def test_a_root_with_both_kinds_of_odd_names(small_s3: SmallS3) -> None:
    put_raw(small_s3, [*GOOD, "/lead", "new\nline"])
    storage = opened(small_s3)
    assert listed(storage) == sorted(GOOD)
    assert storage.unreadable == ["/", "new\nline"]


def test_a_page_that_holds_an_odd_key_is_not_lost(small_s3: SmallS3) -> None:
    """Good keys on every page before, around and behind the odd ones, and more than one odd key."""
    good = [f"s/{child}/{n:04}" for child in ("a", "b", "c") for n in range(1200)]
    put_raw(small_s3, [*good, "s/b/0599//x", "s/b/0600\n", "s/c/.."])
    storage = opened(small_s3)
    assert listed(storage) == sorted(good)
    assert storage.unreadable == ["s/b/0599//", "s/b/0600\n", "s/c/.."]
    assert len(small_s3.seen) < 150, "an odd key costs a few dozen requests, not one for each key"


def test_what_lies_at_once_behind_an_odd_name_is_found(small_s3: SmallS3) -> None:
    """The least key behind an odd name is where the listing begins again, and a listing begins behind its offset."""
    good = ["s/0", "s/00", "s/b/x", "s/c ", "s/c!", "s/q\x80", "s/..0", "s/.. ", "s/...", "s/.0", "s/-"]
    put_raw(small_s3, [*good, "s//x", "s/../y", "s/..", "s/./z", "s/c\n", "s/q\x7f"])
    storage = opened(small_s3)
    assert listed(storage) == sorted(good)
    assert storage.unreadable == ["s/..", "s/../", "s/./", "s//", "s/c\n", "s/q\x7f"]


def without_key_pair(server: SmallS3, monkeypatch: pytest.MonkeyPatch, *, anonymous: bool) -> Storage:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    options = replace(small_options(server), access_key_id=None, secret_access_key=None, anonymous=anonymous)
    return open_storage("s3://bkt", options)


def test_an_anonymous_listing_goes_around_odd_keys_too(small_s3: SmallS3, monkeypatch: pytest.MonkeyPatch) -> None:
    put_raw(small_s3, [*GOOD, "b.zarr//x"])
    storage = without_key_pair(small_s3, monkeypatch, anonymous=True)
    assert listed(storage) == sorted(GOOD)
    assert storage.unreadable == ["b.zarr//"]
    assert not any(seen.signed for seen in small_s3.seen)


def test_with_credentials_of_a_role_the_whole_page_is_named(
    small_s3: SmallS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They are the client library's alone, so nothing can be listed raw."""
    put_raw(small_s3, [*GOOD, "b.zarr//x"])
    (tmp_path / "token").write_text("token")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{small_s3.endpoint}/credentials")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
    storage = without_key_pair(small_s3, monkeypatch, anonymous=False)
    assert listed(storage) == ["b.zarr/0", "b.zarr/t/zarr.json", "z"]
    assert (storage.unreadable, storage.odd_keys) == ([""], ["b.zarr//x"])
    assert (storage.level("b.zarr").prefixes, storage.unreadable) == ((), ["", "b.zarr"])
    put_raw(small_s3, [*GOOD, "/lead"])
    assert listed(storage) == []
    assert (storage.unreadable, storage.odd_keys) == ([""], ["/"])


def test_where_nothing_is_listed_raw_the_prefix_of_all_that_is_missing_is_named() -> None:
    """Other stores than S3: all between the last key that was listed and the odd one."""
    listing = NeverRaw(["a/0", "b/c/1", "b/c/d//x", "b/c/e", "c/0"])
    gaps = Gaps()
    found = [entry["path"] for page in Fence(listing, gaps).pages("", None) for entry in page]
    assert found == ["b/c/e", "c/0"]
    assert gaps.unreadable == [""]
    gaps = Gaps()
    found = [entry["path"] for page in Fence(listing, gaps).pages("", "b/c/0") for entry in page]
    assert found == ["b/c/e", "c/0"]
    assert gaps.unreadable == ["b/c"]


class NeverRaw:
    """A listing that gives up whole pages."""

    def __init__(self, keys: list[str]) -> None:
        self._keys = keys

    def flat(self, prefix: str, after: str | None) -> Iterator[list[Entry]]:
        assert prefix == ""
        page = [key for key in self._keys if key > (after or "")]
        for key in page:
            if not is_good(key):
                raise OddKeyError(key)
        if page:
            yield [entry_of(key) for key in page]

    def one_level(self, prefix: str) -> Level:
        raise OddKeyError(prefix)

    def raw(self, prefix: str, after: str | None, *, by_level: bool = False) -> None:
        """Not to be had."""

    def head(self, key: str) -> Entry | None:
        return entry_of(key) if key in self._keys else None


def entry_of(key: str) -> Entry:
    return {"path": key, "last_modified": datetime.now(UTC), "size": 1, "e_tag": None, "version": None}


KEYS = st.text(st.sampled_from("ab0/.\n\x7f "), min_size=1, max_size=9)


@given(keys=st.sets(KEYS, max_size=12), after=st.one_of(st.none(), KEYS), prefix=st.sampled_from(["", "a", "a/b"]))
def test_whatever_the_keys_nothing_is_invented_and_nothing_passes_as_whole(
    fresh_s3: Callable[[], SmallS3], keys: set[str], after: str | None, prefix: str
) -> None:
    keys = {key for key in keys if not key.endswith("/")}
    server = fresh_s3()
    put_raw(server, keys)
    storage = opened(server)
    found = listed(storage, prefix, after=after)
    whole = {key for key in keys if (not prefix or key.startswith(prefix + "/")) and (after is None or key > after)}
    good = {key for key in whole if is_good(key)}
    assert found == sorted(set(found)), "in key order, each once"
    assert set(found) == good, "all that can be addressed"
    assert set(storage.odd_keys) >= whole - good, "each by name"
    assert all(any(key.startswith(gap) for gap in storage.unreadable) for key in whole - good)


@pytest.mark.services
def test_control_characters_at_a_gateway(gateway: Gateway, bucket: str) -> None:
    backend: Backend = at_gateway(gateway, bucket)
    backend.fill(*GOOD)
    (gateway.root / bucket / "a.zarr" / "t" / "new\nline").write_bytes(b"1")
    storage = backend.open()
    assert listed(storage) == sorted(GOOD)
    assert (storage.unreadable, storage.odd_keys) == (["a.zarr/t/new\nline"], ["a.zarr/t/new\nline"])


@pytest.mark.parametrize(
    ("escaped", "key"),
    [
        (r"a//b", "a//b"),
        (r"a\n\r\t\0b", "a\n\r\t\0b"),
        (r"q\u{7f}\u{1f30a}", "q\x7f\U0001f30a"),
        (r"say \"hi\" \\ it\'s", 'say "hi" \\ it\'s'),
    ],
)
def test_the_key_is_read_out_of_the_message(escaped: str, key: str) -> None:
    assert key_in_error(f'Some text\n\nDebug source:\nInvalidPath {{ path: "{escaped}", source: x }}') == key


def test_a_message_of_another_shape_names_no_key() -> None:
    assert key_in_error("Something else") == ""


@pytest.mark.parametrize(
    ("after", "offset"),
    [
        ("a/b", "a/b"),
        ("", None),
        ("a//b", "a"),
        ("/a", None),
        ("a/", "a"),
        ("a/b\n/c", "a"),
        ("a/../b", "a"),
        ("a b/%", "a b/%"),
    ],
)
def test_an_offset_is_cut_to_what_can_be_one(after: str, offset: str | None) -> None:
    assert valid_offset(after) == offset
