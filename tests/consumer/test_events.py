from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.events import DIALECTS, Dialect, GatewayTest, ObjectEvent, Refusal, parse_message
from tests.support.notifications import message, record, versitygw_record
from tests.support.parsing import one, parse, refused

SAMPLES = {
    row["id"]: row
    for row in map(
        json.loads, (Path(__file__).parents[1] / "golden/events/samples.ndjson").read_text().strip().split("\n")
    )
    if isinstance(row, dict)
}


# Samples of what each gateway sends. `kind`s finer than ours (a marker, one version) are removals here: the published
# messages know `created` and `removed` only. Wrapped messages are refused by name instead of unwrapped.
EXPECTED: dict[str, list[tuple[str, str, str]] | type[GatewayTest] | str] = {
    "vgw-put-raw": [("created", "v1", "in box/100%+tax #1?/a%20b&c.txt")],
    "vgw-put-slashes": [("created", "v1", "/lead//mid/été 日本/")],
    "vgw-multidelete": [("removed", "v1", "q+1 %2B.txt")],
    "vgw-post-nokey": [("created", "v1", "")],
    "vgw-complete-mpu": [("created", "v1", "big.bin")],
    "vgw-testevent": GatewayTest,
    "minio-put-plus": [("created", "m1", "a/b c+d%20#é.txt")],
    "minio-tag-zero": [("other", "m1", "")],
    "minio-marker": [("removed", "m1", "gone.txt")],
    "ceph-put-raw": [("created", "c1", "x+y/50%25 off?.csv")],
    "ceph-expire": [("removed", "c1", "old/ü.log")],
    "aws-sqs-put": [("created", "a1", "logs/year=2025/red flower+1%.jpg")],
    "aws-sns-two": "SNS",
    "aws-testevent": "SNS",
    "aws-eventbridge": "EventBridge",
    "odd-empty-records": [],
}


def test_every_sample_has_an_expectation() -> None:
    assert EXPECTED.keys() == SAMPLES.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_sample(name: str) -> None:
    sample = SAMPLES[name]
    parsed = parse_message(json.dumps(sample["body"], ensure_ascii=False).encode(), sample["dialect"])
    expected = EXPECTED[name]
    if isinstance(expected, list):
        assert [(e.kind, e.bucket, e.key) for e in parsed if isinstance(e, ObjectEvent)] == expected
        assert len(parsed) == len(expected)
    elif isinstance(expected, str):
        (refusal,) = parsed
        assert isinstance(refusal, Refusal)
        assert refusal.code == "wrapped"
        assert expected in refusal.reason
    else:
        assert parsed == (GatewayTest(),)


def test_what_a_sample_says_beside_the_key() -> None:
    event = one(SAMPLES["vgw-put-raw"]["body"])
    assert event == ObjectEvent(
        bucket="v1",
        key="in box/100%+tax #1?/a%20b&c.txt",
        kind="created",
        name="objectcreated:put",
        size=12,
        etag="9e107d9d372bb6826bd81d3542a419d6",
        version_id=None,
        event_time=datetime(2026, 11, 30, 19, 15, 3, tzinfo=UTC),
        principal="AKAPP",
        corrected=False,
    )
    multipart = one(SAMPLES["vgw-complete-mpu"]["body"])
    assert (multipart.size, multipart.version_id, multipart.etag) == (None, None, "b0a8f1d6c0a6a3f1d7a1f3b2c4d5e6f7-12")
    assert one(SAMPLES["ceph-put-raw"]["body"], "ceph").size == 2048
    assert one(SAMPLES["vgw-multidelete"]["body"]).version_id == "01HZX"
    assert one(SAMPLES["vgw-post-nokey"]["body"]).principal is None


# --- keys ---------------------------------------------------------------------------------------------------------


@given(
    dialect=st.sampled_from(DIALECTS),
    bucket=st.from_regex(r"[a-z0-9][a-z0-9.-]{1,20}[a-z0-9]", fullmatch=True),
    key=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
)
def test_any_key_survives_its_gateway(dialect: Dialect, bucket: str, key: str) -> None:
    (event,) = parse_message(message(record(dialect, bucket, key)), dialect)
    assert isinstance(event, ObjectEvent)
    lost = dialect == "versitygw" and "\N{REPLACEMENT CHARACTER}" in key
    assert (event.bucket, event.key, event.kind, event.corrected) == (bucket, "" if lost else key, "created", False)


