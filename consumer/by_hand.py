"""`blobmap-consumer backfill`: movers are told of what exists, at a first start, or where one of them has lost it."""

from __future__ import annotations

import argparse
import secrets
import sqlite3
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from blobmap.errors import UnavailableError, UsageError
from blobmap.store_keys import is_addressable
from consumer import assembly
from consumer.broker import connect
from consumer.embedded import EMBEDDED_FORMAT
from consumer.outlet import BrokerSink
from consumer.retry import persist
from consumer.sqlite_file import open_file
from consumer.tasks import Task, task_message

if TYPE_CHECKING:
    from pathlib import Path

    from consumer.records import Message
    from consumer.settings import Amqp, Settings

_INSERT = "INSERT INTO messages (queue, key, type, body, headers, seen, due) VALUES (?, ?, ?, ?, '{}', ?, 0)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the words that follow `backfill`."""
    parser.add_argument("--bucket", required=True, metavar="B", help="whose objects")
    parser.add_argument("--prefix", default="", metavar="P", help="only those at or below it, by whole segments")
    parser.add_argument(
        "--since",
        type=_time,
        metavar="T",
        help="only those modified then or later (ISO 8601; UTC where it does not say)",
    )
    parser.add_argument("--mover", metavar="NAME", help="tell only this one")


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no ISO 8601 date or time, such as 2026-11-30 or 2026-11-30T12:00:00Z"
        ) from None
    return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).astimezone(UTC)


async def run_backfill(settings: Settings, args: argparse.Namespace) -> None:
    """Publishes one task, which workers do. Returns when it is safe.

    Args:
        settings: the configuration.
        args: what `add_arguments` read.

    Raises:
        UsageError: bucket, mover or prefix is none that can be told.
        UnavailableError: broker or file cannot be reached.
        RefusedError: broker or file does not serve us.
    """
    task = _task(settings, args)
    message = task_message(settings.topology.tasks, task)
    if settings.amqp is not None:
        await _publish(settings, settings.amqp, message)
    elif settings.embedded is not None:
        _put(settings.embedded.path, message)
    where = f"bucket {task.bucket!r}" + (f", prefix {task.prefix!r}" if task.prefix else "")
    since = "" if task.since is None else f", modified since {task.since.isoformat()}"
    whom = "its movers" if task.mover is None else f"mover {task.mover!r}"
    sys.stderr.write(f"blobmap-consumer: task {task.run} in {message.queue}: tell {whom} of {where}{since}\n")


def _task(settings: Settings, args: argparse.Namespace) -> Task:
    bucket = next((bucket for bucket in settings.bucket if bucket.name == args.bucket), None)
    if bucket is None:
        known = ", ".join(bucket.name for bucket in settings.bucket)
        raise UsageError(f"--bucket {args.bucket!r} is none of {known}")
    if bucket.data is None:
        raise UsageError(f"bucket {bucket.name!r}: data is missing; backfill has to list the objects")
    movers = assembly.backfill_plan(settings).addressees[bucket.name].movers
    if args.mover is not None and args.mover not in movers:
        raise UsageError(f"--mover {args.mover!r} is none of bucket {bucket.name!r}: {', '.join(movers)}")
    prefix = args.prefix.removesuffix("/")
    if prefix and not is_addressable(prefix):
        raise UsageError(f"--prefix {args.prefix!r}: segments must not be empty, '.' or '..'")
    return Task(
        run=secrets.token_hex(8),
        bucket=bucket.name,
        scope=None,
        epoch=None,
        prefix=prefix,
        since=args.since,
        mover=args.mover,
    )


async def _publish(settings: Settings, amqp: Amqp, message: Message) -> None:
    laid_out = assembly.laid_out(settings)

    async def attempt() -> None:
        async with connect(amqp.address()) as connection:
            await (await BrokerSink.open(connection, laid_out)).publish(message)

    await persist(attempt, what=f"publish to {message.queue}", give_up_s=amqp.give_up_s)


def _put(path: Path, message: Message) -> None:
    """Puts a message into the file, beside a daemon that has it open or not; that looks there now and then."""
    if not path.is_file():
        raise UsageError(f"embedded.path {path}: there is no such file; `run` makes it")
    opened = open_file(path, EMBEDDED_FORMAT, name="embedded.path", hold=False)
    try:
        with opened.database:
            now = datetime.now(UTC).isoformat()
            opened.database.execute(_INSERT, (message.queue, message.key, message.schema, message.body, now))
    except sqlite3.Error as error:
        raise UnavailableError(f"embedded.path {path}: the file cannot be used now: {error}") from error
    finally:
        opened.close()
