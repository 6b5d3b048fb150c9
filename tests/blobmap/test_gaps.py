"""What could not be listed: which prefixes it touches, and when it is forgotten."""

from __future__ import annotations

import pytest
from obstore.store import MemoryStore

from blobmap.errors import UsageError
from blobmap.gaps import Gaps
from blobmap.storage import Storage


@pytest.mark.parametrize(
    ("gap", "touched", "clear"),
    [
        ("", ["", "a", "a/b"], []),
        ("a/b", ["", "a", "a/b", "a/b/c"], ["b", "a/bc", "a/b-c"]),
        ("/", [""], ["a", "a/b"]),
        ("a//", ["", "a"], ["a/b", "b"]),
    ],
)
def test_a_gap_touches_what_lies_above_at_and_below_it(gap: str, touched: list[str], clear: list[str]) -> None:
    gaps = Gaps()
    gaps.note_unreadable(gap)
    assert [prefix for prefix in touched + clear if gaps.touching(prefix)] == touched


def test_each_is_named_once_and_forgotten_below_what_is_listed_anew() -> None:
    gaps = Gaps()
    for key in ["a", "a/b", "ab", "a"]:
        gaps.note_unreadable(key)
        gaps.note_odd(key)
    assert (gaps.unreadable, gaps.odd_keys) == (["a", "a/b", "ab"], ["a", "a/b", "ab"])
    gaps.forget("a")
    assert (gaps.unreadable, gaps.odd_keys) == (["ab"], ["ab"])
    gaps.forget("")
    assert (gaps.unreadable, gaps.odd_keys) == ([], [])


def test_a_storage_forgets_when_it_lists_anew() -> None:
    storage = Storage(MemoryStore())
    for gap in ("a/b", "c"):
        storage._gaps.note_unreadable(gap)
    list(storage.pages("a"))
    assert (storage.unreadable, storage.gaps("a"), storage.gaps()) == (["c"], (), ("c",))


def test_a_storage_forgets_below_a_prefix_when_it_is_told_to() -> None:
    storage = Storage(MemoryStore())
    for gap in ("", "a", "a/b", "ab"):
        storage._gaps.note_unreadable(gap)
        storage._gaps.note_odd(gap)
    storage.level("a")
    list(storage.pages("a", after="a/a"))
    assert storage.unreadable == ["", "a", "a/b", "ab"]
    storage.forget("a")
    assert (storage.unreadable, storage.odd_keys) == (["", "ab"], ["", "ab"])
    with pytest.raises(UsageError):
        storage.forget("a/")
    storage.forget()
    assert (storage.unreadable, storage.odd_keys) == ([], [])
