"""Sizes of blobs against the window that a tape archive wants: how many are below, inside and above, and which."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from blobmap.errors import UsageError
from blobmap.policy import format_size, parse_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blobmap.census import Size

_NAMED: Final = 5  # blobs of each side of the window that are named


@dataclass(frozen=True, slots=True)
class Window:
    """The sizes that a tape archive wants a blob to have.

    Attributes:
        low_bytes: a smaller one wastes a mount, or the quota of a file.
        high_bytes: a larger one takes too long, or fits nowhere.

    Raises:
        UsageError: the low end is above the high one.
    """

    low_bytes: int = 10 * 2**30
    high_bytes: int = 200 * 2**30

    def __post_init__(self) -> None:
        if self.low_bytes > self.high_bytes:
            low, high = format_size(self.low_bytes), format_size(self.high_bytes)
            raise UsageError(f"window {low}..{high}: its low end is above its high end")


def parse_window(text: str) -> Window:
    """Read a window as people write it, `10GiB..200GiB`.

    Raises:
        UsageError: this is no such thing.
    """
    low, separator, high = text.partition("..")
    if not separator:
        raise UsageError(f"{text!r} is no window: write two sizes with .. between them, as 10GiB..200GiB")
    return Window(parse_size(low), parse_size(high))


@dataclass(frozen=True, slots=True)
class BlobSize:
    """One blob and what is stored of it."""

    scope: str
    blob_id: str
    objects: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class Share:
    """Some of the blobs, and their size together."""

    blobs: int = 0
    stored_bytes: int = 0


@dataclass(frozen=True, slots=True)
class BlobSizes:
    """All blobs of which something is stored, by size.

    Attributes:
        window: what they are held against.
        below: those smaller than the window, the last blob of an array that still grows among them.
        inside: those within it, its ends included.
        above: those larger.
        ordered_bytes: the size of each blob, in order.
        least: some of those below, the smallest first.
        most: some of those above, the largest first.
    """

    window: Window
    below: Share
    inside: Share
    above: Share
    ordered_bytes: tuple[int, ...]
    least: tuple[BlobSize, ...]
    most: tuple[BlobSize, ...]

    @property
    def blobs(self) -> int:
        """How many there are."""
        return len(self.ordered_bytes)

    @property
    def median_bytes(self) -> int:
        """What at least half of the blobs do not exceed; 0 if there are none."""
        return self.ordered_bytes[(self.blobs - 1) // 2] if self.blobs else 0


def hold_against(window: Window, blobs: Mapping[tuple[str, str], Size]) -> BlobSizes:
    """Hold blobs against a window.

    Args:
        window: what is wanted.
        blobs: sizes by scope and blob id.
    """
    sizes = sorted(size.stored_bytes for size in blobs.values())
    below = [size for size in sizes if size < window.low_bytes]
    above = [size for size in sizes if size > window.high_bytes]
    named = [BlobSize(*blob, size.objects, size.stored_bytes) for blob, size in blobs.items()]
    return BlobSizes(
        window=window,
        below=Share(len(below), sum(below)),
        inside=Share(len(sizes) - len(below) - len(above), sum(sizes) - sum(below) - sum(above)),
        above=Share(len(above), sum(above)),
        ordered_bytes=tuple(sizes),
        least=tuple(
            heapq.nsmallest(_NAMED, (blob for blob in named if blob.stored_bytes < window.low_bytes), key=_ascending)
        ),
        most=tuple(
            heapq.nsmallest(_NAMED, (blob for blob in named if blob.stored_bytes > window.high_bytes), key=_descending)
        ),
    )


def _ascending(blob: BlobSize) -> tuple[int, str, str]:
    return blob.stored_bytes, blob.scope, blob.blob_id


def _descending(blob: BlobSize) -> tuple[int, str, str]:
    return -blob.stored_bytes, blob.scope, blob.blob_id