@pytest.mark.parametrize("event", ["s3:ObjectCreated:Put", "s3:ObjectRemoved:DeleteObjects"])
def test_a_key_of_which_versitygw_lost_bytes_is_an_empty_key(event: str) -> None:
    """Go writes U+FFFD for each byte that is not UTF-8, so that many names look the same."""
    assert one({"Records": [versitygw_record("b", "s.zarr/caf\N{REPLACEMENT CHARACTER}/0", event=event)]}).key == ""
    assert (
        one({"Records": [record("ceph", "b", "a\N{REPLACEMENT CHARACTER}")]}, "ceph").key
        == "a\N{REPLACEMENT CHARACTER}"
    )


@given(st.binary(), st.sampled_from(DIALECTS))
def test_no_bytes_raise(body: bytes, dialect: Dialect) -> None:
    assert isinstance(parse_message(body, dialect), tuple)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["Records", "s3", "bucket", "object", "key", "name", "eventName", "Event", "arn", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values, st.sampled_from(DIALECTS))
def test_no_document_raises(document: object, dialect: Dialect) -> None:
    assert all(isinstance(entry, ObjectEvent | GatewayTest | Refusal) for entry in parse(document, dialect))


def test_n01_form_encoded_keys_are_decoded_exactly_once() -> None:
    def aws(key: str) -> ObjectEvent:
        built = record("aws", "b", "x")
        built["s3"]["object"]["key"] = key
        return one({"Records": [built]}, "aws")

    assert aws("x.zarr/this+im+%2B+age/0.0").key == "x.zarr/this im + age/0.0"
    assert aws("x.zarr%2F10%3A47%2F0.0").key == "x.zarr/10:47/0.0"
    assert aws("a%2520b").key == "a%20b"


def test_n02_the_outer_key_of_minio_is_not_read() -> None:
    built = record("minio", "bkt", "st.zarr/t/c/0/1")
    body = {"EventName": "s3:ObjectRemoved:Delete", "Key": "elsewhere/other", "Records": [built]}
    event = one(body, "minio")
    assert (event.bucket, event.key, event.kind) == ("bkt", "st.zarr/t/c/0/1", "created")
    for other in ("aws", "ceph"):
        same = one({"Records": [record(other, "bkt", "st.zarr/t/c/0/1")]}, other)
        assert (same.bucket, same.key, same.kind) == ("bkt", "st.zarr/t/c/0/1", "created")


@pytest.mark.parametrize("key", ["100%", "a%zzb", "a%2", "%"])
def test_a_key_that_is_not_form_encoded_is_refused(key: str) -> None:
    built = record("minio", "b", "x")
    built["s3"]["object"]["key"] = key
    refusal = refused({"Records": [built]}, "minio")
    assert "not form-encoded: is source.dialect the sender's?" in refusal.reason


def test_a_key_that_is_not_utf8_is_refused() -> None:
    built = record("aws", "b", "x")
    built["s3"]["object"]["key"] = "a%FF"
    assert refused({"Records": [built]}, "aws").reason == "s3.object.key 'a%FF' does not decode to UTF-8"


def test_a_long_value_is_cut_in_the_reason() -> None:
    built = record("minio", "b", "x")
    built["s3"]["object"]["key"] = "%" * 500
    assert len(refused({"Records": [built]}, "minio").reason) < 250


@pytest.mark.parametrize(
    ("arn", "expected"),
    [
        ("arn:aws:s3:::/b/k", ("b", "k", False)),
        ("arn:aws:s3:::/other/dir/f", ("other", "dir/f", True)),
        ("arn:aws:s3:::/b//k", ("b", "/k", True)),
        ("arn:aws:s3:::/b", ("b", "k", False)),  # bulk delete, form upload
        ("arn:aws:s3:::/b/", ("b", "k", False)),
        ("arn:aws:s3:::/other", ("other", "k", True)),
        ("arn:aws:s3:::/", ("b", "k", False)),
        ("arn:aws:s3:::b", ("b", "k", False)),  # as AWS writes it: nothing to compare
        (None, ("b", "k", False)),
        (7, ("b", "k", False)),
    ],
)
def test_the_arn_of_versitygw_is_believed(arn: object, expected: tuple[str, str, bool]) -> None:
    event = one({"Records": [versitygw_record("b", "k", arn=arn)]})
    assert (event.bucket, event.key, event.corrected) == expected


