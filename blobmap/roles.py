"""What each array is to the others of its store: coordinate or data, and which axes are time.

Sources: dimension coordinates as netCDF and xarray know them (one axis, which has the array's name); auxiliary
coordinates, bounds and grid mappings of the CF conventions, with their search from the group outwards.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from blobmap.arrays import ArrayLayout, GroupLayout

Role = Literal["dimension coordinate", "possible coordinate", "auxiliary coordinate", "scalar", "data"]


@dataclass(frozen=True, slots=True)
class Standing:
    """What one array is to the others.

    Attributes:
        role: its part.
        why: the evidence in words, empty for plain data.
        time_axes: axis to the evidence that it is time, in the order of the axes.
    """

    role: Role
    why: str
    time_axes: Mapping[int, str]


def stand(arrays: Sequence[ArrayLayout], groups: Sequence[GroupLayout]) -> tuple[dict[str, Standing], tuple[str, ...]]:
    """Work out the standing of every array.

    Args:
        arrays: of one store, in any order.
        groups: of the same store.

    Returns:
        Standings by array path, and warnings, one line each.
    """
    by_path = {array.path: array for array in arrays}
    named, missing = _named_by_others(by_path, groups)
    axes: defaultdict[str, _Axes] = defaultdict(_Axes)
    for array in arrays:
        axes[_group_of(array.path)].add(array)
    declared_time = {group.path: group.time_axes for group in groups if group.time_axes}
    standings = {}
    for array in arrays:
        siblings = axes[_group_of(array.path)]
        role, why = _role(array, siblings, named)
        standings[array.path] = Standing(role, why, dict(_time_axes(array, siblings, by_path, declared_time)))
    return standings, (*missing, *_unnamed(arrays))


class _Axes:
    """The axes of one group's arrays, to find those that a one-dimensional array may belong to."""

    def __init__(self) -> None:
        self._found: dict[tuple[str | None, int], str] = {}
        self._times: defaultdict[int, list[ArrayLayout]] = defaultdict(list)

    def add(self, array: ArrayLayout) -> None:
        names = array.dimensions or (None,) * len(array.shape)
        if array.dimensions or len(array.shape) > 1:
            for axis, (name, length) in enumerate(zip(names, array.shape, strict=True)):
                self._found.setdefault((name, length), f"axis {axis} of {array.label}")
        if (array.time or _is_time(array.name)) and len(array.shape) == 1:
            self._times[array.shape[0]].append(array)

    def like(self, name: str, length: int) -> str | None:
        """An axis that has this name and length, or this length and no name."""
        return self._found.get((name, length)) or self._found.get((None, length))

    def time(self, length: int, apart_from: ArrayLayout) -> str | None:
        """Evidence that an axis of this length, which has no name, is time."""
        for array in self._times[length]:
            if array is not apart_from:
                return f"as long as {array.label}" + (f", which has {array.time}" if array.time else "")
        return None


def _role(array: ArrayLayout, siblings: _Axes, named: Mapping[str, str]) -> tuple[Role, str]:
    if not array.shape:
        return "scalar", "has no dimensions"
    if array.coordinate:
        return "dimension coordinate", f"coordinate of its dimension {array.name!r}"
    if array.path in named:
        return "auxiliary coordinate", named[array.path]
    if array.dimensions is None and len(array.shape) == 1:
        axis = siblings.like(array.name, array.shape[0])
        if axis is not None:
            return "possible coordinate", f"its dimension has no name, and {axis} has its length, {array.shape[0]}"
    return "data", ""


def _time_axes(
    array: ArrayLayout,
    siblings: _Axes,
    by_path: Mapping[str, ArrayLayout],
    declared_time: Mapping[str, tuple[str, ...]],
) -> Iterator[tuple[int, str]]:
    for axis, length in enumerate(array.shape):
        name = array.dimensions[axis] if array.dimensions else None
        if name is None:
            evidence = siblings.time(length, array)
        else:
            evidence = _named_time(name, array.path, by_path, declared_time)
        if evidence is not None:
            yield axis, evidence


def _named_time(
    name: str, path: str, by_path: Mapping[str, ArrayLayout], declared_time: Mapping[str, tuple[str, ...]]
) -> str | None:
    if _is_time(name):
        return "its name"
    for group in _outwards(_group_of(path)):
        coordinate = by_path.get(_join(group, name))
        if coordinate is not None and len(coordinate.shape) == 1:
            return coordinate.time and f"its coordinate has {coordinate.time}"
        if name in declared_time.get(group, ()):
            return "its type in multiscales"
    return None


def _named_by_others(
    by_path: Mapping[str, ArrayLayout], groups: Sequence[GroupLayout]
) -> tuple[dict[str, str], list[str]]:
    """Array paths that CF attributes name, with who names them; and warnings about names that nothing has."""
    named: dict[str, str] = {}
    missing: dict[str, str] = {}
    nodes: list[tuple[ArrayLayout | GroupLayout, str]] = [(array, _group_of(array.path)) for array in by_path.values()]
    nodes += [(group, group.path) for group in groups]
    for node, inside in nodes:
        for reference in node.references:
            target = _find(reference.name, inside, by_path)
            said = f"{reference.attribute!r} of {node.label}"
            if target is None:
                missing.setdefault(reference.name, f"{said} names {reference.name!r}, which is no array here")
            elif by_path[target] is not node:
                named.setdefault(target, f"named in {said}")
    return named, list(missing.values())


def _is_time(name: str) -> bool:
    return name.lower() == "time"


def _find(name: str, inside: str, by_path: Mapping[str, ArrayLayout]) -> str | None:
    if name.startswith("/"):
        absolute = name.strip("/")
        return absolute if absolute in by_path else None
    while name.startswith("../"):
        name, inside = name.removeprefix("../"), _group_of(inside)
    for group in _outwards(inside):
        path = _join(group, name)
        if path in by_path:
            return path
    return None


def _outwards(group: str) -> Iterator[str]:
    """A group and the groups around it, from the inside out."""
    while group:
        yield group
        group = _group_of(group)
    yield ""


def _group_of(path: str) -> str:
    return path.rpartition("/")[0]


def _join(group: str, name: str) -> str:
    return f"{group}/{name}" if group else name


def _unnamed(arrays: Iterable[ArrayLayout]) -> Iterator[str]:
    labels = [array.label for array in arrays if array.shape and (array.dimensions is None or None in array.dimensions)]
    if labels:
        shown = ", ".join(labels[:3])
        more = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
        yield f"dimension names unknown in {shown}{more}: coordinates cannot be told apart there"
