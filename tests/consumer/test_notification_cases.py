"""Faults that people met with notifications, each by its id, from the bytes of a message to what comes out.

`test_events` and `test_event_fields` have the same ids where reading alone decides; here is what a mover gets.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.notifications import created, message, record, removed, versitygw_record
from tests.support.pipelines import PLAN, Daemon

if TYPE_CHECKING:
    from pathlib import Path

    from consumer.events import Dialect


class Site(Daemon):
    """A pipeline, and what came out of it."""

    def speak(self, dialect: Dialect) -> None:
        self.plan = replace(PLAN, dialect=dialect)

    async def told(self) -> list[tuple[str, str]]:
        """Key and blob of every record, in order."""
        return [(one["key"], one["blob_id"]) for one in await self.records("objects.one")]

    async def journal(self) -> list[dict[str, Any]]:
        async with self.opened() as queue:
            return [group for body in await queue.journal() for group in json.loads(body)["told"]]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "queue.sqlite")


def keyed(dialect: Dialect, key: str, **more: Any) -> dict[str, Any]:
    """A record whose key is written as given, encoded or not."""
    built = record(dialect, "b", "x", **more)
    built["s3"]["object"]["key"] = key
    return built


async def test_n01_form_encoded_keys_reach_the_right_blob(site: Site) -> None:
    site.speak("aws")
    await site.handle(
        message(
            keyed("aws", "s.zarr/t/c/10/this+im+%2B+age"),
            keyed("aws", "s.zarr%2Ft%2Fc%2F10%2F0"),
            keyed("aws", "s.zarr/t/c/2%30/0"),
        )
    )
    assert await site.told() == [("s.zarr/t/c/10/0", "b_t_1"), ("s.zarr/t/c/20/0", "b_t_2")]
    (flag,) = await site.read("flags")
    assert json.loads(flag.body)["first_object"] == "s.zarr/t/c/10/this im + age"


async def test_n02_one_object_is_the_same_whoever_announces_it(site: Site) -> None:
    """Etag and place being the same, the record is the same but for the time."""
    dialects: tuple[Dialect, ...] = ("minio", "aws", "ceph", "versitygw")
    for dialect in dialects:
        site.speak(dialect)
        site.stop.clear()
        outer = {"EventName": "s3:ObjectCreated:Put", "Key": "b/elsewhere"} if dialect == "minio" else {}
        body = {**outer, "Records": [record(dialect, "b", "s.zarr/t/c/0/1")]}
        await site.handle(json.dumps(body).encode())
    records = await site.records("objects.one")
    assert len(records) == 4
    assert len({json.dumps({**one, "event_time": None}, sort_keys=True) for one in records}) == 1
    assert records[0]["blob_id"] == "b_t_0"


async def test_n04_every_spelling_of_created_gives_the_same_blob(site: Site) -> None:
    names = [
        "ObjectCreated:Put",
        "s3:ObjectCreated:Put",
        "ObjectCreated:CompleteMultipartUpload",
        "s3:ObjectCreated:Copy",
    ]
    await site.handle(
        message(*(versitygw_record("b", "s.zarr/t/c/25/0", event=name) for name in (*names, "s3:Future:Thing")))
    )
    assert await site.told() == [("s.zarr/t/c/25/0", "b_t_2")] * 4
    assert site.status.counts["ignored no-news"] == 1


async def test_n12_what_happens_to_versions_archives_nothing(site: Site) -> None:
    site.speak("aws")
    marker = keyed("aws", "s.zarr/t/c/0/0", event="ObjectRemoved:DeleteMarkerCreated")
    marker["s3"]["object"] = {"key": "s.zarr/t/c/0/0", "versionId": "vM"}
    old = keyed("aws", "s.zarr/t/c/0/0", event="ObjectRemoved:Delete")
    old["s3"]["object"] = {"key": "s.zarr/t/c/0/0", "versionId": "v1"}
    null = keyed("aws", "s.zarr/t/c/0/0")
    null["s3"]["object"]["versionId"] = "null"
    await site.handle(message(marker, old, null))
    records = await site.records("objects.one")
    assert [(one["event"], one["confirmed"], one["version_id"], one["etag"], one["size"]) for one in records] == [
        ("removed", False, "vM", None, None),
        ("removed", False, "v1", None, None),
        ("created", True, "null", "e1", 3),
    ]
    assert len({one["id"] for one in records}) == 3
    assert await site.read("flags") == []


async def test_n14_a_removal_of_what_never_was_flags_nothing_and_a_lost_key_is_for_a_listing(site: Site) -> None:
    """The case lets an empty key be a dead letter too; here it is counted, and a listing has to tell what changed."""
    await site.handle(
        removed("b", "never/existed.zarr/zarr.json"),
        removed("b", "never/existed.zarr/t/c/0"),
        removed("b", ""),
        created("b", "s.zarr//t/c/0"),
        created("b", "s.zarr/x/../t/c/0"),
    )
    assert [await site.read(queue) for queue in ("flags", "dead", "objects.one")] == [[], [], []]
    assert site.status.relist == {"b": 3}
    assert {name: count for name, count in site.status.counts.items() if name.startswith("relist")} == {
        "relist empty-key": 1,
        "relist odd-key": 2,
    }


async def test_n16_a_wrapped_message_is_a_dead_letter_that_names_the_wrapper(site: Site) -> None:
    """The case lets it be unwrapped as well; that is left to the sender's switch, so that nothing is guessed."""
    inner = json.dumps({"Records": [record("aws", "b", "s.zarr/t/c/0")]})
    await site.handle(
        json.dumps({"Type": "Notification", "Subject": "Amazon S3 Notification", "Message": inner}).encode(),
        json.dumps({"detail-type": "Object Created", "source": "aws.s3", "detail": {}}).encode(),
    )
    letters = await site.read("dead")
    assert [letter.headers["code"] for letter in letters] == ["wrapped", "wrapped"]
    assert "SNS" in letters[0].headers["reason"]
    assert "EventBridge" in letters[1].headers["reason"]
    assert await site.told() == []


