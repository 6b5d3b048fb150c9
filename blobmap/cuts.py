"""Where one array is cut: the axis, and how many indices of it make a blob.

Source: "Axis", "Width" and "Size promise" of the manifest format. A slab is everything that has one index along the cut
axis. All arithmetic is exact, on integers and fractions, so that a width never depends on rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from blobmap.policy import format_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blobmap.arrays import ArrayLayout
    from blobmap.policy import Policy
    from blobmap.tally import Measured

_MAX_WIDTH: Final = 2**62
_UNEVEN: Final = 4  # a rectilinear axis whose ends differ by more than this is said


@dataclass(frozen=True, slots=True)
class Cut:
    """How an array is cut.

    Attributes:
        axis: along which, an index into the array's shape.
        width: consecutive indices of that axis that make a blob.
        object_bytes: size of one object as the plan takes it.
        blob_bytes: size of a blob of fully written slabs as the plan takes it.
        reason: why, in words.
        warnings: what an operator should know about it, one line each.
    """

    axis: int
    width: int
    object_bytes: Fraction
    blob_bytes: int
    reason: str
    warnings: tuple[str, ...] = ()


def planned_object_bytes(array: Measured, policy: Policy) -> Fraction | None:
    """Take a size for the objects of an array, present and future.

    Args:
        array: with what is stored of it.
        policy: its `width_clamp` bounds how far compression is trusted.

    Returns:
        The mean stored size, but not less than uncompressed size / `width_clamp`; the uncompressed size where nothing
        is stored; None where neither is known.
    """
    uncompressed = array.layout.object_bytes
    if array.stored_bytes == 0:
        return Fraction(uncompressed) if uncompressed else None
    mean = Fraction(array.stored_bytes, array.objects)
    return max(mean, Fraction(uncompressed or 0, policy.width_clamp))


def slab_objects(grid: Sequence[int], axis: int) -> int:
    """Objects that have one index along an axis: the product of the counts along the others.

    Args:
        grid: objects along each axis; an axis without any counts as one that will get its first.
        axis: an index into it.

    Returns:
        At least 1.
    """
    return math.prod(max(count, 1) for other, count in enumerate(grid) if other != axis)


def choose_cut(array: Measured, evidence: Sequence[Mapping[int, str]], object_bytes: Fraction, policy: Policy) -> Cut:
    """Choose axis and width for an array of at least one axis.

    Args:
        array: what is to be cut.
        evidence: axis to the evidence that the array grows along it, the strongest kind of evidence first.
        object_bytes: what an object is taken to hold, see `planned_object_bytes`.
        policy: `t_max_bytes` bounds a blob of several slabs, `pow2_floor` rounds wide ones.

    Returns:
        The cut. Along the growing axis, else along the one with the most objects; where one slab of that is more than
        `t_max_bytes`, along one whose slabs are not; where there is none, one slab of the best axis a blob.
    """
    layout = array.layout
    grid = layout.grid
    slabs = [object_bytes * slab_objects(grid, axis) for axis in range(len(grid))]
    by_count = sorted(range(len(grid)), key=lambda axis: (-grid[axis], axis))
    preferred = list(dict.fromkeys([axis for kind in evidence for axis in by_count if axis in kind] + by_count))
    growing = {axis: why for kind in reversed(evidence) for axis, why in kind.items()}
    fitting = [axis for axis in preferred if slabs[axis] <= policy.t_max_bytes]
    first, axis = preferred[0], (fitting or by_count)[0]
    width = _width(policy, slabs[axis])
    why = _why(layout, growing, axis) if axis == first else _why_not(layout, growing, first, slabs[first], policy)
    blob_bytes = math.ceil(width * slabs[axis])
    warnings = [*_over(layout, axis, blob_bytes, policy), *_uneven(array, axis)]
    if axis != first and first in growing:
        warnings.append(
            f"{layout.label} is cut along {_axis(layout, axis)}, so its blobs grow along {_axis(layout, first)}"
        )
    made = _made(array, width, slab_objects(grid, axis), object_bytes, blob_bytes)
    return Cut(axis, width, object_bytes, blob_bytes, f"{_axis(layout, axis)}: {why}; {made}", tuple(warnings))


def _width(policy: Policy, slab_bytes: Fraction) -> int:
    width = min(max(math.floor(policy.t_max_bytes / slab_bytes), 1), _MAX_WIDTH)
    if width >= policy.pow2_floor:
        width = 1 << (width.bit_length() - 1)
    return width


def _axis(layout: ArrayLayout, axis: int) -> str:
    name = layout.dimensions[axis] if layout.dimensions else None
    return f"axis {axis} ({name})" if name else f"axis {axis}"


def _why(layout: ArrayLayout, growing: Mapping[int, str], axis: int) -> str:
    if axis in growing:
        return "grows" if growing[axis] == "its name" else f"grows ({growing[axis]})"
    if len(layout.grid) == 1:
        return "the only one"
    return f"has the most objects ({layout.grid[axis]})" if layout.grid[axis] > 1 else "no axis has several objects"


def _why_not(layout: ArrayLayout, growing: Mapping[int, str], first: int, slab_bytes: Fraction, policy: Policy) -> str:
    grows = ", which grows," if first in growing else ""
    size, target = format_size(slab_bytes), format_size(policy.t_max_bytes)
    return f"one index of {_axis(layout, first)}{grows} holds {size}, more than {target}"


def _made(array: Measured, width: int, per_slab: int, object_bytes: Fraction, blob_bytes: int) -> str:
    noun = "shard" if array.layout.sharded else "object"
    size = format_size(object_bytes)
    if array.stored_bytes and object_bytes * array.objects != array.stored_bytes:
        size += (
            f" (stored {format_size(Fraction(array.stored_bytes, array.objects))}, compression is not trusted so far)"
        )
    elif not array.stored_bytes:
        size += " (nothing stored, uncompressed)"
    count = str(width) if per_slab == 1 else f"{width} x {per_slab}"
    many = width * per_slab > 1
    return f"{count} {noun}{'s' if many else ''} of {size} {'make' if many else 'makes'} {format_size(blob_bytes)}"


def _over(layout: ArrayLayout, axis: int, blob_bytes: int, policy: Policy) -> Sequence[str]:
    if blob_bytes <= policy.t_max_bytes:
        return ()
    times = blob_bytes / policy.t_max_bytes
    return [
        (
            f"{layout.label}: one index of {_axis(layout, axis)} is a blob of {format_size(blob_bytes)}, "
            f"{times:.1f} times {format_size(policy.t_max_bytes)}, and no other axis does better"
        )
    ]


def _uneven(array: Measured, axis: int) -> Sequence[str]:
    head, tail = array.ends[axis] if array.ends else (0.0, 0.0)
    if max(head, tail) <= _UNEVEN * min(head, tail):
        return ()
    return [
        (
            f"{array.layout.label}: one index of {_axis(array.layout, axis)} holds {format_size(head)} at its start "
            f"and {format_size(tail)} at its end, blobs differ as much"
        )
    ]
