from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from tests.support.notifications import TEST_EVENT, created, message, removed, versitygw_record
from tests.support.pipelines import PLAN, Daemon, HeldSink
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    return Daemon(tmp_path / "queue.sqlite")


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
