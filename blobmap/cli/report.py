"""Say how much is archivable, and what holds back the rest.

One listing counts every object once: archivable, hot (metadata, coordinates, small arrays), pinned on purpose, or
unmanaged, which means that no manifest claims it. Blob sizes are held against the window that the tape archive wants.
What to do next is said at the end.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from blobmap.blob_sizes import Window, parse_window
from blobmap.cli.advice import advice
from blobmap.cli.options import open_data, open_manifests
from blobmap.cli.output import many, printable, warn, write_json, write_line, write_table
from blobmap.cli.progress import progress
from blobmap.errors import MissingError, UnreadableError, UsageError
from blobmap.policy import format_size
from blobmap.report import make_report

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from blobmap.blob_sizes import BlobSizes, Share
    from blobmap.census import Size
    from blobmap.report import Report, Row

_PARTS: Final = ("total", "archivable", "hot", "pinned", "unmanaged")
_PLOTS: Final = (".png", ".svg")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `report` takes."""
    parser.add_argument("prefix", metavar="PREFIX", nargs="?", default="", help="what to count; all if left out")
    parser.add_argument("--per-bucket", action="store_true", help="a row for each first segment below --data")
    parser.add_argument("--window", metavar="A..B", help="sizes that the tape archive wants (10GiB..200GiB)")
    parser.add_argument("--plot", metavar="FILE", help="draw the rows and the blob sizes, as .png or .svg")


def run(args: argparse.Namespace) -> int:
    """Count, and show; exit 5 if something could not be read and so is not counted."""
    window = parse_window(args.window) if args.window is not None else Window()
    plot = _plotter(args.plot) if args.plot is not None else None
    data, manifests = open_data(args), open_manifests(args, may_be_missing=True)
    prefix = args.prefix.strip("/")
    with progress() as show:
        report = make_report(
            data, manifests, prefix, window=window, on_progress=lambda objects: show(many(objects, "object"))
        )
    if prefix and not report.rows and not report.problems:
        raise MissingError(f"{data.name}: nothing is stored below {prefix!r}")
    sentences = list(advice(report, datetime.now(UTC)))
    if args.json:
        write_json(_as_json(report, sentences, per_bucket=args.per_bucket))
    else:
        _show(report, sentences, per_bucket=args.per_bucket)
    if plot is not None:
        plot(report)
    for problem in report.problems:
        warn(problem)
    return UnreadableError.exit_code if report.problems else 0


def _plotter(name: str) -> Callable[[Report], None]:
    """What draws a report, found out before anything is counted."""
    path = Path(name)
    if path.suffix not in _PLOTS:
        raise UsageError(f"--plot {name!r}: give a file name that ends in {' or '.join(_PLOTS)}")
    if not path.parent.is_dir():
        raise UsageError(f"--plot {name!r}: {str(path.parent)!r} is no directory")
    try:
        # An extra of the installation, and slow to import.
        from blobmap.cli.plot import plot_report  # noqa: PLC0415 - see above
    except ImportError as error:
        raise UsageError("--plot draws with matplotlib, which is not installed: pip install 'blobmap[plot]'") from error
    return lambda report: plot_report(report, path)


def _show(report: Report, sentences: Sequence[str], *, per_bucket: bool) -> None:
    rows = [*report.rows, report.total] if per_bucket else [report.total]
    write_table(
        ("bucket", *_PARTS, "blobs", "objects"),
        [_row(row, report) for row in rows],
        right=range(1, 8),
    )
    write_line()
    if report.hot:
        write_line("hot: " + ", ".join(_hot(kind, size) for kind, size in sorted(report.hot.items())))
    _show_blobs(report.blobs)
    if report.total.grid_objects:
        write_line(
            f"arrays: {report.total.array_objects:,} of {report.total.grid_objects:,} objects of their grids are stored"
        )
    write_line()
    for sentence in sentences or ["Nothing to do."]:
        write_line(printable(sentence))


def _row(row: Row, report: Report) -> tuple[str, ...]:
    name = (report.prefix or "all") if row is report.total else row.name or "(no folder)"
    sizes = (format_size(getattr(row, part).stored_bytes) for part in _PARTS)
    return (name, *sizes, f"{row.blobs:,}", f"{row.total.objects:,}")


def _show_blobs(blobs: BlobSizes) -> None:
    if not blobs.blobs:
        write_line("blobs: none")
        return
    low, high = format_size(blobs.window.low_bytes), format_size(blobs.window.high_bytes)
    smallest, median, largest = (
        format_size(size) for size in (blobs.ordered_bytes[0], blobs.median_bytes, blobs.ordered_bytes[-1])
    )
    write_line(
        f"blobs: {_share(blobs.below)} below {low}, {_share(blobs.inside)} inside, {_share(blobs.above)} above {high}; "
        f"smallest {smallest}, median {median}, largest {largest}"
    )
    for blob in (*blobs.most, *blobs.least):
        write_line(printable(f"  {format_size(blob.stored_bytes):>10}  {blob.blob_id} of {blob.scope!r}"))


def _share(share: Share) -> str:
    return f"{share.blobs:,} ({format_size(share.stored_bytes)})"


def _hot(kind: str, size: Size) -> str:
    names = {"metadata": "of metadata", "other": "of anything else"}
    what = names.get(kind, f"of {kind}s")
    return f"{format_size(size.stored_bytes)} in {many(size.objects, 'object')} {what}"


def _as_json(report: Report, sentences: list[str], *, per_bucket: bool) -> dict[str, object]:
    blobs = report.blobs
    shares = {name: _share_as_json(getattr(blobs, name)) for name in ("below", "inside", "above")}
    return {
        "prefix": report.prefix,
        "total": _row_as_json(report.total),
        "rows": [{"name": row.name, **_row_as_json(row)} for row in report.rows] if per_bucket else [],
        "hot": {kind: _size_as_json(size) for kind, size in report.hot.items()},
        "blobs": {
            "window": asdict(blobs.window),
            "blobs": blobs.blobs,
            **shares,
            "smallest_bytes": blobs.ordered_bytes[0] if blobs.blobs else None,
            "median_bytes": blobs.median_bytes if blobs.blobs else None,
            "largest_bytes": blobs.ordered_bytes[-1] if blobs.blobs else None,
            "least": [asdict(blob) for blob in blobs.least],
            "most": [asdict(blob) for blob in blobs.most],
        },
        "large_coordinates": [asdict(note) for note in report.large_coordinates],
        "outgrown": [asdict(note) for note in report.outgrown],
        "incomplete": [asdict(note) for note in report.incomplete],
        "unclaimed": [
            {"scope": store.scope, "held_by": store.held_by, "arrays": store.arrays, **_size_as_json(store.size)}
            for store in report.unclaimed
        ],
        "loose": {name: _size_as_json(size) for name, size in report.loose.items()},
        "advice": sentences,
        "problems": report.problems,
    }


def _row_as_json(row: Row) -> dict[str, object]:
    parts = {part: _size_as_json(getattr(row, part)) for part in _PARTS}
    return {**parts, "blobs": row.blobs, "array_objects": row.array_objects, "grid_objects": row.grid_objects}


def _size_as_json(size: Size) -> dict[str, int]:
    return {"objects": size.objects, "bytes": size.stored_bytes}


def _share_as_json(share: Share) -> dict[str, int]:
    return {"blobs": share.blobs, "bytes": share.stored_bytes}
