"""What goes wrong at a broker becomes one of our errors, by its type. The one table for it.

Tried against RabbitMQ 3.10.8 with aiormq 7.2.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aiormq.exceptions import (
    AMQPError,
    ChannelAccessRefused,
    ChannelInvalidStateError,
    ChannelPreconditionFailed,
    ConnectionNotAllowed,
    InvalidFrameError,
    ProbableAuthenticationError,
)

from blobmap.errors import BlobmapError, RefusedError, UnavailableError, UsageError
from consumer.ports import LostError

if TYPE_CHECKING:
    from collections.abc import Iterator

# What aiormq and the event loop raise when the broker or the way to it is at fault.
_FOREIGN = (AMQPError, ChannelInvalidStateError, OSError, TimeoutError, EOFError)

_INEQUIVALENT = re.compile(
    r"inequivalent arg '(?P<argument>[^']+)' for (?P<what>\w+) '(?P<name>[^']*)'.*?"
    r"received (?:the value )?(?P<ours>.+?)(?: of type '\w+')? but current is (?P<theirs>.+?)(?: of type '\w+')?$"
)

# What RabbitMQ 3.10 says, for ever, of a stream that it had just made when it was killed.
_NO_HOME = "is down or inaccessible"
_HINT = "; if that lasts, the stream was new when the broker was killed: use another name, or see decision 014"


@contextmanager
def connecting(where: str, vhost: str) -> Iterator[None]:
    """Translates what a connection can fail with before it is open.

    Args:
        where: the broker, for messages.
        vhost: the virtual host asked for.

    Raises:
        RefusedError: user or password are wrong.
        UnavailableError: everything else: the broker may be starting.
    """
    try:
        yield
    except ProbableAuthenticationError as error:
        raise RefusedError(f"{where}: the broker refuses user or password") from error
    except InvalidFrameError as error:  # it closes instead of opening the virtual host, and aiormq drops the reason
        raise UnavailableError(
            f"{where}: vhost {vhost!r} cannot be opened; is it there, and open to the user?"
        ) from error
    except _FOREIGN as error:
        raise UnavailableError(f"{where}: {_reason(error)}") from error


@contextmanager
def declaring(what: str) -> Iterator[None]:
    """Translates what a declaration can fail with.

    Raises:
        UsageError: it exists with other arguments; the message has argument and both values.
        RefusedError: we may not.
        LostError: the connection is gone.
    """
    try:
        yield
    except ChannelPreconditionFailed as error:
        raise UsageError(_difference(str(error.args[0]), what)) from error
    except (ChannelAccessRefused, ConnectionNotAllowed) as error:
        raise RefusedError(f"{what}: the broker refuses us: {_reason(error)}") from error
    except _FOREIGN as error:
        reason = _reason(error)
        raise LostError(f"{what}: {reason}{_HINT if _NO_HOME in reason else ''}") from error


@contextmanager
def in_session(what: str) -> Iterator[None]:
    """Translates what ends a session: aiormq cancels what waits for a connection that is gone.

    Raises:
        LostError: the session is over.
    """
    try:
        yield
    except BlobmapError:
        raise
    except _FOREIGN as error:
        raise LostError(f"{what}: {_reason(error)}") from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():  # somebody wants us to end
            raise
        raise LostError(f"{what}: the connection was closed") from error


def _reason(error: BaseException) -> str:
    text = str(error.args[-1]) if error.args else ""
    return text or type(error).__name__


def _difference(text: str, what: str) -> str:
    match = _INEQUIVALENT.search(text)
    if match is None:
        return f"{what} exists and differs: {text}"
    return (
        f"{match['what']} {match['name']!r} exists with {match['argument']} {match['theirs']}, and must have"
        f" {match['ours']}: delete it, or use another name"
    )
