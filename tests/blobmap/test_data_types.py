from __future__ import annotations

import pytest

from blobmap.data_types import is_datetime, item_bytes_v2, item_bytes_v3

V2: list[tuple[object, int | None]] = [
    ("<f4", 4),
    (">f8", 8),
    ("|b1", 1),
    ("<i2", 2),
    ("|u1", 1),
    ("<c16", 16),
    ("<M8[ns]", 8),
    ("<m8[s]", 8),
    ("|S10", 10),
    ("<U5", 20),
    ("|V8", 8),
    ("|O", None),
    ("bfloat16", 2),
    ("nonsense", None),
    (None, None),
    ([["a", "<f4"], ["b", "<i2", [2, 3]]], 16),
    ([["a", "<f4"], ["b", "|u1", 5]], 9),
    ([["a", [["x", "<f8"], ["y", "<f8"]]]], 16),
    ([["a", "|O"]], None),
    ([["a"]], None),
    (["a"], None),
    ([], None),
]

V3: list[tuple[object, int | None]] = [
    ("bool", 1),
    ("int8", 1),
    ("int4", 1),
    ("uint2", 1),
    ("float32", 4),
    ("float8_e5m2", 1),
    ("bfloat16", 2),
    ("complex64", 8),
    ("complex_float32", 8),
    ("complex_bfloat16", 4),
    ("r16", 2),
    ("numpy.datetime64", 8),
    ("string", None),
    ("variable_length_bytes", None),
    ("somebody.else/type", None),
    (None, None),
    (7, None),
    ({"name": "numpy.datetime64", "configuration": {"unit": "ns", "scale_factor": 1}}, 8),
    ({"name": "fixed_length_utf32", "configuration": {"length_bytes": 40}}, 40),
    ({"name": "null_terminated_bytes", "configuration": {"length_bytes": 0}}, 1),
    ({"name": "int32"}, 4),
    ({"name": "struct", "configuration": {"fields": [["a", "int32"], ["b", "float64"]]}}, 12),
    ({"name": "struct", "configuration": {"fields": [{"name": "a", "data_type": "int16"}]}}, 2),
    ({"name": "struct", "configuration": {"fields": [["a", "string"]]}}, None),
    ({"name": "struct", "configuration": {"fields": ["a"]}}, None),
    ({"name": "struct", "configuration": {"fields": []}}, None),
    ({"configuration": {}}, None),
]


@pytest.mark.parametrize(("dtype", "size"), V2)
def test_elements_of_v2_types_have_their_size_or_none(dtype: object, size: int | None) -> None:
    assert item_bytes_v2(dtype) == size


@pytest.mark.parametrize(("data_type", "size"), V3)
def test_elements_of_v3_types_have_their_size_or_none(data_type: object, size: int | None) -> None:
    assert item_bytes_v3(data_type) == size


@pytest.mark.parametrize(
    ("data_type", "yes"),
    [
        ("<M8[D]", True),
        ("datetime64[ns]", True),
        ({"name": "numpy.datetime64", "configuration": {}}, True),
        ("<m8[s]", False),
        ("float32", False),
        ({"name": 5}, False),
        ([["a", "<M8[D]"]], False),
    ],
)
def test_points_in_time_are_told_from_everything_else(data_type: object, yes: bool) -> None:
    assert is_datetime(data_type) is yes
