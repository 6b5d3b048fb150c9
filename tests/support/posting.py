"""Posting events to a running daemon, as a gateway does it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp

if TYPE_CHECKING:
    from tests.support.consumer_process import ConsumerProcess


async def url_of(process: ConsumerProcess) -> str:
    """Where it listens, as soon as it does."""
    return f"http://127.0.0.1:{(await process.until_logged('listening'))['port']}"


async def post(url: str, *bodies: bytes, token: str = "") -> set[int]:
    """Posts bodies at once; the statuses of the answers."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession(url, headers=headers) as gateway:

        async def one(body: bytes) -> int:
            async with gateway.post("/events", data=body) as answer:
                return answer.status

        return set(await asyncio.gather(*map(one, bodies)))
