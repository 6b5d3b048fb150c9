"""A report as a picture: what the rows hold, and the sizes of the blobs in the window. Only imported to draw one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

from blobmap.errors import RefusedError
from blobmap.policy import format_size

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from blobmap.blob_sizes import BlobSizes
    from blobmap.report import Report

# Told apart by people who see few colours too (Okabe and Ito).
_PARTS: Final = {"archivable": "#0072B2", "hot": "#E69F00", "pinned": "#CC79A7", "unmanaged": "#D55E00"}
_MOST_ROWS: Final = 30  # more bars than this cannot be read
_BINS_PER_DOUBLING: Final = 2


def plot_report(report: Report, path: Path) -> None:
    """Draw a report.

    Args:
        report: what was counted.
        path: of the file, whose ending says what kind it is.

    Raises:
        RefusedError: the file cannot be written.
    """
    rows = min(len(report.rows), _MOST_ROWS)
    figure = Figure(figsize=(11, 3.2 + 0.32 * max(rows, 4)), layout="constrained")
    bars, sizes = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_rows(bars, report)
    _draw_blobs(sizes, report.blobs)
    figure.suptitle(f"blobmap report{f' of {report.prefix}' if report.prefix else ''}: {_said(report)}")
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise RefusedError(f"--plot {str(path)!r}: {error.strerror or error}") from error


def _draw_rows(axes: Axes, report: Report) -> None:
    """One bar a row, the largest on top."""
    rows = sorted(report.rows, key=lambda row: row.total.stored_bytes)[-_MOST_ROWS:]
    names = [row.name or "(no folder)" for row in rows]
    begin = [0] * len(rows)
    for part, colour in _PARTS.items():
        lengths = [getattr(row, part).stored_bytes for row in rows]
        axes.barh(names, lengths, left=begin, color=colour, label=part)
        begin = [start + length for start, length in zip(begin, lengths, strict=True)]
    axes.xaxis.set_major_locator(MultipleLocator(_step(max((row.total.stored_bytes for row in rows), default=1))))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_size(value)))
    axes.tick_params(axis="x", labelrotation=30)
    left_out = len(report.rows) - len(rows)
    axes.set_title("bytes by bucket" + (f" ({left_out} smaller ones left out)" if left_out else ""))
    axes.legend(loc="lower right")


def _draw_blobs(axes: Axes, blobs: BlobSizes) -> None:
    """Blobs by size, on a logarithmic scale, the window shaded."""
    window = blobs.window
    axes.axvspan(window.low_bytes, window.high_bytes, color="#009E73", alpha=0.15, label="tape window")
    sizes = [max(size, 1) for size in blobs.ordered_bytes]
    ends = [*sizes, window.low_bytes, window.high_bytes]
    first, last = math.floor(math.log2(min(ends))), math.ceil(math.log2(max(ends))) or 1
    edges = [2 ** (first + step / _BINS_PER_DOUBLING) for step in range((last - first) * _BINS_PER_DOUBLING + 1)]
    axes.hist(sizes, bins=edges, color=_PARTS["archivable"], label="blobs")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_size(value)))
    axes.tick_params(axis="x", labelrotation=30)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    counts = ", ".join(f"{getattr(blobs, part).blobs:,} {part}" for part in ("below", "inside", "above"))
    axes.set_title(f"{blobs.blobs:,} blobs: {counts}")
    axes.legend(loc="upper left")


def _step(longest: int) -> int:
    """The distance of marks for a longest bar: four to eight of them, at powers of two, which are round sizes."""
    return int(2 ** max(longest.bit_length() - 3, 0))


def _said(report: Report) -> str:
    total, archivable = report.total.total, report.total.archivable
    share = f", {archivable.stored_bytes / total.stored_bytes:.0%} archivable" if total.stored_bytes else ""
    return f"{format_size(total.stored_bytes)} in {total.objects:,} objects{share}"
