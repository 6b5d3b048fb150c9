from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest

from blobmap.errors import RefusedError, UnavailableError
from consumer.embedded import EmbeddedQueue
from consumer.ports import Status
from consumer.web import health_routes, serve_http
from consumer.webhook import events_route
from tests.support.notifications import created
from tests.support.port_contracts import take
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from consumer.webhook import Inbox


class FullInbox:
    """An inbox that keeps nothing."""

    async def put(self, body: bytes) -> None:
        raise UnavailableError(f"the disk is full: no room for {len(body)} bytes")


@asynccontextmanager
async def served(inbox: Inbox, *, token: str = "", max_body: int = 1000) -> AsyncIterator[aiohttp.ClientSession]:
    routes = [events_route(inbox, token=token)]
    async with (
        serve_http(routes, host="127.0.0.1", port=0, max_body=max_body) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client,
    ):
        yield client


@pytest.fixture
async def queue(tmp_path: Path) -> AsyncIterator[EmbeddedQueue]:
    opened = await EmbeddedQueue.open(tmp_path / "queue.sqlite", prefetch=5000)
    yield opened
    await opened.close()


async def test_who_may_decide_nothing_is_not_ready_and_says_why() -> None:
    """An obstacle is asked for when somebody asks, as time alone can make one."""
    obstacle: str | None = "the manifests are old"
    routes = health_routes(Status(consuming=True), lambda: obstacle)
    async with (
        serve_http(routes, host="127.0.0.1", port=0) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client,
    ):
        async with client.get("/readyz") as answer:
            assert (answer.status, await answer.json()) == (503, {"ready": False, "reasons": [obstacle]})
        obstacle = None
        async with client.get("/readyz") as answer:
            assert (answer.status, await answer.json()) == (200, {"ready": True, "reasons": []})


async def test_an_event_is_answered_without_a_body_when_it_is_kept(queue: EmbeddedQueue) -> None:
    body = created("b", "s.zarr/t/c/0 é")
    async with served(queue) as client, client.post("/events", data=body) as answer:
        assert (answer.status, answer.headers["Content-Length"], await answer.read()) == (200, "0", b"")
        (delivery,) = await take(queue, 1)
    assert delivery.body == body


async def test_a_thousand_at_once_are_all_kept(queue: EmbeddedQueue) -> None:
    async with served(queue) as client:

        async def post(number: int) -> int:
            async with client.post("/events", data=b"%d" % number) as answer:
                return answer.status

        assert set(await asyncio.gather(*map(post, range(1000)))) == {200}
        assert len({delivery.body for delivery in await take(queue, 1000)}) == 1000


async def test_what_cannot_be_kept_is_answered_503() -> None:
    async with served(FullInbox()) as client, client.post("/events", data=b"x") as answer:
        assert (answer.status, answer.headers["Content-Length"]) == (503, "0")


class HeldInbox:
    """An inbox that keeps nothing until it is told to."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.seen: list[bytes] = []

    async def put(self, body: bytes) -> None:
        self.seen.append(body)
        await self.free.wait()


async def test_too_many_at_once_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consumer.webhook._MOST_AT_ONCE", 2)
    inbox = HeldInbox()
    async with served(inbox) as client:

        async def post(number: int) -> int:
            async with client.post("/events", data=b"%d" % number) as answer:
                return answer.status

        posts = asyncio.gather(*map(post, range(5)))

        async def two() -> bool:
            return len(inbox.seen) >= 2

        await eventually(two, what="two are being kept")
        await asyncio.sleep(0.05)
        assert len(inbox.seen) == 2
        inbox.free.set()
        assert await posts == [200] * 5


async def test_a_body_may_not_be_too_long(queue: EmbeddedQueue) -> None:
    async with served(queue, max_body=100) as client:
        async with client.post("/events", data=b"x" * 101) as answer:
            assert answer.status == 413
        async with client.post("/events", data=b"x" * 100) as answer:
            assert answer.status == 200


async def test_a_body_that_does_not_come_keeps_no_place(monkeypatch: pytest.MonkeyPatch, queue: EmbeddedQueue) -> None:
    monkeypatch.setattr("consumer.webhook._READ_S", 0.05)

    async def half() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.sleep(60)

    async with served(queue) as client, client.post("/events", data=half()) as answer:
        assert (answer.status, answer.headers["Content-Length"]) == (408, "0")


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Bearer right", 200),
        ("Bearer wrong", 401),
        ("right", 401),
        ("bearer right", 401),
        (None, 401),
        ("Bearer é", 401),
    ],
)
async def test_the_token_is_asked_for(queue: EmbeddedQueue, header: str | None, status: int) -> None:
    headers = {} if header is None else {"Authorization": header}
    async with (
        served(queue, token="right") as client,  # noqa: S106  # of this test
        client.post("/events", data=b"x", headers=headers) as answer,
    ):
        assert answer.status == status


async def test_only_posts_are_taken(queue: EmbeddedQueue) -> None:
    async with served(queue) as client, client.get("/events") as answer:
        assert answer.status == 405


async def test_health() -> None:
    status = Status()

    async def ask(client: aiohttp.ClientSession, path: str) -> tuple[int, object]:
        async with client.get(path) as answer:
            return answer.status, await answer.json()

    async with (
        serve_http(health_routes(status), host="127.0.0.1", port=0) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client,
    ):
        assert await ask(client, "/healthz") == (200, {"alive": True})
        assert await ask(client, "/readyz") == (503, {"ready": False, "reasons": ["no events are taken"]})
        status.consuming = True
        assert await ask(client, "/readyz") == (200, {"ready": True, "reasons": []})
        status.troubles["blobmap.objects"] = "was not there"
        assert await ask(client, "/readyz") == (503, {"ready": False, "reasons": ["blobmap.objects: was not there"]})
        assert await ask(client, "/healthz") == (200, {"alive": True})


async def test_a_port_that_is_taken_is_named() -> None:
    async with serve_http([], host="127.0.0.1", port=0) as port:
        with pytest.raises(RefusedError, match=rf"http: cannot listen on 127\.0\.0\.1:{port}: .*in use"):
            async with serve_http([], host="127.0.0.1", port=port):
                pass
