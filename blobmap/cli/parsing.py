"""Words to arguments: argparse, with commands that are filled in when they are given, and errors of one line."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Any, NoReturn

from blobmap.cli.terminal import has_colours

if TYPE_CHECKING:
    from collections.abc import Callable


class Parser(argparse.ArgumentParser):
    """A parser of the program, of one command or of one of its actions.

    Attributes:
        fill: declares the arguments, once somebody gives this command.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs, allow_abbrev=False, formatter_class=_formatter)
        self.fill: Callable[[], None] | None = None

    # Any: argparse gives back whatever namespace it was given.
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, after the arguments were declared."""
        fill, self.fill = self.fill, None
        if fill is not None:
            fill()
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """End with one line that says what is wrong and where to read on."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def paragraphs(text: str) -> str:
    """Wrap a text for the help, its paragraphs kept apart.

    Args:
        text: a docstring.
    """
    width = min(shutil.get_terminal_size().columns, 100)
    return "\n\n".join(textwrap.fill(" ".join(part.split()), width) for part in text.strip().split("\n\n"))


def _formatter(prog: str) -> argparse.HelpFormatter:
    """Coloured help on a terminal where rich-argparse is installed, else plain help."""
    if has_colours(sys.stdout):
        try:
            # An extra of the installation, and only for help on a terminal.
            from blobmap.cli.pretty_help import ColouredHelp  # noqa: PLC0415 - see above
        except ImportError:
            pass
        else:
            return ColouredHelp(prog)
    return argparse.RawDescriptionHelpFormatter(prog)
