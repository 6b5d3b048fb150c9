"""The HTTP port: whether we live, whether we work, and whatever routes others bring."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web

from blobmap.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from consumer.ports import Status

_SHUTDOWN_S = 2.0


@asynccontextmanager
async def serve_http(
    routes: Iterable[web.AbstractRouteDef], *, host: str, port: int, max_body: int = 0
) -> AsyncIterator[int]:
    """Serves routes as long as the context lasts.

    Args:
        routes: what is served.
        host: address to listen on.
        port: port to listen on; 0: any free one.
        max_body: bytes that a request may have.

    Yields:
        The port.

    Raises:
        RefusedError: the port cannot be had.
    """
    application = web.Application(client_max_size=max_body)
    application.add_routes(routes)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise RefusedError(f"http: cannot listen on {host}:{port}: {error.strerror}") from error
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def health_routes(status: Status, *obstacles: Callable[[], str | None]) -> list[web.RouteDef]:
    """The routes `/healthz` (the process lives) and `/readyz` (it takes events and can pass them on).

    Args:
        status: how it goes.
        obstacles: each gives, when it is asked, a further reason for which nothing is passed on now, None for none.
    """
    return [web.get("/healthz", _healthz), web.get("/readyz", _readyz(status, obstacles))]


async def _healthz(_: web.Request) -> web.Response:
    return web.json_response({"alive": True})


def _readyz(
    status: Status, obstacles: Iterable[Callable[[], str | None]]
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(_: web.Request) -> web.Response:
        reasons = [f"{queue}: {reason}" for queue, reason in sorted(status.troubles.items())]
        reasons += filter(None, (obstacle() for obstacle in obstacles))
        if status.blocked is not None:
            reasons.insert(0, status.blocked)
        if not status.consuming:
            reasons.insert(0, "no events are taken")
        return web.json_response({"ready": not reasons, "reasons": reasons}, status=503 if reasons else 200)

    return handle
