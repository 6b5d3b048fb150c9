"""What we are talking to: a person at a terminal, with or without colours, or a file or another program."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO


def is_terminal(stream: TextIO) -> bool:
    """Say whether a person reads this."""
    return stream.isatty()


def has_colours(stream: TextIO) -> bool:
    """Say whether a person reads this and wants colours (`NO_COLOR`, see no-color.org, says that they do not)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
