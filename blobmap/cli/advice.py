"""What to do next, in sentences, from a report. Only words here: everything was counted elsewhere."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import TYPE_CHECKING, Final

from blobmap.cli.output import many, some
from blobmap.pins import concerns
from blobmap.policy import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from blobmap.report import ArrayNote, Report, Unclaimed

_NAMED: Final = 3  # stores, arrays or blobs that a sentence names


def advice(report: Report, now: datetime) -> Iterator[str]:
    """Say what an operator should do about a report.

    Args:
        report: what was counted.
        now: what the expiry of pins is measured by.

    Yields:
        One sentence or two for each matter, the most pressing first.
    """
    yield from _about_unmanaged(report)
    yield from _about_hot(report)
    yield from _about_blobs(report)
    yield from _about_arrays(report)
    held = Counter(concern for _, pin in report.pins for concern in concerns(pin, now))
    if held:
        listed = ", ".join(f"{count} {concern}" for concern, count in held.items())
        yield f"Of {many(len(report.pins), 'pin')} some want looking at ({listed}): see `blobmap pin show`."


def _about_unmanaged(report: Report) -> Iterator[str]:
    total, unmanaged = report.total.total.stored_bytes, report.total.unmanaged
    if not unmanaged.objects:
        return
    share = f"{unmanaged.stored_bytes / total:.1%} of the bytes" if total else "no bytes"
    yield (
        f"Unmanaged: {many(unmanaged.objects, 'object')}, {format_size(unmanaged.stored_bytes)}, {share}. No manifest "
        "claims that, so it stays on disk."
    )
    new = [store for store in report.unclaimed if store.held_by is None]
    known = [store for store in report.unclaimed if store.held_by is not None]
    if new:
        first = f"blobmap partition {shlex.quote(new[0].scope)}"
        every = " or `blobmap scan --partition` for all of them" if len(new) > 1 else ""
        yield f"Never cut: {many(len(new), 'store')}, {_named(new)}. Run `{first}`{every}."
    for store in known[:_NAMED]:
        what = some(store.arrays, _NAMED) if store.arrays else "objects beside its arrays"
        size = format_size(store.size.stored_bytes)
        yield (
            f"Not claimed by the manifest of {store.held_by!r}: {what}, {size}. Run `blobmap partition "
            f"{shlex.quote(store.held_by or '')}`, which says why if it cannot."
        )
    if len(known) > _NAMED:
        yield f"The same of {many(len(known) - _NAMED, 'more store')}: see `blobmap scan`."
    loose_bytes = sum(size.stored_bytes for size in report.loose.values())
    if report.loose:
        objects = sum(size.objects for size in report.loose.values())
        where = some([repr(name) for name in report.loose], _NAMED)
        size = format_size(loose_bytes)
        yield f"In no zarr store: {many(objects, 'object')}, {size}, below {where}. See `blobmap scan`."


def _about_hot(report: Report) -> Iterator[str]:
    for note in report.outgrown[:_NAMED]:
        yield (
            f"{_array(note)} is hot as a small array and has grown to {format_size(note.stored_bytes)}: run "
            f"`blobmap partition {shlex.quote(note.scope)}`, which gives it a rule."
        )
    if len(report.outgrown) > _NAMED:
        yield f"The same of {many(len(report.outgrown) - _NAMED, 'more array')}."
    for note in report.large_coordinates[:_NAMED]:
        size = f"{format_size(note.stored_bytes)} in {many(note.objects, 'object')}"
        yield (
            f"{_array(note)} is a {note.role} of {size}, and stays on disk by structure: only a smaller coordinate "
            "would free that."
        )


def _about_blobs(report: Report) -> Iterator[str]:
    blobs = report.blobs
    low, high = format_size(blobs.window.low_bytes), format_size(blobs.window.high_bytes)
    if blobs.below.blobs:
        yield (
            f"Smaller than {low}: {blobs.below.blobs:,} of {many(blobs.blobs, 'blob')}, "
            f"{format_size(blobs.below.stored_bytes)} together, of small arrays and at the end of large ones. The "
            "tape layer should put them together; a larger --t-max helps only where arrays are large."
        )
    if blobs.above.blobs:
        most = blobs.most[0]
        yield (
            f"Larger than {high}: {blobs.above.blobs:,} of {many(blobs.blobs, 'blob')}, the most {most.blob_id} of "
            f"{most.scope!r} with {format_size(most.stored_bytes)}. Look at `blobmap partition "
            f"{shlex.quote(most.scope)} --dry-run`; cuts that exist change only under --force."
        )


def _about_arrays(report: Report) -> Iterator[str]:
    if report.incomplete:
        least = report.incomplete[0]
        yield (
            f"Not all of the grid is stored in {many(len(report.incomplete), 'array')}, the least of {_array(least)} "
            f"with {least.objects:,} of {least.grid_objects:,} objects: fill values, or a writer that stopped."
        )


def _named(stores: Sequence[Unclaimed]) -> str:
    return some([f"{store.scope!r} ({format_size(store.size.stored_bytes)})" for store in stores], _NAMED)


def _array(note: ArrayNote) -> str:
    return f"{note.path!r} of {note.scope!r}" if note.path else repr(note.scope)
