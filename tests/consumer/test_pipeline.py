from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from blobmap.errors import RefusedError, UnavailableError
from consumer import retry
from consumer.embedded import EmbeddedQueue
from consumer.flags import FlagBook
from consumer.pipeline import Pipeline, Plan
from consumer.ports import LostError, Status
from consumer.route import Rules
from tests.support.manifests import manifest, trie
from tests.support.notifications import TEST_EVENT, created, message, removed, versitygw_record
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from consumer.ports import Sink
    from consumer.records import Message

PLAN = Plan(
    dialect="versitygw",
    rules=Rules(own_principals=frozenset({"svc-tape"})),
    queues={"b": ("objects.one", "objects.two"), "c": ("objects.one",)},
    dead="dead",
    batch_objects=10,
    batch_s=0.02,
)
TRIES = {"b": trie(manifest("s.zarr", epoch=4)), "c": trie()}


class Daemon:
    """A pipeline over a real queue in a file; a test can put a sink of its own before the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.plan = PLAN
        self.prefetch = 100
        self.status = Status()
        self.flags = FlagBook("flags", reflag_s=3600)
        self.stop = asyncio.Event()
        self.objects: Sink | None = None
        self.others: Sink | None = None
        self.queue: EmbeddedQueue | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[EmbeddedQueue]:
        self.queue = await EmbeddedQueue.open(self.path, prefetch=self.prefetch)
        try:
            yield self.queue
        finally:
            await self.queue.close()

    def pipeline(self, queue: EmbeddedQueue) -> Pipeline:
        return Pipeline(
            self.plan,
            source=queue,
            objects=self.objects or queue,
            others=self.others or queue,
            tries=TRIES,
            flags=self.flags,
            status=self.status,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[EmbeddedQueue]:
        """Runs until the test is done with it, then stops it in order."""
        async with self.opened() as queue, asyncio.timeout(30):
            run = asyncio.ensure_future(self.pipeline(queue).run(self.stop))
            try:
                yield queue
                self.stop.set()
                await run
            finally:
                run.cancel()
                await asyncio.gather(run, return_exceptions=True)

    async def handle(self, *bodies: bytes) -> None:
        """Handles messages and stops when all of them are acknowledged."""
        async with self.running() as queue:
            await asyncio.gather(*map(queue.put, bodies))
            await eventually(self.nothing_left, what="every message is acknowledged")

    async def nothing_left(self) -> bool:
        return await self.left() == 0

    async def left(self) -> int:
        assert self.queue is not None
        ((count,),) = await self.queue._run(lambda: list(self.queue._database.execute("SELECT count(*) FROM events")))  # type: ignore[union-attr]  # set above
        return int(count)

    async def read(self, name: str) -> list[Message]:
        async with self.opened() as queue:
            return await queue.messages(name)

    async def records(self, name: str) -> list[dict[str, Any]]:
        return [record for m in await self.read(name) for record in json.loads(m.body)["records"]]


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    return Daemon(tmp_path / "queue.sqlite")


class FaultySink:
    """A sink that fails some times before it hands on to a real one."""

    def __init__(self, daemon: Daemon, *errors: Exception) -> None:
        self._daemon = daemon
        self._errors = list(errors)
        self.tried: list[Message] = []

    async def publish(self, message: Message) -> None:
        self.tried.append(message)
        if self._errors:
            raise self._errors.pop(0)
        assert self._daemon.queue is not None
        await self._daemon.queue.publish(message)


class HeldSink(FaultySink):
    """A sink that confirms nothing until it is told to."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon)
        self.free = asyncio.Event()

    async def publish(self, message: Message) -> None:
        self.tried.append(message)
        await self.free.wait()
        assert self._daemon.queue is not None
        await self._daemon.queue.publish(message)


# --- what comes out


async def test_a_claimed_object_is_told_to_every_mover_of_its_bucket(daemon: Daemon) -> None:
    await daemon.handle(created("b", "s.zarr/t/c/25/0", etag="e", size=7))
    (one,) = await daemon.records("objects.one")
    assert await daemon.records("objects.two") == [one]
    assert one | {"id": ""} == {
        "id": "",
        "bucket": "b",
        "scope": "s.zarr",
        "blob_id": "b_t_2",
        "key": "s.zarr/t/c/25/0",
        "epoch": 4,
        "event": "created",
        "confirmed": True,
        "size": 7,
        "etag": "e",
        "version_id": None,
        "event_time": "2026-11-30T19:15:03Z",
        "source": "event",
    }
    assert daemon.status.counts == {"events": 1, "emitted": 1}


