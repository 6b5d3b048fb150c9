"""What user attributes say about an array's axes and about its neighbours.

Sources: `_ARRAY_DIMENSIONS` as xarray writes it; `coordinates`, `bounds`, `grid_mapping`, `units`, `standard_name` and
`axis` of the CF conventions; the `axes` of OME-NGFF multiscales. Attributes are other people's text: what does not have
the expected form says nothing, and is never an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from blobmap.arrays import Reference
from blobmap.data_types import is_datetime

if TYPE_CHECKING:
    from collections.abc import Iterator

_SINCE: Final = re.compile(r"\w+\s+since\s+\S", re.IGNORECASE)
_REFERRING: Final = ("coordinates", "bounds", "grid_mapping")


def axis_names(value: object, ndim: int) -> tuple[str | None, ...] | None:
    """Read a list of axis names.

    Args:
        value: `dimension_names` of v3, or `_ARRAY_DIMENSIONS`.
        ndim: axes of the array.

    Returns:
        One name (or None) per axis, or None if this is no list of that length or names no axis.
    """
    if not isinstance(value, list) or len(value) != ndim:
        return None
    names = tuple(item if isinstance(item, str) and item else None for item in value)
    return names if any(names) else None


def dimension_attribute(attributes: Mapping[str, object], ndim: int) -> tuple[str | None, ...] | None:
    """Read `_ARRAY_DIMENSIONS` from user attributes; see `axis_names`."""
    return axis_names(attributes.get("_ARRAY_DIMENSIONS"), ndim)


def is_own_dimension(name: str, *dimensions: tuple[str | None, ...] | None) -> bool:
    """Say whether an array is the coordinate of its only axis.

    Args:
        name: of the array.
        dimensions: what each place that names axes says, None where it says nothing.

    Returns:
        True if one of them names exactly one axis, as the array.
    """
    return (name,) in dimensions


def references(attributes: Mapping[str, object]) -> tuple[Reference, ...]:
    """List the arrays that CF attributes name.

    Args:
        attributes: of an array or a group.

    Returns:
        Names in the order in which they stand. `grid_mapping` has a long form (`crs: x y`), whose parts all count.
    """
    found = dict.fromkeys(
        Reference(attribute, name)
        for attribute in _REFERRING
        if isinstance(text := attributes.get(attribute), str)
        for word in text.split()
        if (name := word.rstrip(":"))
    )
    return tuple(found)


def time_evidence(data_type: object, attributes: Mapping[str, object]) -> str | None:
    """Say why the values of an array are points in time.

    Args:
        data_type: `dtype` of v2 or `data_type` of v3.
        attributes: of the array.

    Returns:
        The evidence in words, None if there is none.
    """
    units = attributes.get("units")
    if isinstance(units, str) and _SINCE.match(units.strip()):
        return f"units {units.strip()!r}"
    if is_datetime(data_type):
        return "datetime values"
    if attributes.get("standard_name") == "time":
        return "standard_name 'time'"
    if attributes.get("axis") == "T":
        return "axis 'T'"
    return None


def multiscale_time_axes(attributes: Mapping[str, object]) -> tuple[str, ...]:
    """Names of the axes of type `time` in OME multiscales.

    Args:
        attributes: of a group; version 0.5 of OME-NGFF keeps its own below `ome`.

    Returns:
        The names, each once.
    """
    return tuple(dict.fromkeys(_time_axes(attributes)))


def _time_axes(attributes: Mapping[str, object]) -> Iterator[str]:
    ome = attributes.get("ome")
    for place in (attributes, ome if isinstance(ome, Mapping) else {}):
        scales = place.get("multiscales")
        for scale in scales if isinstance(scales, list) else ():
            axes = scale.get("axes") if isinstance(scale, Mapping) else None
            for axis in axes if isinstance(axes, list) else ():
                if isinstance(axis, Mapping) and axis.get("type") == "time" and isinstance(axis.get("name"), str):
                    yield axis["name"]
