"""The console script: the commands, or what to install where their libraries are missing."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from blobmap.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: the words after the program's name; those of the process if None.

    Returns:
        The exit code.
    """
    try:
        commands = importlib.import_module("consumer.commands")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("blobmap", "consumer"):
            raise
        sys.stderr.write(f"blobmap-consumer: {error.name} is not installed: pip install 'blobmap[consumer]'\n")
        return UsageError.exit_code
    code: int = commands.main(argv)
    return code
