from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blobmap.errors import UsageError
from blobmap.policy import Policy, format_size, parse_size

GIB = 1024**3

# Text, bytes, and the text that the bytes are written back as.
SIZES = [
    ("1", 1, "1 B"),
    ("512B", 512, "512 B"),
    ("1023", 1023, "1023 B"),
    ("3KiB", 3072, "3.0 KiB"),
    ("1KB", 1000, "1000 B"),
    ("1 MB", 10**6, "976.6 KiB"),
    ("45.8MiB", 48024780, "45.8 MiB"),
    ("100GiB", 100 * GIB, "100.0 GiB"),
    ("100gib", 100 * GIB, "100.0 GiB"),
    ("  100 GB  ", 10**11, "93.1 GiB"),
    ("1.5TiB", 1536 * GIB, "1.5 TiB"),
    ("1TB", 10**12, "931.3 GiB"),
    ("2PB", 2 * 10**15, "1.8 PiB"),
    ("5000PiB", 5000 * 1024**5, "5000.0 PiB"),
]


@pytest.mark.parametrize(("text", "size", "written"), SIZES)
def test_sizes_mean_what_they_say(text: str, size: int, written: str) -> None:
    assert parse_size(text) == size
    assert format_size(size) == written


@pytest.mark.parametrize(
    "text",
    ["", "GiB", "-1GiB", "+1GiB", "1e9", "1 000", "100G", "1_000", "nan", "inf", "0x10", "1KiBB", "٣GiB", "1.GiB"],
)
def test_nonsense_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(repr(text))):
        parse_size(text)


@pytest.mark.parametrize("text", ["0", "0GiB", "0.0TB", "0.5", "0.0001KB"])
def test_less_than_a_byte_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="less than one byte"):
        parse_size(text)


def test_a_size_that_rounds_up_to_the_next_unit_is_written_in_it() -> None:
    assert format_size(1024 * 1024 - 1) == "1.0 MiB"
    assert format_size(1023.7) == "1.0 KiB"
    assert format_size(0) == "0 B"


@given(st.integers(1, 2**60))
def test_what_is_written_reads_back_as_the_same_size_within_its_rounding(size: int) -> None:
    assert abs(parse_size(format_size(size)) - size) <= size * 0.05


@given(
    st.builds(
        Policy,
        t_max_bytes=st.integers(1, 2**62),
        t_min_bytes=st.integers(0, 2**62),
        t_hot_bytes=st.integers(0, 2**62),
        t_aux_bytes=st.integers(0, 2**62),
        width_clamp=st.integers(1, 2**31),
        pow2_floor=st.integers(1, 2**31),
    )
)
def test_a_policy_reads_back_as_itself(policy: Policy) -> None:
    assert Policy.from_json(policy.to_json()) == policy


def test_a_policy_of_another_writer_reads_with_our_defaults_and_without_its_own_keys() -> None:
    policy = Policy.from_json({"t_max_bytes": 5, "width_clamp": 2, "theirs": 7})
    assert policy == Policy(t_max_bytes=5, width_clamp=2)
    assert policy.t_aux_bytes == GIB


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("t_max_bytes", 0),
        ("t_max_bytes", True),
        ("t_max_bytes", 1.5),
        ("t_min_bytes", -1),
        ("t_hot_bytes", -1),
        ("t_aux_bytes", -1),
        ("width_clamp", 0),
        ("pow2_floor", 0),
    ],
)
def test_a_threshold_out_of_range_is_named(field: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"{field} is {value!r}"):
        Policy(**{field: value})  # type: ignore[arg-type]  # the point: what the type forbids is refused when it comes
