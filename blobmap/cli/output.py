"""How an answer looks: a table for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def write_json(value: object) -> None:
    """Write `value` to stdout as one JSON document."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_json_line(value: object) -> None:
    """Write `value` to stdout as JSON on a line of its own, for answers that stream."""
    sys.stdout.write(json.dumps(value) + "\n")


def write_line(text: str) -> None:
    """Write one line of the answer to stdout."""
    sys.stdout.write(text + "\n")


def warn(text: str) -> None:
    """Write one line to stderr: what a person should know beside the answer."""
    sys.stderr.write(f"blobmap: {text}\n")


def write_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """Write rows in aligned columns to stdout.

    Args:
        header: one title a column.
        rows: as many cells as there are titles, each.
        right: positions of the columns that hold numbers, which align to the right.
    """
    table = [list(header), *(list(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = (
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        write_line("  ".join(cells).rstrip())
