"""`blobmap-consumer run` as it is shipped: a process beside a real broker."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.amqp import bench
from tests.support.notifications import created
from tests.support.site import Site, collected, records
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.amqp import Got

pytestmark = pytest.mark.services


@pytest.fixture
def site(tmp_path: Path, amqp_url: str) -> Site:
    built = Site(tmp_path, amqp_url)
    built.write_manifest("s.zarr")
    return built


async def test_events_become_records_and_one_flag(site: Site) -> None:
    async with site.run() as process, bench(site.url) as at:
        await process.until_logged("consuming")
        await site.publish(
            *(created("b", f"s.zarr/t/c/{number}/0") for number in range(20)),
            created("b", "s.zarr/zarr.json"),
            created("b", "s.zarr/lat/c/0"),
            *(created("b", f"new.zarr/t/c/{number}/0") for number in range(5)),
        )
        await site.publish(created("b", "s.zarr/t/c/20/0"))  # when it is told, all before it are taken
        told = await collected(at, 21)
        assert {(record["key"], record["blob_id"]) for record in told} == {
            (f"s.zarr/t/c/{number}/0", f"b_t_{number // 10}") for number in range(21)
        }
        assert await process.stop() == 0
        assert await records(at) == []
        (flag,) = await at.drain("blobmap.flags")
        assert json.loads(flag.body)["prefix"] == "new.zarr"
        assert await at.ready("blobmap.events") == 0
    assert process.out == ""


async def test_each_mover_gets_the_records_of_its_buckets(site: Site) -> None:
    site.more = "".join(f'[[mover]]\nname = "{name}"\nbuckets = ["b"]\n' for name in ("tape-a", "tape-b"))
    async with site.run() as process, bench(site.url) as at:
        await process.until_logged("consuming")
        await site.publish(created("b", "s.zarr/t/c/0"))
        shares = [await collected(at, 1, f"blobmap.objects.{name}") for name in ("tape-a", "tape-b")]
        assert shares[0] == shares[1]
        assert await process.stop() == 0


async def test_records_can_go_to_standard_output(site: Site) -> None:
    site.more = '[sink]\nkind = "ndjson"\n'
    await site.publish(created("b", "s.zarr/t/c/0"))
    async with site.run() as process, bench(site.url) as at:

        async def written() -> str:
            return process.out

        assert json.loads(await eventually(written, what="a record"))["key"] == "s.zarr/t/c/0"
        assert await process.stop() == 0
        assert await at.ready("blobmap.events") == 0


async def test_an_unreadable_message_is_set_aside_and_the_next_one_handled(site: Site) -> None:
    async with site.run() as process, bench(site.url) as at:
        await process.until_logged("consuming")
        await at.publish([b"\xff no JSON", created("b", "s.zarr/t/c/0")], exchange="s3.events", routing_key="rk")
        await collected(at, 1)

        async def dead() -> list[Got]:
            return await at.drain("blobmap.dead")

        (letter,) = await eventually(dead, what="a dead letter")
        assert letter.body == b"\xff no JSON"
        assert str(letter.headers["reason"]).startswith("not JSON: ")
        assert (letter.headers["exchange"], letter.headers["routing_key"]) == ("s3.events", "rk")

        async def alerted() -> list[Got]:
            return await at.drain("blobmap.alerts")

        (alert,) = await eventually(alerted, what="an alert")
        assert json.loads(alert.body)["key"] == f"dead-letter:blobmap.dead/{letter.headers['code']}"
        assert await process.stop() == 0


async def test_r16_a_stop_in_the_middle_loses_nothing(site: Site) -> None:
    """Distinct ids that came out, and messages that are still queued, are the messages that went in."""
    site.source = "prefetch = 4"
    site.more = "[sink]\nbatch_objects = 1\n"
    await site.publish(*(created("b", f"s.zarr/t/c/{number}/0") for number in range(3000)))
    async with site.run() as process, bench(site.url) as at:
        await process.until_logged("consuming")

        async def begun() -> int:
            return await at.ready("blobmap.objects")

        await eventually(begun, what="the first record")
        process.send(signal.SIGTERM)
        process.send(signal.SIGTERM)
        assert await process.end() == 0
        told = await records(at)

        async def given_back() -> bool:
            return len(told) + await at.ready("blobmap.events") == 3000

        await eventually(given_back, what="told and queued are 3000")
    assert 0 < len(told) < 3000, "the stop did not come in the middle"
    assert len({record["id"] for record in told}) == len(told)
    assert "Traceback" not in process.err


async def test_r10_a_missing_mover_queue_is_declared_again_and_nothing_is_lost(site: Site) -> None:
    async with site.run() as process, bench(site.url) as at:
        await process.until_logged("consuming")
        await at.channel.queue_delete("blobmap.objects")
        await site.publish(*(created("b", f"s.zarr/t/c/{number}") for number in range(10)))
        assert len({record["id"] for record in await collected(at, 10)}) == 10
        process.send(signal.SIGINT)
        assert await process.end() == 0
        assert await at.ready("blobmap.events") == 0
    assert [line["works"] for line in process.logged("output")] in ([], [False, True])


async def test_while_it_waits_for_a_broker_it_can_be_stopped(site: Site) -> None:
    site.url = "amqp://ops:secret-word@127.0.0.1:1/"
    async with site.run() as process:
        waiting = await process.until_logged("waiting")
        assert "secret-word" not in str(waiting)
        assert await process.stop() == 0


async def test_the_wait_for_a_broker_has_an_end(site: Site) -> None:
    site.url, site.amqp = "amqp://ops:secret-word@127.0.0.1:1/", "give_up_s = 1"
    async with site.run() as process:
        assert await process.end() == 3
    (line,) = [line for line in process.err.splitlines() if not line.startswith("{")]
    assert line.startswith("blobmap-consumer: cannot reach the broker, tried for 1 s: ops@127.0.0.1:1, vhost '/': ")
    assert "secret-word" not in process.err


async def test_the_wait_for_manifests_has_an_end(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    site.more = (
        '[[bucket]]\nname = "far"\nmanifests = "s3://m/far"\n'
        '[s3]\nendpoint = "http://127.0.0.1:1"\nregion = "us-east-1"\nallow_http = true\n[manifests]\ngive_up_s = 1\n'
    )
    async with site.run() as process:
        assert await process.end() == 3
    (line,) = [line for line in process.err.splitlines() if not line.startswith("{")]
    assert line.startswith("blobmap-consumer: cannot read the manifests of bucket 'far' at s3://m/far, tried for 1 s: ")


async def test_manifests_are_read_again_on_sighup(site: Site) -> None:
    async with site.run() as process, bench(site.url) as at:
        await process.until_logged("consuming")
        site.write_manifest("late.zarr")
        process.send(signal.SIGHUP)
        await process.until_logged("manifest")
        await site.publish(created("b", "late.zarr/t/c/0"))
        (record,) = await collected(at, 1)
        assert record["scope"] == "late.zarr"
        assert await process.stop() == 0


async def test_manifests_that_cannot_be_compared_leave_the_old_ones(site: Site) -> None:
    async with site.run() as process, bench(site.url) as at:
        await process.until_logged("consuming")
        (site.directory / "manifests").rename(site.directory / "away")
        process.send(signal.SIGHUP)
        await process.until_logged("manifests not compared")
        await site.publish(created("b", "s.zarr/t/c/0"))
        assert len(await collected(at, 1)) == 1
        assert await process.stop() == 0