async def test_a_removal_is_told_as_a_hint_and_flags_nothing(daemon: Daemon) -> None:
    await daemon.handle(removed("b", "s.zarr/t/c/25/0"), removed("b", "never.zarr/t/c/0"))
    (record,) = await daemon.records("objects.one")
    assert (record["event"], record["confirmed"], record["etag"], record["size"]) == ("removed", False, None, None)
    assert await daemon.read("flags") == []


async def test_n05_a_test_event_between_two_events_is_acknowledged(daemon: Daemon) -> None:
    await daemon.handle(created("b", "s.zarr/t/c/0"), TEST_EVENT, created("b", "s.zarr/t/c/1"))
    assert {record["key"] for record in await daemon.records("objects.one")} == {"s.zarr/t/c/0", "s.zarr/t/c/1"}
    assert daemon.status.counts == {"events": 3, "emitted": 2, "ignored test-event": 1}


async def test_n07_one_message_with_seven_records(daemon: Daemon) -> None:
    keys = ["s.zarr/t/c/0", "s.zarr/t/c/1", "s.zarr/zarr.json", "s.zarr/t/c/2", "new.zarr/t/c/0", "s.zarr/t/c/10"]
    keys.append("s.zarr/t/c/11")
    await daemon.handle(message(*(versitygw_record("b", key) for key in keys)))
    assert [record["key"] for record in await daemon.records("objects.one")] == [
        "s.zarr/t/c/0",
        "s.zarr/t/c/1",
        "s.zarr/t/c/2",
        "s.zarr/t/c/10",
        "s.zarr/t/c/11",
    ]
    assert daemon.status.counts == {"events": 7, "emitted": 5, "ignored metadata": 1, "unclaimed": 1, "flags": 1}


async def test_n10_repeats_have_the_same_id_and_an_overwrite_another(daemon: Daemon) -> None:
    body = created("b", "s.zarr/t/c/0", etag="one")
    await daemon.handle(body, body, body, created("b", "s.zarr/t/c/0", etag="two"))
    ids = [record["id"] for record in await daemon.records("objects.one")]
    assert len(ids) == 4
    assert len(set(ids)) == 2


async def test_n10_a_new_store_is_flagged_once(daemon: Daemon) -> None:
    await daemon.handle(*(created("b", f"new.zarr/t/c/{number // 2}") for number in range(50)))
    (flag,) = await daemon.read("flags")
    assert json.loads(flag.body)["prefix"] == "new.zarr"
    assert await daemon.records("objects.one") == []


async def test_nothing_is_told_of_what_is_ignored(daemon: Daemon) -> None:
    await daemon.handle(
        created("b", "s.zarr/zarr.json"),
        created("b", "s.zarr/lat/c/0"),
        created("b", "s.zarr/kept/c/0"),
        created("b", "s.zarr/t/c/0", principal="svc-tape"),
        created("other", "s.zarr/t/c/0"),
        created("b", ""),
    )
    assert [await daemon.read(queue) for queue in ("objects.one", "flags", "dead")] == [[], [], []]
    assert daemon.status.counts["events"] == 6
    assert daemon.status.counts["emitted"] == 0


async def test_a_corrected_key_is_counted(daemon: Daemon) -> None:
    await daemon.handle(created("b", "torn", arn="arn:aws:s3:::/b/s.zarr/t/c/0"))
    assert [record["key"] for record in await daemon.records("objects.one")] == ["s.zarr/t/c/0"]
    assert daemon.status.counts["corrected"] == 1


# --- dead letters


