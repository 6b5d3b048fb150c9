"""The thresholds of a cut, and sizes as people write them.

What a threshold is used for stands in `partition` and `cuts`; here is only what values are allowed, how they are
recorded in a manifest's `policy` field, and the two directions of size text.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from blobmap.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_DECIMAL: Final = ("B", "KB", "MB", "GB", "TB", "PB")
_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_UNITS: Final = {
    name.lower(): base**power for base, names in ((1000, _DECIMAL), (1024, _BINARY)) for power, name in enumerate(names)
}
_SIZE: Final = re.compile(r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([A-Za-z]*)\s*")


def parse_size(text: str) -> int:
    """Read a size as people write it.

    Args:
        text: a number and a unit, as `100GiB`, `1.5 TB` or `4096`. KB, MB, GB, TB and PB are powers of 1000; KiB, MiB,
            GiB, TiB and PiB are powers of 1024; no unit means bytes. Upper and lower case are the same.

    Returns:
        Bytes, at least 1, rounded down.

    Raises:
        UsageError: this is no size, an unknown unit, or less than one byte.
    """
    match = _SIZE.fullmatch(text)
    factor = _UNITS.get(match[2].lower() or "b") if match else None
    if match is None or factor is None:
        allowed = ", ".join((*_DECIMAL, *_BINARY[1:]))
        raise UsageError(f"{text!r} is not a size: write a number and one of {allowed}, as 100GiB")
    size = int(Fraction(match[1]) * factor)
    if size < 1:
        raise UsageError(f"size {text!r} is less than one byte")
    return size


def format_size(size: float | Fraction) -> str:
    """Write a size for people: `512 B`, `3.0 KiB`, `91.6 GiB`.

    Args:
        size: bytes, not negative; a mean may be a fraction.

    Returns:
        One decimal and the largest unit (powers of 1024) that leaves at least 1, or whole bytes below 1 KiB.
    """
    value = float(size)
    if round(value) < 1024:
        return f"{round(value)} B"
    value, power = value / 1024, 1
    while round(value, 1) >= 1024 and power < len(_BINARY) - 1:
        value /= 1024
        power += 1
    return f"{value:.1f} {_BINARY[power]}"


@dataclass(frozen=True, slots=True)
class Policy:
    """Thresholds of a cut.

    Attributes:
        t_max_bytes: what a blob of several slabs holds at most.
        t_min_bytes: recorded because the format has the field; there is no minimum blob size, so nothing reads it.
        t_hot_bytes: an array with less than this stored and no rule yet stays on disk. 0: size makes nothing hot.
        t_aux_bytes: an auxiliary coordinate with at most this stored and no rule yet stays on disk.
        width_clamp: how many times smaller than uncompressed an object is taken to be at most.
        pow2_floor: widths from here on are rounded down to a power of two.

    Raises:
        UsageError: a threshold out of its range.
    """

    t_max_bytes: int = 100 * 1024**3
    t_min_bytes: int = 0
    t_hot_bytes: int = 16 * 1024**2
    t_aux_bytes: int = 1024**3
    width_clamp: int = 8
    pow2_floor: int = 64

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in ("t_min_bytes", "t_hot_bytes", "t_aux_bytes") else 1
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise UsageError(f"policy: {field.name} is {value!r}, allowed: an integer from {least}")

    def to_json(self) -> dict[str, int]:
        """Give the `policy` field of a manifest."""
        return asdict(self)

    @classmethod
    def from_json(cls, mapping: Mapping[str, int]) -> Policy:
        """Read the `policy` field of a manifest.

        Args:
            mapping: thresholds by name. Missing ones take their defaults (`t_aux_bytes` is not known to every writer),
                other keys are the business of whoever wrote them.

        Returns:
            The thresholds.

        Raises:
            UsageError: a threshold out of its range.
        """
        return cls(**{field.name: mapping[field.name] for field in fields(cls) if field.name in mapping})
