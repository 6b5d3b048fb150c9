"""`blobmap-consumer dead`: look at what could not be handled, try it again, or let it go."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from blobmap.errors import BlobmapError, UnavailableError, UsageError
from consumer.alerts import alert_message
from consumer.aside import letters_alert
from consumer.broker_letters import open_broker_letters
from consumer.embedded_letters import open_embedded_letters
from consumer.ports import LostError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from consumer.letters import DeadLetters, HeldLetter, Letter
    from consumer.settings import Settings

_ACTIONS = {
    "show": "show them; they stay where they are",
    "requeue": "send each one back to where it was published first, confirmed, and then take it away",
    "drop": "take them away for good, and say what they were",
}

_DONE = {"show": "shown", "requeue": "requeued", "drop": "dropped"}

# Done, and the answer is that something is left to be done.
EXIT_FINDINGS = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the words that follow `dead`."""
    parser.add_argument("action", choices=tuple(_ACTIONS), help="; ".join(f"{a}: {t}" for a, t in _ACTIONS.items()))
    parser.add_argument("--code", action="append", metavar="CODE", help="only those of this kind (repeatable)")
    parser.add_argument("--limit", type=_positive, metavar="N", help="only the N oldest of them")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no number greater than 0")
    return int(text)


async def run_dead(settings: Settings, args: argparse.Namespace) -> int:
    """Does what was asked with the letters that are there when it begins.

    Args:
        settings: the configuration.
        args: what `add_arguments` read.

    Returns:
        The exit code: 1 where a letter could not be sent back.

    Raises:
        UnavailableError: the broker cannot be reached, or was lost meanwhile; what was not done yet stays.
        RefusedError: the broker, or the file, does not serve us.
        UsageError: there is no such file.
    """
    done, left = Counter[str](), Counter[str]()
    skipped = 0
    async with _opened(settings) as letters:
        count = await letters.count()
        async for held in letters.held(count):
            code = held.letter.code
            if args.code is not None and code not in args.code:
                skipped += 1
                continue
            (done if await _settled(held, args.action, as_json=args.json) else left)[code] += 1
            if done.total() + left.total() == args.limit:
                break
        if args.action != "show" and await letters.count() <= skipped + left.total():  # or there are others
            await _resolve(settings, letters, done.keys() - left.keys())
    _say(f"{done.total()} of {count} dead letters {_DONE[args.action]}")
    return EXIT_FINDINGS if left else 0


async def _resolve(settings: Settings, letters: DeadLetters, codes: Iterable[str]) -> None:
    """Says of kinds of which nothing is left that their alert is over."""
    for code in sorted(codes):
        alert = letters_alert(settings.topology.dead, code, letters=0, reason="")
        message = alert_message(settings.topology.alerts, alert, datetime.now(UTC), resolved=True)
        try:
            await letters.tell(message)
        except LostError:
            raise
        except UnavailableError as error:
            _say(f"alert {alert.key!r} is not resolved: {error}")


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[DeadLetters]:
    queue = settings.topology.dead
    if settings.amqp is not None:
        async with open_broker_letters(settings.amqp.address(), queue) as letters:
            yield letters
    elif settings.embedded is not None:
        with open_embedded_letters(settings.embedded.path, queue) as in_file:
            yield in_file
    else:  # the configuration has one of them, or it would not be one
        raise UsageError("neither [amqp] nor [embedded] given")


async def _settled(held: HeldLetter, action: str, *, as_json: bool) -> bool:
    """Does it to one letter, and says so; False where it had to stay."""
    if action == "requeue":
        try:
            await held.requeue()
        except LostError:
            raise
        except BlobmapError as error:
            _say(f"left where it is: {error}\n{held.letter}")
            return False
    _tell(held.letter, _DONE[action], as_json=as_json)
    if action == "drop":  # after it was told, or nobody would ever know of it
        await held.drop()
    return True


def _tell(letter: Letter, done: str, *, as_json: bool) -> None:
    line = json.dumps({"done": done, **letter.to_json()}) if as_json else f"{done}: {letter}"
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _say(line: str) -> None:
    sys.stderr.write(f"blobmap-consumer: {line}\n")