def test_the_arn_of_others_is_not_read() -> None:
    built = record("ceph", "b", "k")
    built["s3"]["bucket"]["arn"] = "arn:aws:s3:::/other/dir"
    event = one({"Records": [built]}, "ceph")
    assert (event.bucket, event.key) == ("b", "k")


# --- messages -----------------------------------------------------------------------------------------------------


def test_n07_every_record_of_a_message_is_read_in_order() -> None:
    records = [versitygw_record("b", f"k{n}") for n in range(7)]
    events = parse({"Records": records})
    assert [e.key for e in events if isinstance(e, ObjectEvent)] == [f"k{n}" for n in range(7)]


def test_one_bad_record_spoils_no_other() -> None:
    first, last = versitygw_record("b", "first"), versitygw_record("b", "last")
    bad = versitygw_record("", "bad")
    bad["s3"]["bucket"]["name"] = None
    parsed = parse({"Records": [first, bad, last]})
    assert [type(entry) for entry in parsed] == [ObjectEvent, Refusal, ObjectEvent]
    refusal = parsed[1]
    assert isinstance(refusal, Refusal)
    assert refusal.code == "bad-record"
    assert refusal.reason == "s3.bucket.name is null, expected the name of a bucket"
    assert refusal.body is not None
    assert json.loads(refusal.body) == {"Records": [bad]}


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (7, "record is a number, expected an object"),
        ([], "record is a list, expected an object"),
        ("x", "record is a text, expected an object"),
        ({}, "eventName is null, expected a name such as ObjectCreated:Put"),
        ({"eventName": True}, "eventName is a truth value, expected a name such as ObjectCreated:Put"),
        ({"eventName": "ObjectCreated:Put"}, "s3 is null, expected an object"),
        ({"eventName": "ObjectCreated:Put", "s3": {}}, "s3.bucket.name is null, expected the name of a bucket"),
        (
            {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "b"}}},
            "s3.object.key is null, expected a text",
        ),
        (
            {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "b"}, "object": {"key": {}}}},
            "s3.object.key is an object, expected a text",
        ),
    ],
)
def test_bad_records(record: object, reason: str) -> None:
    assert refused({"Records": [record]}).reason == reason


def test_a_record_too_deep_to_be_written_again_takes_its_message_along() -> None:
    deep = b'{"Records": [' + b"[" * 500 + b"]" * 500 + b"]}"
    (refusal,) = parse_message(deep, "versitygw")
    assert isinstance(refusal, Refusal)
    assert refusal.code == "bad-record"
    assert refusal.body is None


def test_n14_a_lost_key_is_an_empty_key() -> None:
    assert one({"Records": [versitygw_record("b", "", event="s3:ObjectRemoved:Delete")]}).key == ""


def test_n16_an_sns_envelope_is_refused_by_name() -> None:
    inner = json.dumps({"Records": [record("aws", "b", "k")]})
    refusal = refused({"Type": "Notification", "Subject": "Amazon S3 Notification", "Message": inner}, "aws")
    assert refusal.code == "wrapped"
    assert "SNS" in refusal.reason
    assert "SNS" in refused({"TopicArn": "arn:aws:sns:…", "Message": inner}, "aws").reason
    assert "SNS" not in refused({"Message": inner}, "aws").reason


def test_an_eventbridge_envelope_is_known_by_its_source_too() -> None:
    assert "EventBridge" in refused({"source": "aws.s3", "detail": {}}, "aws").reason


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "unreadable"),
        (b"\xff\xfe", "unreadable"),
        (b"{", "unreadable"),
        (b'"text"', "no-records"),
        (b"7", "no-records"),
        (b"null", "no-records"),
        (b"{}", "no-records"),
        (b'{"Event": "s3:Other"}', "no-records"),
        (b'{"Records": "x"}', "no-records"),
        (b'{"Records": {}}', "no-records"),
    ],
)
def test_what_is_no_notification_is_refused_whole(body: bytes, code: str) -> None:
    (refusal,) = parse_message(body, "versitygw")
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.body) == (code, None)
    assert "\n" not in refusal.reason


@pytest.mark.parametrize("document", [{"Records": []}, {"Records": None}, []])
def test_no_records_are_no_fault(document: object) -> None:
    assert parse(document) == ()


def test_a_bare_list_of_records_is_read() -> None:
    assert [e.key for e in parse([versitygw_record("b", "k")]) if isinstance(e, ObjectEvent)] == ["k"]
