"""How far long work is: one line on stderr that is rewritten, and only where a person looks."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from blobmap.cli.terminal import has_colours, is_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

_EVERY_S: Final = 0.1
_CLEAR: Final = "\r\x1b[K"


class Show(Protocol):
    """Shows how far work is."""

    def __call__(self, text: str, done: int = 0, total: int = 0) -> None:
        """Show it: in words, and as a part of a total where one is known. From any thread, as often as one likes."""


@contextmanager
def progress() -> Iterator[Show]:
    """Give something that shows progress while the context lasts, and nothing where nobody looks."""
    if not is_terminal(sys.stderr):
        yield _show_nothing
        return
    if has_colours(sys.stderr):
        try:
            # An extra of the installation, and only for progress on a terminal.
            from blobmap.cli.pretty import pretty_progress  # noqa: PLC0415 - see above
        except ImportError:
            pass
        else:
            with pretty_progress() as show:
                yield show
            return
    shown = _Line()
    try:
        yield shown
    finally:
        sys.stderr.write(_CLEAR)
        sys.stderr.flush()


class _Line:
    def __init__(self) -> None:
        self._due = time.monotonic() + _EVERY_S

    def __call__(self, text: str, done: int = 0, total: int = 0) -> None:
        now = time.monotonic()
        if now >= self._due:
            self._due = now + _EVERY_S
            part = f" ({done} of {total})" if total else ""
            sys.stderr.write(f"{_CLEAR}{text}{part}")
            sys.stderr.flush()


def _show_nothing(text: str, done: int = 0, total: int = 0) -> None:
    del text, done, total