async def test_one_message_good_records_come_out_and_each_bad_one_is_a_letter(site: Site) -> None:
    """Then the message is acknowledged, and the letters can be handled alone once the fault is mended."""
    site.speak("minio")
    bad = [keyed("minio", key) for key in ("s.zarr/t/c/100%", "s.zarr/t/c/%zz")]
    good = [record("minio", "b", f"s.zarr/t/c/{number}") for number in range(3)]
    await site.handle(message(good[0], bad[0], good[1], bad[1], good[2]))
    assert await site.told() == [(f"s.zarr/t/c/{number}", "b_t_0") for number in range(3)]
    letters = await site.read("dead")
    assert [json.loads(letter.body) for letter in letters] == [{"Records": [one]} for one in bad]
    site.speak("versitygw")
    site.stop.clear()
    await site.handle(*(letter.body for letter in letters))
    assert len(await site.read("dead")) == 2
    assert site.status.counts["unclaimed"] == 2


async def test_writes_of_an_ignored_account_are_in_the_journal_and_nowhere_else(site: Site) -> None:
    await site.handle(
        created("b", "s.zarr/t/c/0", principal="svc-tape", etag="e"),
        created("b", "new.zarr/t/c/0", principal="svc-tape"),
        created("b", "s.zarr/lat/c/0", principal="svc-tape"),
    )
    assert [await site.read(queue) for queue in ("objects.one", "objects.two", "flags", "dead")] == [[], [], [], []]
    (group,) = await site.journal()
    assert (group["bucket"], group["scope"], group["movers"]) == ("b", "s.zarr", [])
    assert [entry[:5] for entry in group["entries"]] == [["s.zarr/t/c/0", "ignored", True, "b_t_0", "e"]]
    assert site.status.counts["ignored own-principal"] == 2


async def test_a_torn_key_is_counted_whatever_becomes_of_it(site: Site) -> None:
    torn = [
        created("b", "torn", arn=f"arn:aws:s3:::/b/{key}")
        for key in ("s.zarr/t/c/0", "s.zarr/zarr.json", "new.zarr/t/0")
    ]
    await site.handle(*torn, created("b", "s.zarr/t/c/1"))
    assert site.status.counts["corrected"] == 3
