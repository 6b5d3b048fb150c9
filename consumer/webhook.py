"""Where a gateway posts its events: each one is answered when it is safe, and not before.

versitygw gives an answer three seconds, does not try again, and reads no body; so the answer has none.
"""

from __future__ import annotations

import asyncio
import hmac
from typing import TYPE_CHECKING, Protocol

from aiohttp import web

from blobmap.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

# Bodies in memory. A gateway posts every key of a bulk delete at once, a thousand at most, and repeats none of them: so
# those above wait, unread, for their turn.
_MOST_AT_ONCE = 1_000

# A body is read in this time, or a few slow clients would keep all others away.
_READ_S = 30.0


class Inbox(Protocol):
    """Keeps events."""

    async def put(self, body: bytes) -> None:
        """Returns when the event is safe, whatever happens to us then.

        Raises:
            UnavailableError: it cannot be kept now.
        """


def events_route(inbox: Inbox, *, token: str) -> web.RouteDef:
    """The route `POST /events`.

    Args:
        inbox: where events are kept.
        token: bearer token that a request must carry; empty: none is asked for.

    Returns:
        The route. It answers 200 when the event is safe, 401 without the token, 408 when the body does not come, 413
        above the size that the server takes, 503 when the event cannot be kept now; never with a body.
    """
    return web.post("/events", _handler(inbox, f"Bearer {token}".encode() if token else b""))


def _handler(inbox: Inbox, credentials: bytes) -> Callable[[web.Request], Awaitable[web.Response]]:
    gate = asyncio.Semaphore(_MOST_AT_ONCE)

    async def handle(request: web.Request) -> web.Response:
        given = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        if credentials and not hmac.compare_digest(given, credentials):
            return web.Response(status=401)
        async with gate:
            return web.Response(status=await _kept(request, inbox))

    return handle


async def _kept(request: web.Request, inbox: Inbox) -> int:
    """Keeps one event; the status of the answer."""
    try:
        async with asyncio.timeout(_READ_S):
            body = await request.read()
    except TimeoutError:
        return 408
    except web.HTTPRequestEntityTooLarge:
        return 413
    try:
        await inbox.put(body)
    except UnavailableError:
        return 503
    return 200
