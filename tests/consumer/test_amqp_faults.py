from __future__ import annotations

import asyncio

import pytest
from aiormq.exceptions import (
    AMQPConnectionError,
    ChannelAccessRefused,
    ChannelInvalidStateError,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    ConnectionClosed,
    InvalidFrameError,
    ProbableAuthenticationError,
)

from blobmap.errors import BlobmapError, RefusedError, UnavailableError, UsageError
from consumer.amqp_faults import connecting, declaring, in_session
from consumer.ports import LostError


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (ProbableAuthenticationError("ACCESS_REFUSED - Login was refused"), RefusedError, "refuses user or password"),
        (InvalidFrameError("Expected OpenOk, got Close"), UnavailableError, "vhost '/v' cannot be opened"),
        (AMQPConnectionError(111, "Connect call failed"), UnavailableError, "at: Connect call failed"),
        (ConnectionRefusedError(), UnavailableError, "at: ConnectionRefusedError"),
        (TimeoutError(), UnavailableError, "at: TimeoutError"),
        (EOFError(), UnavailableError, "at: EOFError"),
    ],
)
def test_before_a_connection_is_open(error: Exception, kind: type[BlobmapError], says: str) -> None:
    with pytest.raises(kind) as caught, connecting("at", "/v"):
        raise error
    assert says in str(caught.value)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (
            ChannelPreconditionFailed(
                "PRECONDITION_FAILED - inequivalent arg 'x-delivery-limit' for queue 'q' in vhost '/':"
                " received '200' but current is '3'"
            ),
            UsageError,
            "queue 'q' exists with x-delivery-limit '3', and must have '200'",
        ),
        (ChannelPreconditionFailed("PRECONDITION_FAILED - something new"), UsageError, "it exists and differs: PREC"),
        (ChannelAccessRefused("ACCESS_REFUSED - access to queue 'q' refused"), RefusedError, "it: the broker refuses"),
        (ConnectionClosed(320, "CONNECTION_FORCED"), LostError, "it: CONNECTION_FORCED"),
        (
            ChannelNotFoundEntity("NOT_FOUND - home node is down or inaccessible"),
            LostError,
            "inaccessible; if that lasts",
        ),
    ],
)
def test_while_declaring(error: Exception, kind: type[BlobmapError], says: str) -> None:
    with pytest.raises(kind) as caught, declaring("it"):
        raise error
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "error", [ConnectionClosed(320, "x"), ChannelInvalidStateError("x"), ConnectionResetError("x")]
)
def test_in_a_session_everything_foreign_is_a_loss(error: Exception) -> None:
    with pytest.raises(LostError, match="it: x"), in_session("it"):
        raise error


def test_in_a_session_our_own_errors_stay_what_they_are() -> None:
    with pytest.raises(RefusedError, match="mine"), in_session("it"):
        raise RefusedError("mine")


def test_in_a_session_bugs_stay_bugs() -> None:
    with pytest.raises(KeyError), in_session("it"):
        raise KeyError("x")


async def test_a_wait_that_the_library_cancels_is_a_loss() -> None:
    with pytest.raises(LostError, match="it: the connection was closed"), in_session("it"):
        raise asyncio.CancelledError


async def test_a_wait_that_we_cancel_is_cancelled() -> None:
    async def wait() -> None:
        with in_session("it"):
            await asyncio.Event().wait()

    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