async def test_an_unreadable_message_is_set_aside_and_the_next_one_handled(daemon: Daemon) -> None:
    with capture_logs() as logs:
        await daemon.handle(b"\xff not JSON", created("b", "s.zarr/t/c/0"))
    (letter,) = await daemon.read("dead")
    assert letter.body == b"\xff not JSON"
    assert letter.headers["code"] == "unreadable"
    assert letter.headers["reason"].startswith("not JSON")
    assert letter.headers["deliveries"] == "1"
    assert letter.headers["first_seen"].endswith("Z")
    assert len(await daemon.records("objects.one")) == 1
    assert [line["code"] for line in logs if line["event"] == "refused"] == ["unreadable"]


async def test_each_bad_record_is_set_aside_alone(daemon: Daemon) -> None:
    bad = [{"eventName": "ObjectCreated:Put", "s3": {"number": number}} for number in range(2)]
    await daemon.handle(message(bad[0], versitygw_record("b", "s.zarr/t/c/0"), bad[1]))
    letters = await daemon.read("dead")
    assert [json.loads(letter.body) for letter in letters] == [{"Records": [record]} for record in bad]
    assert len(await daemon.records("objects.one")) == 1


async def test_n16_a_wrapped_message_is_set_aside_by_name(daemon: Daemon) -> None:
    await daemon.handle(json.dumps({"Type": "Notification", "Message": "{}"}).encode())
    (letter,) = await daemon.read("dead")
    assert "SNS" in letter.headers["reason"]


# --- batches


async def test_records_are_collected_up_to_the_batch_size(daemon: Daemon) -> None:
    daemon.plan = replace(PLAN, batch_s=60)
    await daemon.handle(*(created("b", f"s.zarr/t/c/{number}") for number in range(30)))
    assert [len(json.loads(m.body)["records"]) for m in await daemon.read("objects.one")] == [10, 10, 10]


async def test_a_record_waits_for_others_only_so_long(daemon: Daemon) -> None:
    await daemon.handle(created("b", "s.zarr/t/c/0"))
    assert len(await daemon.read("objects.one")) == 1


async def test_a_prefetch_smaller_than_the_batch_does_not_stall(daemon: Daemon) -> None:
    daemon.plan = replace(PLAN, batch_s=60)
    daemon.prefetch = 3
    await daemon.handle(*(created("b", f"s.zarr/t/c/{number}") for number in range(9)))
    assert len(await daemon.records("objects.one")) == 9


async def test_several_batches_are_in_flight(daemon: Daemon) -> None:
    daemon.objects = sink = HeldSink(daemon)
    async with daemon.running() as queue:
        await asyncio.gather(*(queue.put(created("b", f"s.zarr/t/c/{number}")) for number in range(40)))

        async def in_flight() -> bool:
            return len(sink.tried) == 8  # four batches for each of two movers

        await eventually(in_flight, what="all batches are being published")
        assert await daemon.left() == 40
        sink.free.set()
        await eventually(daemon.nothing_left, what="every message is acknowledged")


# --- the order of safety


async def test_nothing_is_acknowledged_before_its_outputs_are_confirmed(daemon: Daemon) -> None:
    daemon.others = sink = HeldSink(daemon)
    async with daemon.running() as queue:
        await queue.put(created("b", "s.zarr/t/c/0"))
        await eventually(daemon.nothing_left, what="the claimed one is done")
        await queue.put(created("b", "new.zarr/t/c/0"))
        await queue.put(created("b", "new.zarr/t/c/1"))
        await queue.put(created("b", "s.zarr/t/c/1"))

        async def told() -> bool:
            return daemon.status.counts["emitted"] == 2 and len(sink.tried) == 1

        await eventually(told, what="the flag is being published")
        assert await daemon.left() == 3
        sink.free.set()
        await eventually(daemon.nothing_left, what="every message is acknowledged")
    assert len(await daemon.read("flags")) == 1


async def test_after_a_crash_what_was_not_acknowledged_comes_out(daemon: Daemon) -> None:
    """Whatever was confirmed before is told again, with the same id."""
    daemon.objects = sink = HeldSink(daemon)
    async with daemon.opened() as queue:
        await asyncio.gather(*(queue.put(created("b", f"s.zarr/t/c/{number}")) for number in range(20)))
        run = asyncio.ensure_future(daemon.pipeline(queue).run(daemon.stop))

        async def tried() -> bool:
            return bool(sink.tried)

        await eventually(tried, what="a batch is being published")
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        assert await daemon.left() == 20
    assert daemon.status.consuming is False
    daemon.objects = None
    await daemon.handle()
    assert {record["key"] for record in await daemon.records("objects.one")} == {
        f"s.zarr/t/c/{number}" for number in range(20)
    }


