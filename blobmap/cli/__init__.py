"""The command line: where everything is put together, and where every error becomes one line and an exit code."""

from __future__ import annotations

import importlib
import os
import signal
import threading
import traceback
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from blobmap.cli.options import add_global_options
from blobmap.cli.output import OutputError, discard_stdout, finish, take_any_key, warn
from blobmap.cli.parsing import Parser, paragraphs
from blobmap.errors import BlobmapError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence
    from types import FrameType

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

EXIT_INTERRUPTED: Final = 130  # 128 + SIGINT, as shells count
_INTERRUPTED: Final = b"blobmap: interrupted; once more waits for no request under way\n"
EXIT_BUG: Final = 70  # EX_SOFTWARE of sysexits.h: none of the published codes, because none of them is true


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the words after the program's name; those of the process if None.

    Returns:
        The exit code.
    """
    args = _parser().parse_args(argv)
    with _a_second_interrupt_ends_at_once():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    try:
        take_any_key()
        code: int = args.run(args)
        finish()
    except BrokenPipeError:
        # Whoever read our answer has enough of it.
        discard_stdout()
        return 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BlobmapError as error:
        if isinstance(error, OutputError):
            discard_stdout()
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


@contextmanager
def _a_second_interrupt_ends_at_once() -> Iterator[None]:
    """The first Ctrl-C ends work in order, which waits for requests under way; a second one waits for nothing."""
    held = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or held is signal.SIG_IGN:
        yield
        return

    def end(_number: int, _frame: FrameType | None) -> None:
        os._exit(EXIT_INTERRUPTED)

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, end)
        os.write(2, _INTERRUPTED)  # not by way of a stream, which may be in the middle of a line of its own
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        # Once interrupted, the interpreter still waits for its threads, and whoever is impatient is so then.
        if signal.getsignal(signal.SIGINT) is interrupt:
            signal.signal(signal.SIGINT, held)


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
