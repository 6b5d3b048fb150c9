from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blobmap.errors import UsageError
from consumer.records import flag_message
from consumer.tasks import TASKS_SCHEMA, Task, parse_flag, parse_task, task_message

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
SCOPED = Task(run="r1", bucket="b", scope="s.zarr", epoch=3, prefix="s.zarr", after="s.zarr/t/c/1")
BY_HAND = Task(run="r2", bucket="b", scope=None, epoch=None, prefix="", since=NOON, mover="tape-a")


def validator() -> jsonschema.Draft202012Validator:
    schema = json.loads((files("consumer") / "schemas" / "tasks-v1.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("task", [SCOPED, BY_HAND], ids=lambda task: task.run)
def test_a_task_is_read_back_as_it_was_written(task: Task) -> None:
    message = task_message("q", task)
    assert (message.queue, message.schema, message.key) == ("q", TASKS_SCHEMA, task.run)
    assert parse_task(message.body) == task


def test_the_body_is_as_published() -> None:
    assert json.loads(task_message("q", BY_HAND).body) == {
        "schema": "blobmap.tasks.v1",
        "run": "r2",
        "bucket": "b",
        "scope": None,
        "epoch": None,
        "prefix": "",
        "after": None,
        "since": "2026-11-30T12:00:00Z",
        "mover": "tape-a",
    }


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
bodies = st.fixed_dictionaries(
    {
        "schema": st.just("blobmap.tasks.v1"),
        "run": texts,
        "bucket": texts,
        "scope": st.none() | st.just("s"),
        "epoch": st.none() | st.integers(-1, 3),
        "prefix": st.just("s"),
        "after": st.none() | texts,
        "since": st.sampled_from([None, "2026-11-30T12:00:00Z"]),
        "mover": st.none() | texts,
    },
    optional={"more": st.just(1)},
)


@given(bodies)
def test_the_schema_accepts_and_refuses_as_we_do(body: dict[str, Any]) -> None:
    try:
        parse_task(json.dumps(body).encode())
    except UsageError:
        assert not validator().is_valid(body)
    else:
        validator().validate(body)


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"\xff", "not JSON"),
        (b"[]", "the message: "),
        (b'{"schema": "blobmap.tasks.v2"}', "schema: "),
        (json.dumps(json.loads(task_message("q", SCOPED).body) | {"epoch": None}).encode(), "scope and epoch"),
        (json.dumps(json.loads(task_message("q", SCOPED).body) | {"prefix": "s"}).encode(), "a scope is told whole"),
        (json.dumps(json.loads(task_message("q", BY_HAND).body) | {"since": "2026-11-30T12:00:00"}).encode(), "since"),
    ],
    ids=["bytes", "list", "version", "epoch", "prefix", "naive time"],
)
def test_what_is_no_task(body: bytes, fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        parse_task(body)


def test_a_flag_is_read_back_as_it_was_written() -> None:
    message = flag_message(
        "flags",
        bucket="b",
        scope=None,
        reason="new-store",
        prefix="s.zarr",
        first_object="s.zarr/t/c/0",
        first_seen=NOON,
        last_seen=NOON,
    )
    flag = parse_flag(message.body)
    assert (flag.key, flag.bucket, flag.scope, flag.last_seen) == ("b/s.zarr", "b", None, NOON)
    with pytest.raises(UsageError, match="reason"):
        parse_flag(message.body.replace(b"new-store", b"because"))