async def test_r10_a_queue_that_takes_nothing_is_tried_again_and_named(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "_FIRST_S", 0.001)
    daemon.objects = sink = FaultySink(daemon, *(UnavailableError("queue 'objects.one' was not there"),) * 6)
    daemon.plan = replace(PLAN, queues={"b": ("objects.one",), "c": ()})
    with capture_logs() as logs:
        async with daemon.running() as queue:
            await queue.put(created("b", "s.zarr/t/c/0"))
            await eventually(daemon.nothing_left, what="it is acknowledged")
    assert len(sink.tried) == 7
    assert len(await daemon.records("objects.one")) == 1
    assert [(line["queue"], line["works"]) for line in logs if line["event"] == "output"] == [
        ("objects.one", False),
        ("objects.one", True),
    ]
    assert daemon.status.troubles == {}


async def test_while_a_queue_takes_nothing_the_status_names_it(daemon: Daemon) -> None:
    daemon.objects = FaultySink(daemon, UnavailableError("away"), UnavailableError("away"))
    async with daemon.running() as queue:
        await queue.put(created("c", "x"))  # nothing to do with it
        await queue.put(created("b", "s.zarr/t/c/0"))

        async def named() -> bool:
            return bool(daemon.status.troubles)

        await eventually(named, what="the status names the queue")
        assert set(daemon.status.troubles.values()) == {"away"}
        await eventually(daemon.nothing_left, what="it is acknowledged")


# --- the end


async def test_stopping_finishes_what_was_taken_and_leaves_the_rest(daemon: Daemon) -> None:
    daemon.prefetch = 30
    daemon.plan = replace(PLAN, queues={"b": ("objects.one",), "c": ()})
    daemon.objects = sink = HeldSink(daemon)
    async with daemon.opened() as queue, asyncio.timeout(30):
        await asyncio.gather(*(queue.put(created("b", f"s.zarr/t/c/{number}")) for number in range(100)))
        run = asyncio.ensure_future(daemon.pipeline(queue).run(daemon.stop))

        async def tried() -> bool:
            return len(sink.tried) == 3

        await eventually(tried, what="what may be taken is being published")
        daemon.stop.set()
        sink.free.set()
        await run
        assert daemon.status.consuming is False
        assert await daemon.left() == 70
    assert len(await daemon.records("objects.one")) == 30


async def test_stopping_publishes_a_batch_that_is_not_full(daemon: Daemon) -> None:
    daemon.plan = replace(PLAN, batch_s=3600)
    async with daemon.running() as queue:
        await queue.put(created("b", "s.zarr/t/c/0"))

        async def told() -> bool:
            return daemon.status.counts["emitted"] == 1

        await eventually(told, what="it is handled")
    assert len(await daemon.records("objects.one")) == 1


@pytest.mark.parametrize(
    ("error", "shown"), [(LostError("gone"), LostError), (RefusedError("no"), RefusedError), (KeyError("x"), KeyError)]
)
async def test_what_trying_again_cannot_help_ends_the_session(
    daemon: Daemon, error: Exception, shown: type[Exception]
) -> None:
    daemon.objects = FaultySink(daemon, error)
    async with daemon.opened() as queue, asyncio.timeout(30):
        await queue.put(created("b", "s.zarr/t/c/0"))
        with pytest.raises(shown) as caught:
            await daemon.pipeline(queue).run(daemon.stop)
        assert caught.value is error
        assert await daemon.left() == 1


async def test_of_several_errors_the_one_that_explains_is_shown(daemon: Daemon) -> None:
    daemon.objects = FaultySink(daemon, LostError("gone"), RefusedError("no"))
    async with daemon.opened() as queue, asyncio.timeout(30):
        await queue.put(created("b", "s.zarr/t/c/0"))
        with pytest.raises(RefusedError, match="no"):
            await daemon.pipeline(queue).run(daemon.stop)
