from __future__ import annotations

import hashlib
import itertools
import json
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.records import dead_letter, flag_message, object_record, objects_message, record_id, stat_text

GOLDEN = Path(__file__).parents[1] / "golden/record-ids.ndjson"
NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

STATE: dict[str, Any] = {
    "bucket": "cordex",
    "key": "eur11.zarr/tas/c/5000/0/0",
    "event": "created",
    "confirmed": True,
    "etag": "d41d8cd98f00b204e9800998ecf8427e",
    "version_id": None,
    "scope": "eur11.zarr",
    "blob_id": "b_tas_2",
}
RECORD: dict[str, Any] = STATE | {"epoch": 3, "size": 12, "event_time": NOON, "source": "event"}


def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((files("consumer") / "schemas" / name).read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def golden() -> list[dict[str, Any]]:
    return [json.loads(line) for line in GOLDEN.read_text().split("\n") if line]


@pytest.mark.parametrize("row", golden(), ids=lambda row: row["id"])
def test_record_ids_are_frozen(row: dict[str, Any]) -> None:
    assert record_id(**row["state"]) == row["id"]


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
states = st.fixed_dictionaries(
    {
        "bucket": names,
        "key": names,
        "event": st.sampled_from(["created", "removed"]),
        "confirmed": st.booleans(),
        "etag": st.none() | names,
        "version_id": st.none() | names,
        "scope": names,
        "blob_id": names,
        "stat": st.none() | st.builds(stat_text, st.integers(0), st.datetimes(timezones=st.just(UTC))),
    }
)


@given(states)
def test_the_hash_input_is_as_documented(state: dict[str, Any]) -> None:
    """Written again with the standard library, as another program would."""
    kind, value = None, None
    if state["etag"] is not None:
        kind, value = "etag", state["etag"]
    elif state["version_id"] is not None:
        kind, value = "version", state["version_id"]
    elif state["stat"] is not None:
        kind, value = "stat", state["stat"]
    fields = [state["bucket"], state["key"], state["event"], state["confirmed"], kind, value]
    text = json.dumps([*fields, state["scope"], state["blob_id"]], ensure_ascii=False, separators=(",", ":"))
    assert record_id(**state) == hashlib.sha256(text.encode()).hexdigest()[:32]


def test_n10_every_part_of_the_state_is_in_the_id() -> None:
    others = {
        "bucket": "other",
        "key": "eur11.zarr/tas/c/5001/0/0",
        "event": "removed",
        "confirmed": False,
        "etag": "another",
        "scope": "",
        "blob_id": "b_tas_3",
    }
    ids = [record_id(**(STATE | {name: value})) for name, value in others.items()]
    ids += [record_id(**STATE), record_id(**(STATE | {"etag": None}))]
    ids += [record_id(**(STATE | {"etag": None, "version_id": version})) for version in ("v1", "v2", STATE["etag"])]
    assert all(one != other for one, other in itertools.combinations(ids, 2))


def test_the_version_counts_only_where_there_is_no_etag() -> None:
    assert record_id(**(STATE | {"version_id": "v1"})) == record_id(**STATE)


def test_size_and_time_count_only_where_there_is_neither_etag_nor_version() -> None:
    bare = STATE | {"etag": None}
    stat = stat_text(12, NOON)
    assert record_id(**(STATE | {"stat": stat})) == record_id(**STATE)
    assert record_id(**(bare | {"version_id": "v1", "stat": stat})) == record_id(**(bare | {"version_id": "v1"}))
    ids = {record_id(**(bare | {"stat": one})) for one in (None, stat, stat_text(13, NOON))}
    ids |= {record_id(**(bare | {"version_id": stat})), record_id(**(bare | {"etag": stat}))}
    assert len(ids) == 5


def test_a_mover_can_name_the_state_of_a_file_from_the_record() -> None:
    modified = NOON.replace(microsecond=250)
    told = json.loads(
        object_record(**(RECORD | {"etag": None, "event_time": modified, "stat": stat_text(12, modified)}))
    )
    assert told["id"] == record_id(**(STATE | {"etag": None, "stat": f"{told['size']}/{told['event_time']}"}))


def test_moving_a_letter_over_a_border_changes_the_id() -> None:
    assert record_id(**(STATE | {"bucket": "ab", "key": "c"})) != record_id(**(STATE | {"bucket": "a", "key": "bc"}))
    assert record_id(**(STATE | {"bucket": 'a","b', "key": "c"})) != record_id(
        **(STATE | {"bucket": "a", "key": 'b","c'})
    )


def test_an_objects_message() -> None:
    message = objects_message("q", [object_record(**RECORD), object_record(**(RECORD | {"event_time": None}))])
    assert (message.queue, message.schema) == ("q", "blobmap.objects.v1")
    body = json.loads(message.body)
    assert body["records"][0] == {
        "id": record_id(**STATE),
        "bucket": "cordex",
        "scope": "eur11.zarr",
        "blob_id": "b_tas_2",
        "key": "eur11.zarr/tas/c/5000/0/0",
        "epoch": 3,
        "event": "created",
        "confirmed": True,
        "size": 12,
        "etag": "d41d8cd98f00b204e9800998ecf8427e",
        "version_id": None,
        "event_time": "2026-11-30T12:00:00Z",
        "source": "event",
    }
    assert body["records"][1]["event_time"] is None
    validator("objects-v1.schema.json").validate(body)


@given(states)
def test_every_record_fits_its_schema(state: dict[str, Any]) -> None:
    given_names = state | {"bucket": state["bucket"] or "b", "key": state["key"] or "k", "blob_id": "b_x_0"}
    given_names |= {"etag": state["etag"] or None, "version_id": state["version_id"] or None}
    body = json.loads(objects_message("q", [object_record(**(RECORD | given_names))]).body)
    validator("objects-v1.schema.json").validate(body)
    assert body["records"][0]["key"] == given_names["key"]


@pytest.mark.parametrize(
    "change",
    [
        {"id": "x"},
        {"size": -1},
        {"size": "3"},
        {"etag": ""},
        {"epoch": 0},
        {"event": "gone"},
        {"event_time": "2026-11-30T12:00:00+01:00"},
        {"more": 1},
    ],
    ids=str,
)
def test_the_schema_of_records_can_refuse(change: dict[str, Any]) -> None:
    body = json.loads(objects_message("q", [object_record(**RECORD)]).body)
    body["records"][0] |= change
    assert not validator("objects-v1.schema.json").is_valid(body)


@pytest.mark.parametrize("scope", [None, "", "eur11.zarr"])
def test_a_flag(scope: str | None) -> None:
    message = flag_message(
        "flags",
        bucket="cordex",
        scope=scope,
        reason="new-store",
        prefix="new.zarr",
        first_object="new.zarr/a/c/0",
        first_seen=NOON,
        last_seen=NOON.replace(microsecond=5),
    )
    assert (message.queue, message.schema) == ("flags", "blobmap.flags.v1")
    body = json.loads(message.body)
    assert body == {
        "schema": "blobmap.flags.v1",
        "key": "cordex/new.zarr",
        "bucket": "cordex",
        "scope": scope,
        "reason": "new-store",
        "prefix": "new.zarr",
        "first_object": "new.zarr/a/c/0",
        "first_seen": "2026-11-30T12:00:00Z",
        "last_seen": "2026-11-30T12:00:00.000005Z",
    }
    validator("flags-v1.schema.json").validate(body)
    assert not validator("flags-v1.schema.json").is_valid(body | {"reason": "because"})


def test_a_dead_letter_keeps_the_bytes_and_says_why() -> None:
    message = dead_letter(
        "dead",
        b"\xff",
        code="unreadable",
        reason="not JSON",
        first_seen=NOON,
        deliveries=2,
        exchange="s3.events",
        routing_key="",
    )
    assert (message.queue, message.schema, message.body) == ("dead", None, b"\xff")
    assert message.headers == {
        "reason": "not JSON",
        "code": "unreadable",
        "first_seen": "2026-11-30T12:00:00Z",
        "deliveries": "2",
        "exchange": "s3.events",
        "routing_key": "",
    }
