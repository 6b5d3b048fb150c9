"""Splitting the listing of one large array, so that several parts of it can be under way at once.

A listing in key order can begin behind any key. Indices sort as text there, so the first digit of an index that varies
splits the keys of an array into ten parts of about the same size, whatever the grid. A directory has no order and can
be begun nowhere but at its start: there the names in one directory are shared out.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

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


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a directory tree: some of the names in one directory, with all that lies below them.

    What lies neither in that directory nor below it belongs to the share with number 0.

    Attributes:
        divided: key of the directory whose names are shared out.
        number: of the share, from 0.
        of: how many shares there are.
    """

    divided: str
    number: int = 0
    of: int = 1

    def takes(self, directory: str, name: str) -> bool:
        """Whether a name has to be looked at, in a directory that had to be.

        Args:
            directory: key of the directory.
            name: of a file or a deeper directory in it; one on the way to what is divided is taken by every share.
        """
        if directory == self.divided:
            # Any function of the name will do that two processes agree about.
            return crc32(name.encode("utf-8", "surrogateescape")) % self.of == self.number
        if not self.divided or directory.startswith(self.divided + "/"):
            return True
        key = f"{directory}/{name}" if directory else name
        return self.number == 0 or self.divided == key or self.divided.startswith(key + "/")


def share_out(layout: ArrayLayout, prefix: str, shares: int) -> tuple[Share, ...]:
    """Share out the directory tree of an array where an index varies for the first time.

    Args:
        layout: of the array, with an encoding.
        prefix: what its keys begin with: its key and a slash, or nothing.
        shares: how many to make.

    Returns:
        Shares that together hold every file below the prefix once, whatever it is.
    """
    varying = next((axis for axis, count in enumerate(layout.grid) if count > 1), 0)
    first = layout.encoding.encode((0,) * (varying + 1)) if layout.encoding else ""
    divided = (prefix + first).rpartition("/")[0]
    return tuple(Share(divided, number, shares) for number in range(shares))


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
