from __future__ import annotations

from datetime import UTC, datetime

import pytest

from consumer.events import GatewayTest, ObjectEvent
from tests.support.notifications import record, versitygw_record
from tests.support.parsing import one, parse, with_object

# --- event names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ObjectCreated:Put", "created"),
        ("s3:ObjectCreated:Put", "created"),
        ("S3:OBJECTCREATED:PUT", "created"),
        ("ObjectCreated:CompleteMultipartUpload", "created"),
        ("s3:ObjectCreated:Copy", "created"),
        ("s3:ObjectCreated:Post", "created"),
        ("s3:ObjectCreated:SomethingNew", "created"),
        ("s3:ObjectCreated:PutTagging", "other"),
        ("s3:ObjectCreated:DeleteTagging", "other"),
        ("s3:ObjectCreated:PutRetention", "other"),
        ("s3:ObjectCreated:PutLegalHold", "other"),
        ("s3:ObjectRemoved:Delete", "removed"),
        ("s3:ObjectRemoved:DeleteObjects", "removed"),
        ("ObjectRemoved:DeleteMarkerCreated", "removed"),
        ("s3:ObjectRemoved:DeleteAllVersions", "removed"),
        ("s3:ObjectRemoved:NoOP", "other"),
        ("LifecycleExpiration:Delete", "removed"),
        ("LifecycleExpiration:DeleteMarkerCreated", "removed"),
        ("ObjectLifecycle:Expiration:Current", "removed"),
        ("ObjectLifecycle:Expiration:Noncurrent", "removed"),
        ("ObjectLifecycle:Expiration:AbortMPU", "other"),
        ("ObjectLifecycle:Transition:Current", "other"),
        ("ObjectSynced:Create", "created"),
        ("ObjectSynced:Delete", "removed"),
        ("s3:ObjectTagging:Put", "other"),
        ("s3:ObjectAcl:Put", "other"),
        ("s3:ObjectRestore:Completed", "other"),
        ("s3:ObjectAccessed:Get", "other"),
        ("s3:BucketCreated:*", "other"),
        ("s3:Scanner:BigPrefix", "other"),
        ("Replication:OperationFailedReplication", "other"),
        ("ObjectCreatedNot:Put", "other"),
        ("ReducedRedundancyLostObject", "other"),
    ],
)
def test_n04_an_event_is_sorted_by_its_family(name: str, kind: str) -> None:
    assert one({"Records": [versitygw_record("b", "k", event=name)]}).kind == kind


@pytest.mark.parametrize("s3", [None, {}, {"bucket": None}, {"bucket": {"name": 7}}, "x"])
def test_no_news_may_have_any_shape(s3: object) -> None:
    assert one({"Records": [{"eventName": "s3:Scanner:BigPrefix", "s3": s3}]}) == ObjectEvent(
        bucket="", key="", kind="other", name="scanner:bigprefix"
    )


def test_n05_test_events_are_known_in_every_spelling() -> None:
    for document in (
        {"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b"},
        {"Service": "S3", "Event": "s3:TestEvent", "Bucket": "Test-Bucket"},
        {"event": "TestEvent"},
    ):
        assert parse(document) == (GatewayTest(),)


def test_n12_events_of_versioned_buckets() -> None:
    marker = record("aws", "b", "k", event="ObjectRemoved:DeleteMarkerCreated")
    marker["s3"]["object"] = {"key": "k", "versionId": "vM"}
    old = record("aws", "b", "k", event="ObjectRemoved:Delete")
    old["s3"]["object"] = {"key": "k", "versionId": "v1"}
    null = record("aws", "b", "k")
    null["s3"]["object"]["versionId"] = "null"
    events = [e for e in parse({"Records": [marker, old, null]}, "aws") if isinstance(e, ObjectEvent)]
    assert [(e.kind, e.version_id, e.size, e.etag) for e in events] == [
        ("removed", "vM", None, None),
        ("removed", "v1", None, None),
        ("created", "null", 3, "e1"),
    ]


# --- sizes, tags, times -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (12, 12),
        (0, 0),
        ("2048", 2048),
        ("0", 0),
        (None, None),
        (-1, None),
        ("-1", None),
        ("12a", None),
        ("", None),
        ("٣", None),
        ("9" * 20, None),
        (1.5, None),
        (True, None),
        ([], None),
    ],
)
def test_sizes(size: object, expected: int | None) -> None:
    assert one(with_object(size=size)).size == expected


def test_an_absent_size_is_unknown() -> None:
    document = with_object()
    del document["Records"][0]["s3"]["object"]["size"]
    assert one(document).size is None


@pytest.mark.parametrize("event", ["s3:ObjectCreated:Copy", "s3:ObjectCreated:CompleteMultipartUpload"])
def test_zero_of_a_copy_is_unknown_for_versitygw_only(event: str) -> None:
    assert one({"Records": [versitygw_record("b", "k", event=event, size=0)]}).size is None
    assert one({"Records": [versitygw_record("b", "k", event=event, size=5)]}).size == 5
    ceph = record("ceph", "b", "k", event=event)
    ceph["s3"]["object"]["size"] = 0
    assert one({"Records": [ceph]}, "ceph").size == 0


def test_a_removal_has_no_size() -> None:
    assert one({"Records": [versitygw_record("b", "k", event="s3:ObjectRemoved:Delete", size=0)]}).size is None


@pytest.mark.parametrize(
    ("etag", "expected"),
    [
        ('"d41d"', "d41d"),
        ("d41d", "d41d"),
        ('"d41d', '"d41d'),
        ('d41d"', 'd41d"'),
        ('"', '"'),
        ('""', None),
        ("", None),
        (None, None),
        (5, None),
        ('"CRC64NVME-AAAA="', "CRC64NVME-AAAA="),
    ],
)
def test_quotes_around_an_etag(etag: object, expected: str | None) -> None:
    assert one(with_object(eTag=etag)).etag == expected


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("2026-11-30T20:15:03+01:00", datetime(2026, 11, 30, 19, 15, 3, tzinfo=UTC)),
        ("2026-11-30T19:15:03.204Z", datetime(2026, 11, 30, 19, 15, 3, 204_000, tzinfo=UTC)),
        ("2026-11-30T19:15:03", datetime(2026, 11, 30, 19, 15, 3, tzinfo=UTC)),
        ("0001-01-01T00:00:00+14:00", None),
        ("yesterday", None),
        (17, None),
        (None, None),
    ],
)
def test_times(time: object, expected: datetime | None) -> None:
    assert one({"Records": [versitygw_record("b", "k", time=time)]}).event_time == expected


def test_field_names_are_read_in_any_case() -> None:
    body = {
        "RECORDS": [
            {
                "EventName": "ObjectCreated:Put",
                "UserIdentity": {"PRINCIPALID": "p"},
                "S3": {"Bucket": {"Name": "b"}, "Object": {"Key": "k", "ETag": "e", "VersionID": "v", "Size": 1}},
            }
        ]
    }
    assert one(body) == ObjectEvent(
        "b", "k", "created", "objectcreated:put", size=1, etag="e", version_id="v", principal="p"
    )
