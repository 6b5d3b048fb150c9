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

# A gateway posts every key of a bulk delete at once, a thousand at most.
_MOST_AT_ONCE = 2_000

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
        above the size that the server takes, 503 when the event cannot be kept now or too many wait; never with a
        body.
    """
    return web.post("/events", _handler(inbox, f"Bearer {token}".encode() if token else b""))


def _handler(inbox: Inbox, credentials: bytes) -> Callable[[web.Request], Awaitable[web.Response]]:
    waiting = 0

    async def handle(request: web.Request) -> web.Response:
        nonlocal waiting
        given = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        if credentials and not hmac.compare_digest(given, credentials):
            return web.Response(status=401)
        if waiting >= _MOST_AT_ONCE:
            return web.Response(status=503)
        waiting += 1
        try:
            async with asyncio.timeout(_READ_S):
                body = await request.read()
            await inbox.put(body)
        except TimeoutError:
            return web.Response(status=408)
        except web.HTTPRequestEntityTooLarge:
            return web.Response(status=413)
        except UnavailableError:
            return web.Response(status=503)
        finally:
            waiting -= 1
        return web.Response()

    return handle
