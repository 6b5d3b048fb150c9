"""The command line: where everything is put together, and where every error becomes one line and an exit code."""

from __future__ import annotations

import importlib
import traceback
from functools import partial
from typing import TYPE_CHECKING, Final

from blobmap.cli.interrupts import EXIT_INTERRUPTED, interruptible
from blobmap.cli.options import add_global_options
from blobmap.cli.output import OutputError, discard_stdout, finish, take_any_key, warn
from blobmap.cli.parsing import Parser, paragraphs
from blobmap.errors import BlobmapError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

COMMANDS: Final = {
    "scan": "find every store, and which of them nobody has cut yet",
    "partition": "cut one store into blobs and write its manifest",
    "resolve": "say which blob each key belongs to",
    "objects": "list every object of one blob",
    "show": "list the known scopes, or say in words what one manifest does",
    "pin": "keep a prefix on disk on purpose",
    "report": "say how much is archivable, and what holds back the rest",
    "verify": "check every manifest against its format, its place, its neighbours and the data",
    "backup": "put the manifest root into one checked archive",
    "restore": "write the manifests of an archive back",
    "schema": "print the JSON Schema of a manifest",
}
"""Every command is the module of its name in this package: `add_arguments` says what it takes, `run` does it.

A module is imported when its command is given, so that none pays for what another needs.
"""

EXIT_BUG: Final = 70  # EX_SOFTWARE of sysexits.h: none of the published codes, because none of them is true


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the words after the program's name; those of the process if None.

    Returns:
        The exit code.
    """
    with interruptible() as interrupts:
        try:
            return _run(_parser().parse_args(argv))
        except KeyboardInterrupt:
            interrupts.tell()
            _give_what_is_there()
            return EXIT_INTERRUPTED


def _run(args: argparse.Namespace) -> int:
    try:
        take_any_key()
        code: int = args.run(args)
        finish()
    except BrokenPipeError:
        # Whoever read our answer has enough of it.
        discard_stdout()
        return 0
    except BlobmapError as error:
        if isinstance(error, OutputError):
            discard_stdout()
        return _report(error, str(error), error.exit_code, verbose=args.verbose)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - the last door, for what a library in Rust calls a panic too: no
        # traceback reaches a user who did not ask for one.
        what = f"{type(error).__name__}: {error} (a bug of ours; -v shows where)"
        return _report(error, what, EXIT_BUG, verbose=args.verbose)
    return code


def _give_what_is_there() -> None:
    """Hand over the answer as far as it came, whole lines, to whoever still reads it."""
    try:
        finish()
    except (BrokenPipeError, OutputError):
        discard_stdout()


def _report(error: BaseException, what: str, code: int, *, verbose: bool) -> int:
    if verbose:
        traceback.print_exception(error)
    warn(what)
    return code


def _parser() -> Parser:
    parser = Parser(prog="blobmap", description="Decide which zarr objects move to tape together, and read that back.")
    add_global_options(parser, level=0)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text)
        command.fill = partial(_fill, command, name)
    return parser


def _fill(parser: Parser, name: str) -> None:
    command = importlib.import_module(f"{__name__}.{name}")
    parser.description = paragraphs(command.__doc__ or "")
    command.add_arguments(parser)
    add_global_options(parser, level=1)
    parser.set_defaults(run=command.run)
