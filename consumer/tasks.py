"""What workers take from their queues: flags, as `records.flag_message` writes them, and tasks, written and read here.

Pure. A message that cannot be read is refused with its reason, and becomes a dead letter.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeVar

import orjson
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from blobmap.errors import UsageError
from consumer.records import FlagReason, Message

TASKS_SCHEMA = "blobmap.tasks.v1"

B = TypeVar("B", bound="_Body")


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Flag(_Body):
    """A `blobmap.flags.v1` message. The JSON Schema beside `records` says what its fields mean."""

    schema_: Annotated[Literal["blobmap.flags.v1"], Field(alias="schema")] = "blobmap.flags.v1"
    key: Annotated[str, Field(min_length=1)]
    bucket: Annotated[str, Field(min_length=1)]
    scope: str | None
    reason: FlagReason
    prefix: str
    first_object: Annotated[str, Field(min_length=1)]
    first_seen: AwareDatetime
    last_seen: AwareDatetime


class Task(_Body):
    """A `blobmap.tasks.v1` message: list a range of keys, and tell movers what they have not been told.

    Attributes:
        run: names a chain of tasks, each of which goes on where the one before it ended.
        bucket: name of the bucket.
        scope: whose manifest is backfilled; None for a backfill that somebody asked for by hand.
        epoch: of the manifest under which it is told; None by hand: what is in force.
        prefix: only keys at or below it, by whole segments; the scope, where there is one.
        after: only keys greater than this, None for the beginning.
        since: UTC; only what was modified then or later, None for all.
        mover: only this one is told, None for every mover of the bucket.
    """

    schema_: Annotated[Literal["blobmap.tasks.v1"], Field(alias="schema")] = "blobmap.tasks.v1"
    run: Annotated[str, Field(min_length=1)]
    bucket: Annotated[str, Field(min_length=1)]
    scope: str | None
    epoch: Annotated[int, Field(ge=0)] | None
    prefix: str
    after: str | None = None
    since: AwareDatetime | None = None
    mover: str | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.scope is None) != (self.epoch is None):
            raise ValueError("scope and epoch go together")
        if self.scope is not None and (self.prefix, self.since, self.mover) != (self.scope, None, None):
            raise ValueError("a scope is told whole, and to every mover")
        return self


def task_message(queue: str, task: Task) -> Message:
    """Writes one `blobmap.tasks.v1` message.

    Args:
        queue: the queue of tasks, or one where tasks wait.
        task: what has to be done.

    Returns:
        The message. Its `key` is the same for all tasks of a chain: a later one says all that an earlier one said.
    """
    return Message(queue, TASKS_SCHEMA, task.model_dump_json(by_alias=True).encode(), key=task.run)


def parse_flag(body: bytes) -> Flag:
    """Reads a flag.

    Raises:
        UsageError: it is none; the message says what is wrong.
    """
    return _parse(Flag, body)


def parse_task(body: bytes) -> Task:
    """Reads a task.

    Raises:
        UsageError: it is none; the message says what is wrong.
    """
    return _parse(Task, body)


def _parse(kind: type[B], body: bytes) -> B:
    try:
        return kind.model_validate(orjson.loads(body))
    except orjson.JSONDecodeError as error:
        raise UsageError(f"not JSON: {error}") from error
    except ValidationError as error:
        fault = error.errors()[0]
        raise UsageError(f"{'.'.join(map(str, fault['loc'])) or 'the message'}: {fault['msg']}") from error
