"""The command line: where everything is put together, and where every error becomes one line and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from typing import TYPE_CHECKING

import blobmap
from blobmap.cli import partition, resolve, schema
from blobmap.cli.options import add_global_options
from blobmap.cli.output import warn
from blobmap.errors import BlobmapError

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = (partition, resolve, schema)

EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells count
EXIT_BUG = 70  # EX_SOFTWARE of sysexits.h: none of the published codes, because none of them is true


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the words after the program's name; those of the process if None.

    Returns:
        The exit code.
    """
    args = _parser().parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our answer has enough of it. Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        warn("interrupted")
        return EXIT_INTERRUPTED
    except BlobmapError as error:
        return _report(error, str(error), error.exit_code, verbose=args.verbose)
    except Exception as error:  # noqa: BLE001 - the last door: no traceback reaches a user who did not ask for one
        what = f"{type(error).__name__}: {error} (a bug of ours; -v shows where)"
        return _report(error, what, EXIT_BUG, verbose=args.verbose)
    return code


def _report(error: BaseException, what: str, code: int, *, verbose: bool) -> int:
    if verbose:
        traceback.print_exception(error)
    warn(what)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="blobmap",
        description="Decide which zarr objects move to tape together, and read that back.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"blobmap {blobmap.__version__}")
    add_global_options(parser, after=False)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        text = (command.__doc__ or "").partition("\n")[0]
        sub = commands.add_parser(command.NAME, help=text, description=command.__doc__, allow_abbrev=False)
        command.add_arguments(sub)
        add_global_options(sub, after=True)
        sub.set_defaults(run=command.run)
    return parser
