"""What a zarr array is to somebody who counts its objects: frozen values, made by `layout`, read by everything above.

Shapes, grids and dimensions are tuples with one entry per axis, in the order of the array's shape.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from blobmap.chunk_keys import ChunkKeyEncoding


@dataclass(frozen=True, slots=True)
class Reference:
    """One array that another node names in a CF attribute.

    Attributes:
        attribute: `coordinates`, `bounds` or `grid_mapping`.
        name: the name as it stands there, relative to the group of the node, or a path.
    """

    attribute: str
    name: str


@dataclass(frozen=True, slots=True)
class ArrayLayout:
    """An array as its metadata declares it.

    Attributes:
        path: below the root of the store, without outer slashes; empty for an array that is the store.
        name: the last segment of its key, also where `path` is empty.
        zarr_format: 2 or 3.
        shape: elements along each axis.
        grid: stored objects along each axis. Where shards are used these are the shards, never what is inside them.
        object_bytes: size of one whole object before compression (the mean one on a rectilinear grid), None if
            elements have no fixed size.
        encoding: how the keys of its objects are spelled, None where `obstacle` says why that cannot be told.
        obstacle: why no rule can be written for its objects, None where one can.
        separator_declared: False for a v2 document that leaves the separator to its default.
        dimensions: names of the axes as far as they are known, None if none of them is.
        coordinate: whether it has one axis and the axis' name is its own, in any of the places that name axes.
        data_type: as written in the metadata, for people.
        time: what says that its values are points in time, None if nothing does.
        sharded: whether an object is a shard.
        rectilinear: whether objects differ in size by declaration.
        references: arrays that it names as its coordinates, bounds and grid mapping.
    """

    path: str
    name: str
    zarr_format: Literal[2, 3]
    shape: tuple[int, ...]
    grid: tuple[int, ...]
    object_bytes: int | None
    encoding: ChunkKeyEncoding | None
    obstacle: str | None = None
    separator_declared: bool = True
    dimensions: tuple[str | None, ...] | None = None
    coordinate: bool = False
    data_type: str = ""
    time: str | None = None
    sharded: bool = False
    rectilinear: bool = False
    references: tuple[Reference, ...] = ()

    @property
    def label(self) -> str:
        """What messages call it."""
        return repr(self.path) if self.path else "the store itself"

    @property
    def grid_objects(self) -> int:
        """Objects of the whole grid, stored or not: 1 without axes, 0 where an axis has no element."""
        return math.prod(self.grid)


@dataclass(frozen=True, slots=True)
class GroupLayout:
    """A group as its metadata declares it.

    Attributes:
        path: below the root of the store, without outer slashes; empty for the root.
        zarr_format: 2 or 3.
        references: arrays that the group names as coordinates of its members.
        time_axes: names of axes that the group declares to be time (the `axes` of OME multiscales).
        members: paths below the group that its consolidated metadata names as arrays. A hint: documents themselves win.
    """

    path: str
    zarr_format: Literal[2, 3]
    references: tuple[Reference, ...] = ()
    time_axes: tuple[str, ...] = ()
    members: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """What messages call it."""
        return repr(self.path) if self.path else "the store itself"
