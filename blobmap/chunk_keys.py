"""Chunk-key encodings: text to chunk indices and back, for zarr v2 and v3.

Here is everything that knows how a chunk's name is spelled below its array, and nothing else: no arrays, no rules, no
stores. Sources: the chunk key encodings of the zarr v3 core specification (`default` and `v2`), the chunk names of the
zarr v2 specification, and the three `key_encoding` values of manifest format 3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from blobmap.errors import DocumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

KeyEncoding = Literal["v3_slash", "v2_slash", "v2_flat"]
"""How a bucketed rule of manifest format 3 reads the segments below its prefix."""

METADATA_NAMES: Final = frozenset({"zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"})
"""Last segments of zarr's metadata documents: what a reader needs before it knows of any chunk, so never archivable."""

_CANONICAL: Final = re.compile(r"0|[1-9][0-9]*")

# Python refuses to turn long decimal text into an integer (4300 digits by default, never fewer than 640): a key may
# hold any number of digits, so long ones are read in pieces below every such limit.
_PIECE: Final = 512


def canonical_index(text: str) -> int | None:
    """Read one chunk index.

    Args:
        text: what stands between two separators.

    Returns:
        The index, or None unless the text is `0` or ASCII digits without a leading zero. Any number of digits is read.
    """
    if _CANONICAL.fullmatch(text) is None:
        return None
    value = 0
    for start in range(0, len(text), _PIECE):
        piece = text[start : start + _PIECE]
        value = value * 10 ** len(piece) + int(piece)
    return value


def floor_divide(digits: str, width: int) -> str:
    """Divide a decimal number by a width, as text, so that the number of digits does not matter.

    Args:
        digits: a canonical index.
        width: what to divide by, from 1 to 2^63 - 1.

    Returns:
        The quotient, rounded down, as a canonical index.
    """
    if len(digits) <= _PIECE:
        return str(int(digits) // width)
    quotient: list[str] = []
    rest = 0
    for start in range(0, len(digits), _PIECE):
        piece = digits[start : start + _PIECE]
        part, rest = divmod(rest * 10 ** len(piece) + int(piece), width)
        quotient.append(str(part).zfill(len(piece)))
    return "".join(quotient).lstrip("0") or "0"


@dataclass(frozen=True, slots=True)
class ChunkKeyEncoding:
    """The chunk-key encoding that an array declares in its metadata.

    Attributes:
        name: `default` (keys begin with `c`) or `v2` (they do not).
        separator: what stands between two indices, and after the `c`.

    Raises:
        DocumentError: a name or a separator that zarr does not define.
    """

    name: Literal["default", "v2"]
    separator: Literal["/", "."]

    def __post_init__(self) -> None:
        if self.name not in ("default", "v2"):
            raise DocumentError(f"chunk key encoding {self.name!r} is unknown, allowed: 'default', 'v2'")
        if self.separator not in ("/", "."):
            raise DocumentError(f"chunk key separator {self.separator!r} is unknown, allowed: '/', '.'")

    def encode(self, indices: Sequence[int]) -> str:
        """Spell the key of one chunk.

        Args:
            indices: one index per axis, in the order of the array's shape; empty for a zero-dimensional array.

        Returns:
            The key relative to the array's path: `c/0/0`, `c.0.0`, `0.0`, `0/0`; `c` or `0` without axes.
        """
        parts = [str(index) for index in indices]
        if self.name == "default":
            return self.separator.join(["c", *parts])
        return self.separator.join(parts) or "0"

    def decode(self, text: str, ndim: int) -> tuple[int, ...] | None:
        """Read the key of one chunk.

        Args:
            text: a key relative to the array's path.
            ndim: the number of axes of the array.

        Returns:
            One index per axis, in the order of the array's shape, or None if no chunk of such an array has this key.
        """
        if ndim == 0:
            return () if text == self.encode(()) else None
        parts = text.split(self.separator)
        if self.name == "default" and parts.pop(0) != "c":
            return None
        indices = tuple(index for part in parts if (index := canonical_index(part)) is not None)
        return indices if len(indices) == len(parts) == ndim else None

    def rule(self) -> tuple[str, KeyEncoding, int]:
        """Say how manifest format 3 spells a rule over such an array.

        Returns:
            What the rule's prefix has after the array's path (`c` or nothing), the rule's `key_encoding`, and what is
            added to an axis to give the rule's `index` (1 where a `c` counts as a part of its own).
        """
        if self.name == "v2":
            return "", ("v2_slash" if self.separator == "/" else "v2_flat"), 0
        return ("c", "v3_slash", 0) if self.separator == "/" else ("", "v2_flat", 1)
