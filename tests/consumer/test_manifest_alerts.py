from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from consumer.embedded import EmbeddedQueue
from consumer.manifest_alerts import ManifestAlerts
from consumer.ports import LostError, Status
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from consumer.records import Message

QUEUE = "blobmap.alerts"
KEY = "manifest-invalid:b/s.zarr"


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[EmbeddedQueue]:
    opened = await EmbeddedQueue.open(tmp_path / "queue.sqlite", prefetch=1)
    yield opened
    await opened.close()


class LostSink:
    """A session that ends with the first message."""

    def __init__(self) -> None:
        self.tried = asyncio.Event()

    async def publish(self, message: Message) -> None:
        self.tried.set()
        raise LostError(f"gone before {message.queue} had it")


async def published(file: EmbeddedQueue, count: int) -> list[dict[str, Any]]:
    async def enough() -> list[Message]:
        found = await file.messages(QUEUE)
        return found if len(found) >= count else []

    return [json.loads(message.body) for message in await eventually(enough, what=f"{count} alerts")]


async def test_what_was_said_without_a_session_waits_for_one(file: EmbeddedQueue) -> None:
    status = Status()
    alerts = ManifestAlerts(QUEUE, status)
    alerts.tell("b", "s.zarr", "it is broken")
    alerts.tell("b", "", "it is broken too")
    assert status.alerts == {KEY: "it is broken", "manifest-invalid:b/": "it is broken too"}
    async with alerts.published(file):
        found = await published(file, 2)
    assert [(one["key"], one["kind"], one["resolved"], one["summary"]) for one in found] == [
        (KEY, "manifest-invalid", False, "it is broken"),
        ("manifest-invalid:b/", "manifest-invalid", False, "it is broken too"),
    ]


async def test_only_the_latest_word_about_a_manifest_waits(file: EmbeddedQueue) -> None:
    status = Status()
    alerts = ManifestAlerts(QUEUE, status)
    for reason in ("it is broken", None, "it is broken again", None):
        alerts.tell("b", "s.zarr", reason)
    assert len(alerts._waiting) == 1
    async with alerts.published(file):
        (alert,) = await published(file, 1)
    assert (alert["key"], alert["resolved"]) == (KEY, True)
    assert status.alerts == {}


async def test_what_a_lost_session_did_not_confirm_the_next_one_gets(file: EmbeddedQueue) -> None:
    alerts = ManifestAlerts(QUEUE, Status())
    alerts.tell("b", "s.zarr", "it is broken")
    lost = LostSink()
    async with alerts.published(lost), asyncio.timeout(10):
        await lost.tried.wait()
    async with alerts.published(file):
        (alert,) = await published(file, 1)
        assert alert["key"] == KEY


async def test_what_is_said_during_a_session_is_published_at_once(file: EmbeddedQueue) -> None:
    alerts = ManifestAlerts(QUEUE, Status())
    async with alerts.published(file):
        alerts.tell("b", "s.zarr", "it is broken")
        assert [alert["resolved"] for alert in await published(file, 1)] == [False]
        alerts.tell("b", "other.zarr", "it is broken")
        await published(file, 2)
