"""Splitting the listing of one large array, so that several requests can be under way at once.

A listing in key order can begin behind any key. Indices sort as text there, so the first digit of an index that varies
splits the keys of an array into ten parts of about the same size, whatever the grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blobmap.arrays import ArrayLayout

_Entry = TypeVar("_Entry", bound="Mapping[str, Any]")
_path = itemgetter("path")


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a listing in key order.

    Attributes:
        after: only keys greater than this, None for the beginning.
        last: only keys up to this one, None for the end.
    """

    after: str | None = None
    last: str | None = None

    def within(self, page: Sequence[_Entry]) -> Sequence[_Entry]:
        """What of a page, in key order and without keys up to `after`, belongs to the part.

        Args:
            page: not empty.

        Returns:
            The page itself, or its beginning; the part ends with the first page that is cut.
        """
        last = self.last
        if last is None or _path(page[-1]) <= last:
            return page
        return [entry for entry in page if _path(entry) <= last]


def split_listing(layout: ArrayLayout, prefix: str) -> tuple[Split, ...]:
    """Split the keys of an array.

    Args:
        layout: of the array.
        prefix: what its keys begin with: its key and a slash, or nothing.

    Returns:
        Parts that together hold every key below the prefix once, whatever it is; a single one where no index varies.
    """
    varying = next((axis for axis, count in enumerate(layout.grid) if count > 1), None)
    if layout.encoding is None or varying is None:
        return (Split(),)
    key = layout.encoding.encode((0,) * (varying + 1))
    bounds = [f"{prefix}{key.removesuffix('0')}{digit}" for digit in range(1, 10)]
    return tuple(Split(after, last) for after, last in zip([None, *bounds], [*bounds, None], strict=True))
