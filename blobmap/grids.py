"""From shapes and chunk shapes to the grid of stored objects: the arithmetic of `regular` and `rectilinear` grids.

Sources: the regular chunk grid of the zarr core specifications, and the rectilinear chunk grid of the zarr extensions
registry (edge lengths per axis, runs of equal edges as `[length, count]`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from blobmap.errors import DocumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LIMIT: Final = 2**63


def extents(document: Mapping[str, object], member: str) -> tuple[int, ...]:
    """Read a list of lengths.

    Args:
        document: the parsed document or configuration that holds it.
        member: its name there.

    Returns:
        One length per axis.

    Raises:
        DocumentError: it is missing, or no list of integers from 0 to 2^63 - 1.
    """
    value = document.get(member)
    if not isinstance(value, list):
        raise DocumentError(f"{member} is {value!r}, allowed: a list of integers")
    return tuple(_length(item, member) for item in value)


def regular_grid(shape: Sequence[int], chunks: Sequence[int]) -> tuple[int, ...]:
    """Count the objects along each axis of a regular grid.

    Args:
        shape: elements along each axis.
        chunks: elements of one object along each axis.

    Returns:
        Objects along each axis; 0 where the axis has no element.

    Raises:
        DocumentError: the two have different numbers of axes, or an object has no extent along an axis that has.
    """
    if len(shape) != len(chunks):
        raise DocumentError(f"chunk shape {list(chunks)} has {len(chunks)} axes, shape {list(shape)} has {len(shape)}")
    if any(chunk == 0 < length for length, chunk in zip(shape, chunks, strict=True)):
        raise DocumentError(f"chunk shape {list(chunks)} has a 0 where shape {list(shape)} has none")
    return tuple(-(-length // chunk) if chunk else 0 for length, chunk in zip(shape, chunks, strict=True))


def rectilinear_grid(shape: Sequence[int], edges: object) -> tuple[int, ...]:
    """Count the objects along each axis of a rectilinear grid.

    Args:
        shape: elements along each axis.
        edges: the `chunk_shapes` member: per axis a list of edge lengths and `[length, count]` runs, or one integer for
            an axis that is cut regularly.

    Returns:
        Objects along each axis that hold elements of the array.

    Raises:
        DocumentError: not such a list, other than one entry per axis, or edges that do not reach the end of an axis.
    """
    if not isinstance(edges, list) or len(edges) != len(shape):
        raise DocumentError(f"chunk_shapes is {edges!r}, allowed: a list with one entry for each of {len(shape)} axes")
    return tuple(
        _edges_used(axis, length, entry) for axis, (length, entry) in enumerate(zip(shape, edges, strict=True))
    )


def object_bytes(extent: Sequence[int], item_bytes: int | None) -> int | None:
    """Size of one whole object before compression.

    Args:
        extent: elements of the object along each axis.
        item_bytes: size of an element, None if elements have no fixed size.

    Returns:
        Bytes, None if elements have no fixed size.
    """
    return None if item_bytes is None else math.prod(extent) * item_bytes


def _edges_used(axis: int, length: int, entry: object) -> int:
    if isinstance(entry, int):
        return regular_grid([length], [_length(entry, "chunk_shapes")])[0]
    if not isinstance(entry, list):
        raise DocumentError(f"chunk_shapes has {entry!r} for axis {axis}, allowed: an integer or a list")
    used = covered = 0
    for item in entry:
        edge, count = item if isinstance(item, list) and len(item) == 2 else (item, 1)
        edge, count = _length(edge, "chunk_shapes"), _length(count, "chunk_shapes")
        if edge == 0:
            raise DocumentError(f"chunk_shapes has an edge of length 0 for axis {axis}")
        if covered < length:
            needed = min(count, -(-(length - covered) // edge))
            used += needed
            covered += needed * edge
    if covered < length:
        raise DocumentError(f"chunk_shapes covers {covered} of {length} elements of axis {axis}")
    return used


def _length(value: object, member: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _LIMIT:
        raise DocumentError(f"{member} has {value!r}, allowed: integers from 0 to 2^63 - 1")
    return value
