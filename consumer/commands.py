"""The commands: where signals arrive, and where every error becomes one line and an exit code."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import blobmap
from blobmap.errors import BlobmapError, UsageError
from consumer import assembly, by_hand
from consumer.broker import connect
from consumer.configuration import load_settings
from consumer.daemon import Daemon
from consumer.dead import add_arguments, run_dead
from consumer.declare import declare
from consumer.demo import run_demo
from consumer.retry import persist
from consumer.telemetry import configure_logs
from consumer.worker import WorkerDaemon
from consumer.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from consumer.settings import Amqp, Settings

T = TypeVar("T")

_PROGRAM = "blobmap-consumer"

EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells count
EXIT_BUG = 70  # EX_SOFTWARE of sysexits.h: none of the published codes, because none of them is true


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: the words after the program's name; those of the process if None.

    Returns:
        The exit code.
    """
    args = _parser().parse_args(argv)
    configure_logs(verbose=args.verbose, quiet=args.run is _demo)
    try:
        code: int | None = args.run(args)
    except KeyboardInterrupt:
        _say("interrupted")
        return EXIT_INTERRUPTED
    except BlobmapError as error:
        return _report(error, str(error), error.exit_code, verbose=args.verbose)
    except Exception as error:  # noqa: BLE001  # the last door: no traceback reaches a user who did not ask for one
        what = f"{type(error).__name__}: {error} (a bug of ours; -v shows where)"
        return _report(error, what, EXIT_BUG, verbose=args.verbose)
    return code or 0


def _report(error: BaseException, what: str, code: int, *, verbose: bool) -> int:
    if verbose:
        traceback.print_exception(error)
    for line in what.splitlines():
        _say(line)
    return code


def _say(line: str) -> None:
    sys.stderr.write(f"{_PROGRAM}: {line}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_PROGRAM,
        description="Tell the programs that write tapes which objects belong together.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{_PROGRAM} {blobmap.__version__}")
    _add_global_options(parser, after=False)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, text, run in (
        ("run", "resolve events, tell movers, flag what nobody has partitioned", _run),
        ("partition", "work off what run has flagged: cut stores that are quiet, tell what movers missed", _partition),
        ("backfill", "tell movers of what exists already: at a first start, or where a mover has lost it", _backfill),
        (
            "dead",
            "look at what could not be handled, send it back to be tried again, or let it go",
            _dead,
        ),
        (
            "setup",
            "declare exchanges and queues at the broker, so that the gateway can start",
            _setup,
        ),
        (
            "demo",
            "show all of it on a small store: no broker, no root, nothing left behind",
            _demo,
        ),
    ):
        command = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        _add_global_options(command, after=True)
        command.set_defaults(run=run)
        if name == "run":
            command.add_argument(
                "--workers",
                type=int,
                default=1,
                metavar="N",
                help="processes on the queue",
            )
            command.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
        if name == "dead":
            add_arguments(command)
        if name == "backfill":
            by_hand.add_arguments(command)
        if name == "demo":
            command.add_argument(
                "--dir",
                type=Path,
                help="where to put bucket and manifests, and leave them",
            )
    return parser


def _add_global_options(parser: argparse.ArgumentParser, *, after: bool) -> None:
    """Adds what may stand before or after the command; after it, nothing given must not undo what stood before."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        default=argparse.SUPPRESS if after else None,
        help="TOML file",
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        default=argparse.SUPPRESS if after else False,
        help="say more",
    )


def _run(args: argparse.Namespace) -> int:
    settings = load_settings(args.config)
    if args.workers < 1:
        raise UsageError(f"--workers {args.workers}: must be 1 or more")
    if args.workers > 1:
        if settings.amqp is None or settings.source.kind == "webhook":
            raise UsageError("--workers needs events from a broker: a file has one owner")
        return _run_loop(lambda: _run_workers(settings, args))
    _run_loop(lambda: _serve(settings, Daemon, worker=args.worker))
    return 0


def _partition(args: argparse.Namespace) -> int:
    settings = load_settings(args.config)
    _run_loop(lambda: _serve(settings, WorkerDaemon, worker=False))
    return 0


def _backfill(args: argparse.Namespace) -> None:
    settings = load_settings(args.config)
    _run_loop(lambda: by_hand.run_backfill(settings, args))


async def _run_workers(settings: Settings, args: argparse.Namespace) -> int:
    words = ["run", "--worker", *(["-v"] if args.verbose else [])]
    if args.config is not None:
        words += ["--config", str(args.config)]
    http_port = None if settings.http is None else settings.http.port
    workers = Workers(words, http_port=http_port, crashed=frozenset({EXIT_BUG}))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, workers.stop)
    loop.add_signal_handler(signal.SIGHUP, workers.send, signal.SIGHUP)
    return await workers.run(args.workers)


async def _serve(settings: Settings, make: type[Daemon | WorkerDaemon], *, worker: bool) -> None:
    stop = asyncio.Event()
    daemon = make(settings)
    loop = asyncio.get_running_loop()

    def begin_to_stop() -> None:
        if not stop.is_set():
            _end_at_last(settings.grace_s)
        stop.set()

    def look_for_the_parent() -> None:
        if not os.read(sys.stdin.fileno(), 1):
            loop.remove_reader(sys.stdin.fileno())
            begin_to_stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, begin_to_stop)
    loop.add_signal_handler(signal.SIGHUP, daemon.reload)
    if worker:
        loop.add_reader(sys.stdin.fileno(), look_for_the_parent)
    await daemon.run(stop)


def _end_at_last(grace_s: float) -> None:
    """Ends the process when the time for an orderly end is over, whatever a thread still waits for.

    Nothing is lost by it: what is not acknowledged is delivered again.
    """
    timer = threading.Timer(grace_s, os._exit, (0,))
    timer.daemon = True
    timer.start()


def _dead(args: argparse.Namespace) -> int:
    settings = load_settings(args.config)
    return _run_loop(lambda: run_dead(settings, args))


def _setup(args: argparse.Namespace) -> None:
    settings = load_settings(args.config)
    if settings.amqp is None:
        raise UsageError("setup needs [amqp]: with [embedded] there is nothing to declare")
    amqp = settings.amqp
    _run_loop(lambda: _declare(settings, amqp))


async def _declare(settings: Settings, amqp: Amqp) -> None:
    laid_out = assembly.laid_out(settings)

    async def attempt() -> None:
        async with connect(amqp.address()) as connection:
            await declare(connection, laid_out)

    await persist(attempt, what="reach the broker", give_up_s=amqp.give_up_s)
    for exchange in laid_out.exchanges:
        _say(f"exchange {exchange.name} ({exchange.kind})")
    for queue in laid_out.queues:
        _say(f"queue {queue.name}")


def _demo(args: argparse.Namespace) -> None:
    _run_loop(lambda: run_demo(args.dir))


def _run_loop(main_: Callable[[], Coroutine[object, object, T]]) -> T:
    """Runs on uvloop where it is installed."""
    factory = importlib.import_module("uvloop").new_event_loop if importlib.util.find_spec("uvloop") else None
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main_())
