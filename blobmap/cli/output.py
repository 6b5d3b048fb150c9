"""How an answer looks: a table for people, JSON for programs. Answers go to stdout, everything else to stderr."""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from blobmap.cli.terminal import has_colours
from blobmap.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence


class OutputError(UnavailableError):
    """The answer cannot be written, since the disk is full, say."""


def write(text: str) -> None:
    """Write a part of the answer to stdout.

    Raises:
        OutputError: it cannot be written.
        BrokenPipeError: nobody reads it any more.
    """
    with _translated():
        sys.stdout.write(text)


def write_line(text: str = "") -> None:
    """Write one line of the answer to stdout. Raises as `write`."""
    write(text + "\n")


def write_json(value: object) -> None:
    """Write `value` to stdout as one JSON document. Raises as `write`."""
    write(json.dumps(value, indent=2) + "\n")


def write_json_line(value: object) -> None:
    """Write `value` to stdout as JSON on a line of its own, for answers that stream. Raises as `write`."""
    write(json.dumps(value) + "\n")


def finish() -> None:
    """Make sure that the answer has arrived. Raises as `write`."""
    with _translated():
        sys.stdout.flush()


def warn(text: str) -> None:
    """Write one line to stderr: what a person should know beside the answer."""
    sys.stderr.write(f"blobmap: {printable(text)}\n")


def printable(text: str) -> str:
    """Spell a text so that a terminal shows it on one line: what cannot be printed as an escape."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode() for char in text
    )


def some(names: Sequence[str], most: int) -> str:
    """Name the first few, and say how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def many(count: int, noun: str) -> str:
    """Say how many there are: `1 store`, `1,200 stores`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def take_any_key() -> None:
    """Let stdout carry keys as they are: UTF-8 whatever the locale, and bytes that are none."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors="backslashreplace")


def discard_stdout() -> None:
    """Let what is still to be written go nowhere; Python would complain about it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Collection[int] = ()) -> None:
    """Write rows in aligned columns to stdout. Raises as `write`.

    Args:
        header: one title a column.
        rows: as many cells as there are titles, each.
        right: positions of the columns that hold numbers, which align to the right.
    """
    table = [tuple(header), *(tuple(map(printable, row)) for row in rows)]
    if has_colours(sys.stdout):
        try:
            # An extra of the installation, and only for tables on a terminal.
            from blobmap.cli.pretty import write_pretty_table  # noqa: PLC0415 - see above
        except ImportError:
            pass
        else:
            with _translated():
                write_pretty_table(table, right=right)
            return
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = (
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        write_line("  ".join(cells).rstrip())


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"standard output: {error.strerror or error}") from error
