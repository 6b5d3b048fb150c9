from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from blobmap.errors import UnavailableError
from consumer import retry
from consumer.ports import LostError
from tests.support.notifications import created
from tests.support.pipelines import Daemon, FaultySink, HeldSink
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from consumer.records import Message

KEY = "dead-letter:events/delivered-often"


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    return Daemon(tmp_path / "queue.sqlite")


@asynccontextmanager
async def held(daemon: Daemon, *, deliveries: int) -> AsyncIterator[HeldSink]:
    """Runs over ten events that were delivered so often, whose outputs are held back until the test is done."""
    async with daemon.opened() as queue:
        await asyncio.gather(*(queue.put(created("b", f"s.zarr/t/c/{number}")) for number in range(10)))
        await queue._run(lambda: queue._database.execute("UPDATE events SET deliveries = ?", (deliveries - 1,)))
        await queue._run(queue._database.commit)
    daemon.objects = sink = HeldSink(daemon)
    async with daemon.running():

        async def taken() -> bool:
            return bool(sink.tried)

        await eventually(taken, what="the events are being handled")
        yield sink
        sink.free.set()
        await eventually(daemon.nothing_left, what="every message is acknowledged")


async def alerts(daemon: Daemon) -> list[Message]:
    assert daemon.queue is not None
    return await daemon.queue.messages("alerts")


async def test_what_comes_often_is_alerted_once_and_resolved_when_it_is_done(daemon: Daemon) -> None:
    daemon.others = sent = FaultySink(daemon)
    async with held(daemon, deliveries=20):

        async def raised() -> bool:
            return KEY in daemon.status.alerts

        await eventually(raised, what="it is alerted")
        (alert,) = await alerts(daemon)
        body = json.loads(alert.body)
        assert (body["key"], body["kind"], body["severity"], body["resolved"]) == (KEY, "dead-letter", "warning", False)
        assert body["details"] == {"queue": "events", "deliveries": 20, "limit": 200}
        assert body["summary"] == daemon.status.alerts[KEY]
    assert [json.loads(message.body)["resolved"] for message in sent.tried] == [False, True]
    assert not daemon.status.alerts
    assert daemon.status.counts["delivered often"] == 10


async def test_a_few_restarts_alert_nobody(daemon: Daemon) -> None:
    async with held(daemon, deliveries=19):
        pass
    assert await daemon.read("alerts") == []
    assert "delivered often" not in daemon.status.counts


async def test_an_alert_that_cannot_be_published_is_tried_again_and_holds_up_nothing(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "_FIRST_S", 0.001)
    daemon.others = sent = FaultySink(daemon, *(UnavailableError("queue 'alerts' refused the message"),) * 3)
    async with held(daemon, deliveries=30):

        async def raised() -> bool:
            return KEY in daemon.status.alerts

        await eventually(raised, what="it is alerted in the end")
    assert [json.loads(message.body)["resolved"] for message in sent.tried] == [False] * 4 + [True]


async def test_a_queue_of_alerts_that_takes_nothing_does_not_hold_up_the_end(daemon: Daemon) -> None:
    daemon.others = sent = FaultySink(daemon, *(UnavailableError("queue 'alerts' refused the message"),) * 1000)
    async with held(daemon, deliveries=20):

        async def tried() -> bool:
            return bool(sent.tried)

        await eventually(tried, what="it is tried")
    assert not daemon.status.alerts


async def test_an_alert_that_another_session_raised_is_not_raised_again(daemon: Daemon) -> None:
    daemon.status.alerts[KEY] = "as before"
    daemon.others = sent = FaultySink(daemon)
    async with held(daemon, deliveries=40):
        pass
    bodies: list[Any] = [json.loads(message.body) for message in sent.tried]
    assert [body["resolved"] for body in bodies] == [True]


async def test_a_session_that_is_lost_meanwhile_ends_as_such(daemon: Daemon) -> None:
    """The alert adds nothing to that, and is raised in the next one."""
    daemon.others = FaultySink(daemon, LostError("gone"))
    async with held(daemon, deliveries=20):
        pass
    assert not daemon.status.alerts
