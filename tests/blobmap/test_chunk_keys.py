"""Chunk keys: text and indices, in both directions."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blobmap.chunk_keys import METADATA_NAMES, ChunkKeyEncoding, KeyEncoding, canonical_index, floor_divide
from blobmap.errors import DocumentError

if TYPE_CHECKING:
    from typing import Literal

V3 = ChunkKeyEncoding("default", "/")
V3_DOT = ChunkKeyEncoding("default", ".")
V2 = ChunkKeyEncoding("v2", ".")
V2_SLASH = ChunkKeyEncoding("v2", "/")

SPELLED = [
    (V3, (), "c"),
    (V3, (0,), "c/0"),
    (V3, (7, 0, 12), "c/7/0/12"),
    (V3_DOT, (), "c"),
    (V3_DOT, (0,), "c.0"),
    (V3_DOT, (7, 0, 12), "c.7.0.12"),
    (V2, (), "0"),
    (V2, (5,), "5"),
    (V2, (7, 0, 12), "7.0.12"),
    (V2_SLASH, (), "0"),
    (V2_SLASH, (5,), "5"),
    (V2_SLASH, (7, 0, 12), "7/0/12"),
]


@pytest.mark.parametrize(("encoding", "indices", "text"), SPELLED)
def test_both_directions(encoding: ChunkKeyEncoding, indices: tuple[int, ...], text: str) -> None:
    assert encoding.encode(indices) == text
    assert encoding.decode(text, len(indices)) == indices


@given(st.sampled_from([V3, V3_DOT, V2, V2_SLASH]), st.lists(st.integers(min_value=0, max_value=10**12), max_size=5))
def test_what_is_encoded_is_decoded(encoding: ChunkKeyEncoding, indices: list[int]) -> None:
    assert encoding.decode(encoding.encode(indices), len(indices)) == tuple(indices)


@pytest.mark.parametrize(
    ("encoding", "text", "ndim"),
    [
        (V3, "0/0", 2), (V3, "c/0", 2), (V3, "c/0/0/0", 2), (V3, "c.0.0", 2), (V3, "c/0/x", 2), (V3, "c/00/0", 2),
        (V3, "c", 1), (V3, "c/", 1), (V3, "c/0", 0), (V3, "", 0), (V3, "C/0", 1), (V3, "cc/0", 1), (V3, "c/x", 0),
        (V3_DOT, "c/0/0", 2), (V3_DOT, "0.0", 2), (V3_DOT, "c.0.0/0", 2),
        (V2, "c.0.0", 2), (V2, "0/0", 2), (V2, "0.0", 1), (V2, "0.", 2), (V2, "", 1), (V2, "1", 0), (V2, "c", 0),
        (V2_SLASH, "c/0/0", 2), (V2_SLASH, "0.0", 2), (V2_SLASH, "0//0", 3), (V2_SLASH, "-1/0", 2),
    ],
)  # fmt: skip
def test_a_key_of_another_array_is_none_of_this_one(encoding: ChunkKeyEncoding, text: str, ndim: int) -> None:
    assert encoding.decode(text, ndim) is None


@pytest.mark.parametrize(
    ("encoding", "rule"),
    [
        (V3, ("c", "v3_slash", 0)),
        (V3_DOT, ("", "v2_flat", 1)),
        (V2, ("", "v2_flat", 0)),
        (V2_SLASH, ("", "v2_slash", 0)),
    ],
)
def test_how_the_format_spells_a_rule(encoding: ChunkKeyEncoding, rule: tuple[str, KeyEncoding, int]) -> None:
    assert encoding.rule() == rule
    assert rule[1] in get_args(KeyEncoding)


def test_an_unknown_encoding_is_refused() -> None:
    name: Literal["default"] = "other"  # type: ignore[assignment]  # as a document may say
    separator: Literal["/"] = "-"  # type: ignore[assignment]  # likewise
    with pytest.raises(DocumentError, match=r"^chunk key encoding 'other' is unknown, allowed: 'default', 'v2'$"):
        ChunkKeyEncoding(name, "/")
    with pytest.raises(DocumentError, match=r"^chunk key separator '-' is unknown, allowed: '/', '\.'$"):
        ChunkKeyEncoding("v2", separator)


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("0", 0), ("7", 7), ("10", 10), ("9" * 30, 10**30 - 1),
        ("", None), ("00", None), ("01", None), ("+1", None), ("-1", None), ("1_0", None), (" 1", None), ("1 ", None),
        ("1\n", None), ("1.0", None), ("0x1", None), ("1e3", None), ("\u0665", None), ("\u00b2", None), ("c", None),
        ("\ud800", None), ("1\x00", None),
    ],
)  # fmt: skip
def test_a_canonical_index(text: str, index: int | None) -> None:
    assert canonical_index(text) == index


@pytest.mark.parametrize("digits", [511, 512, 513, 1024, 4301, 100_000])
def test_an_index_of_any_length_is_read(digits: int) -> None:
    assert canonical_index("9" * digits) == 10**digits - 1
    assert canonical_index("1" + "0" * (digits - 1)) == 10 ** (digits - 1)


@given(st.integers(0, 10**1200), st.integers(1, 2**63 - 1))
def test_division_is_that_of_integers(number: int, width: int) -> None:
    assert floor_divide(str(number), width) == str(number // width)


@pytest.mark.parametrize(
    ("digits", "width", "quotient"),
    [
        ("0", 1, "0"),
        ("0", 2**63 - 1, "0"),
        ("4095", 2048, "1"),
        ("8" * 100_000, 8, "1" * 100_000),
        ("9" * 100_000, 1, "9" * 100_000),
        ("1" + "0" * 99_999, 10, "1" + "0" * 99_998),
        ("7" * 513, 10**18, "7" * 495),
    ],
)
def test_division_of_any_length(digits: str, width: int, quotient: str) -> None:
    assert floor_divide(digits, width) == quotient


def test_the_names_of_metadata() -> None:
    assert {"zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"} == METADATA_NAMES
