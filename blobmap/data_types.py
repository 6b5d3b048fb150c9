"""Sizes of array elements, by the name that zarr gives their data type.

An element's size is only a hint (how far an object can grow when compression fails), so a name that nobody here knows
has no size, and is no reason to leave an array out. Sources: the zarr v2 specification (numpy's array protocol type
strings), the data types of the zarr v3 core specification and of its extensions registry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_V2: Final = re.compile(r"[<>|=]?([biufcmMSUV])([0-9]{1,18})(?:\[[^\]]*\])?")
_BITS: Final = re.compile(r"(?:u?int|b?float|r)([0-9]{1,18})(?:_.*)?")
_COMPLEX: Final = re.compile(r"complex([0-9]{1,18})")
_COMPLEX_OF: Final = re.compile(r"complex_b?float([0-9]{1,18})(?:_.*)?")
_V3: Final = {"bool": 1, "numpy.datetime64": 8, "numpy.timedelta64": 8}
_MAX_FIELDS: Final = 10_000


def item_bytes_v2(dtype: object) -> int | None:
    """Size of one element of a zarr v2 array.

    Args:
        dtype: the `dtype` member of `.zarray`: a type string, or a list of `[name, dtype]` or `[name, dtype, shape]`.

    Returns:
        Bytes, or None where elements differ in size (`|O`) or the type is unknown.
    """
    if isinstance(dtype, str):
        match = _V2.fullmatch(dtype)
        if match is None:
            return item_bytes_v3(dtype)
        return int(match[2]) * (4 if match[1] == "U" else 1)
    if not isinstance(dtype, list) or not 0 < len(dtype) <= _MAX_FIELDS:
        return None
    total = 0
    for field in dtype:
        if not isinstance(field, list) or len(field) not in (2, 3):
            return None
        size = item_bytes_v2(field[1])
        if size is None:
            return None
        for length in _lengths(field[2] if len(field) == 3 else ()):
            size *= length
        total += size
    return total


def item_bytes_v3(data_type: object) -> int | None:
    """Size of one element of a zarr v3 array.

    Args:
        data_type: the `data_type` member of `zarr.json`: a name, or an object with `name` and `configuration`.

    Returns:
        Bytes (at least 1: types of less than a byte are stored in one), or None where elements differ in size or the
        type is unknown.
    """
    if isinstance(data_type, str):
        return _named(data_type)
    if not isinstance(data_type, Mapping) or not isinstance(data_type.get("name"), str):
        return None
    configuration = data_type.get("configuration")
    if isinstance(configuration, Mapping):
        length = configuration.get("length_bytes")
        if isinstance(length, int):
            return max(length, 1)
        if isinstance(configuration.get("fields"), list):
            return _fields_v3(configuration["fields"])
    return _named(data_type["name"])


def is_datetime(data_type: object) -> bool:
    """Say whether elements are points in time.

    Args:
        data_type: `dtype` of v2 or `data_type` of v3, as above.

    Returns:
        True for numpy's datetime64 in either spelling.
    """
    if isinstance(data_type, Mapping):
        data_type = data_type.get("name")
    if not isinstance(data_type, str):
        return False
    return "datetime64" in data_type or data_type.lstrip("<>|=").startswith("M8")


def _named(name: str) -> int | None:
    if (match := _BITS.fullmatch(name)) is not None:
        return max((int(match[1]) + 7) // 8, 1)
    if (match := _COMPLEX.fullmatch(name)) is not None:
        return int(match[1]) // 8
    if (match := _COMPLEX_OF.fullmatch(name)) is not None:
        return 2 * ((int(match[1]) + 7) // 8)
    return _V3.get(name)


def _fields_v3(fields: list[object]) -> int | None:
    total = 0
    for field in fields[:_MAX_FIELDS]:
        if isinstance(field, Mapping):
            kind = field.get("data_type")
        elif isinstance(field, list) and len(field) == 2:
            kind = field[1]
        else:
            return None
        size = item_bytes_v3(kind)
        if size is None:
            return None
        total += size
    return total or None


def _lengths(shape: object) -> list[int]:
    lengths = shape if isinstance(shape, list) else [shape] if isinstance(shape, int) else []
    return [length for length in lengths if isinstance(length, int) and length > 0]
