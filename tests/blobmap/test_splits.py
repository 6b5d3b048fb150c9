from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blobmap.splits import Split, share_out, split_listing
from tests.support.measured import layout_of
from tests.support.stores import RawArray, chunk_keys

ARRAYS = [
    RawArray("a", (1234, 2), (1, 2)),
    RawArray("a", (1234, 2), (1, 2), separator="."),
    RawArray("a", (1, 1234), (1, 1), format=2),
    RawArray("a", (1234,), (1,), format=2, separator="."),
]


def parts_of(raw: RawArray, keys: list[str]) -> list[list[str]]:
    """What each part of the listing of sorted keys gives, in pages of 100."""
    found = []
    for part in split_listing(layout_of(raw), "st/a/"):
        behind = [{"path": key} for key in keys if part.after is None or key > part.after]
        taken: list[str] = []
        for start in range(0, len(behind), 100):
            page = behind[start : start + 100]
            kept = part.within(page)
            taken += [entry["path"] for entry in kept]
            if len(kept) < len(page):
                break
        found.append(taken)
    return found


@pytest.mark.parametrize("raw", ARRAYS)
def test_parts_hold_every_key_once_and_are_of_one_size(raw: RawArray) -> None:
    keys = sorted([*chunk_keys("st", raw), "st/a/zarr.json", "st/a/.zarray", "st/a/c", "st/a/c/", "st/a/~"])
    parts = parts_of(raw, keys)
    assert [key for part in parts for key in part] == keys
    sizes = sorted(len(part) for part in parts)
    assert sizes[-1] < 4 * sizes[1]


@given(st.lists(st.text("c/.0123456789az", max_size=8), unique=True), st.sampled_from(ARRAYS))
def test_any_key_is_in_one_part(tails: list[str], raw: RawArray) -> None:
    keys = sorted(f"st/a/{tail}" for tail in tails)
    assert [key for part in parts_of(raw, keys) for key in part] == keys


def test_where_no_index_varies_there_is_one_part() -> None:
    assert split_listing(layout_of(RawArray("a", (), ())), "st/a/") == (Split(),)
    assert split_listing(layout_of(RawArray("a", (3, 3), (3, 3))), "st/a/") == (Split(),)
    fanout = RawArray("a", (99, 3), (1, 3), members={"chunk_key_encoding": {"name": "fanout"}})
    assert split_listing(layout_of(fanout), "st/a/") == (Split(),)


def takers(raw: RawArray, prefix: str, key: str, shares: int) -> list[int]:
    """The shares whose walk, from the array's directory down, comes to a file."""
    segments = key.removeprefix(prefix).split("/")
    above = [(prefix + "/".join(segments[:depth])).removesuffix("/") for depth in range(len(segments))]
    return [
        share.number
        for share in share_out(layout_of(raw), prefix, shares)
        if all(share.takes(directory, name) for directory, name in zip(above, segments, strict=True))
    ]


@pytest.mark.parametrize("raw", ARRAYS)
def test_every_share_has_its_part_of_the_files(raw: RawArray) -> None:
    taken = [takers(raw, "st/a/", key, 3) for key in chunk_keys("st", raw)]
    assert all(len(shares) == 1 for shares in taken)
    for number in range(3):
        assert taken.count([number]) > len(taken) / 4


@given(
    st.lists(st.sampled_from(["c", "0", "1", "17", "c.0", "zarr.json", "é"]), min_size=1, max_size=5).map("/".join),
    st.sampled_from([*ARRAYS, RawArray("a", (), ()), RawArray("a", (1, 1), (1, 1))]),
    st.sampled_from(["", "a/", "st/a/"]),
    st.integers(1, 4),
)
def test_any_file_is_in_one_share(tail: str, raw: RawArray, prefix: str, shares: int) -> None:
    assert len(takers(raw, prefix, prefix + tail, shares)) == 1
