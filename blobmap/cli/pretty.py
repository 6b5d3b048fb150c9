"""Tables and progress bars for a terminal, by rich. Only imported where somebody looks."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from blobmap.cli.progress import Show


def write_pretty_table(table: Sequence[Sequence[str]], *, right: Collection[int]) -> None:
    """Write a table to stdout, folded to the width that there is.

    Args:
        table: the titles, then the rows; as many cells each.
        right: positions of the columns that align to the right.
    """
    titles, *rows = table
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for at, title in enumerate(titles):
        shown.add_column(title, justify="right" if at in right else "left", overflow="fold")
    for row in rows:
        shown.add_row(*map(Text, row))
    Console(file=sys.stdout).print(shown)


@contextmanager
def pretty_progress() -> Iterator[Show]:
    """Show a bar on stderr, which is gone afterwards."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=30), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("", total=None)

        def show(text: str, done: int = 0, total: int = 0) -> None:
            bars.update(bar, description=text, completed=done, total=total or None)

        yield show
