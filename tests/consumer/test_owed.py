from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from consumer.backfill_steps import beaten, ended, handed_over, is_overtaken, merged, suspected, taken
from consumer.memory import Backfilled, Backfilling, Memory, backfilled
from consumer.owed import is_alive, is_late, is_owed
from consumer.tasks import Task
from tests.support.manifests import manifest

if TYPE_CHECKING:
    from collections.abc import Mapping

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=20)
ALIVE_S = 900.0
TASK = Task(run="r", bucket="b", scope="s.zarr", epoch=3, prefix="s.zarr")


def told(epoch: int = 3, around: Mapping[str, int] | None = None) -> Backfilled:
    return backfilled(manifest(epoch=epoch), NOON, dict(around or {}))


def under_way(**changes: Any) -> Backfilling:
    given: dict[str, Any] = {"run": "r", "epoch": 3, "began": NOON, "heartbeat": NOON}
    return Backfilling(**(given | changes))


def take(memory: Memory, task: Task = TASK, now: datetime = NOON, around: Mapping[str, int] | None = None) -> Memory:
    return taken(memory, task, 3, scopes={"s.zarr"}, around=around or {}, now=now, alive_s=ALIVE_S)


@pytest.mark.parametrize(
    ("memory", "owed"),
    [
        (Memory(), True),
        (Memory(backfilled=told(2)), True),
        (Memory(backfilled=told(3)), False),
        (Memory(backfilled=told(4)), False),
        (Memory(backfilled=told(3), suspect=True), True),
        (Memory(backfilled=told(3), backfilling=under_way(whole=True)), True),
        (Memory(backfilled=told(3), backfilling=under_way()), False),
        (Memory(backfilled=told(3, {"s.zarr/inner": 1})), False),
        (Memory(backfilled=told(3, {"s.zarr/gone": 1})), True),
    ],
)
def test_what_is_owed(memory: Memory, owed: bool) -> None:
    assert is_owed(memory, 3, {"s.zarr", "s.zarr/inner"}) is owed


@pytest.mark.parametrize(
    ("other", "alive"),
    [
        (None, False),
        (under_way(run="r"), False),
        (under_way(run="other"), True),
        (under_way(run="other", epoch=2), False),
        (under_way(run="other", heartbeat=NOON - timedelta(seconds=ALIVE_S)), False),
    ],
)
def test_who_is_alive(other: Backfilling | None, alive: bool) -> None:
    assert is_alive(Memory(backfilling=other), "r", 3, NOON, alive_s=ALIVE_S) is alive


def test_a_flag_is_late_only_after_its_manifest_was_backfilled() -> None:
    memory = Memory(backfilled=told(3))
    assert is_late(memory, 3, NOON)
    assert not is_late(memory, 3, NOON - timedelta(microseconds=1))
    assert not is_late(memory, 4, LATER), "what the new epoch claims is told anyway"
    assert not is_late(Memory(), 3, LATER)


def test_a_task_is_taken_once() -> None:
    first = take(Memory(backfilled=told(2)), around={"": 1})
    assert first.backfilling == under_way(around={"": 1})
    other = TASK.model_copy(update={"run": "other"})
    assert take(first, other) == first, "alive"
    after = take(first, other, LATER).backfilling
    assert after is not None
    assert (after.run, after.began) == ("other", LATER), "silent for too long"
    assert take(Memory(backfilled=told(3))) == Memory(backfilled=told(3)), "done"


def test_a_task_that_is_delivered_again_goes_on() -> None:
    at_b = Memory(backfilling=under_way(after="b", reached="c", around={"": 1}))
    again = take(at_b, TASK.model_copy(update={"after": "b"}), LATER, around={"": 2}).backfilling
    assert again == under_way(after="b", reached="c", around={"": 0}, heartbeat=LATER)
    on = take(at_b, TASK.model_copy(update={"after": "d"})).backfilling
    assert on is not None
    assert (on.after, on.reached) == ("d", None)
    assert is_overtaken(at_b, TASK)
    assert is_overtaken(at_b, TASK.model_copy(update={"after": "a"}))
    assert not is_overtaken(at_b, TASK.model_copy(update={"after": "b"}))
    assert not is_overtaken(at_b, TASK.model_copy(update={"run": "other"}))


def test_what_becomes_suspect_while_everything_is_told_is_told_again() -> None:
    began = take(suspected(Memory(backfilled=told(3))))
    assert began.backfilling is not None
    assert (began.backfilling.whole, began.suspect) == (True, False)
    meanwhile = suspected(began)
    assert take(meanwhile).suspect, "the same chain, delivered again, does not know of it"
    over = ended(meanwhile, "r", manifest(epoch=3), around={}, is_whole_listing=True)
    assert (over.backfilling, over.suspect) == (None, True)
    assert is_owed(over, 3, {"s.zarr"})
    taken_over = take(began, TASK.model_copy(update={"run": "other"}), LATER).backfilling
    assert taken_over is not None
    assert taken_over.whole


def test_nothing_is_suspect_where_nothing_was_told() -> None:
    assert suspected(Memory()) == Memory()


def test_a_heart_beats_and_hands_over() -> None:
    memory = Memory(backfilling=under_way(after="b"))
    assert beaten(memory, "r", "c", LATER).backfilling == under_way(after="b", reached="c", heartbeat=LATER)
    assert beaten(beaten(memory, "r", "c", NOON), "r", None, LATER).backfilling == under_way(
        after="b", reached="c", heartbeat=LATER
    )
    assert handed_over(beaten(memory, "r", "c", NOON), "r", "d", LATER).backfilling == under_way(
        after="d", heartbeat=LATER
    )
    assert handed_over(memory, "r", "a", LATER) == memory, "never back"
    for change in (beaten(memory, "x", "c", LATER), handed_over(memory, "x", "z", LATER)):
        assert change == memory


def test_the_end_is_remembered_and_never_goes_back() -> None:
    memory = Memory(backfilled=told(2), backfilling=under_way(around={"": 1, "s.zarr/in": 4}))
    over = ended(memory, "r", manifest(epoch=3), around={"": 1, "s.zarr/in": 5}, is_whole_listing=True)
    assert over.backfilled == told(3, {"": 1, "s.zarr/in": 0})
    assert (over.backfilling, over.suspect, over.backfilled_epoch) == (None, False, 3)
    assert over.backfilled is not None
    assert over.backfilled.manifest() == manifest(epoch=3)
    lower = memory.model_copy(update={"backfilled": told(7)})
    assert ended(lower, "r", manifest(epoch=3), around={}, is_whole_listing=True).backfilled_epoch == 7
    assert ended(memory, "other", manifest(epoch=3), around={}, is_whole_listing=True) == memory
    assert ended(memory, "r", manifest(epoch=3), around={}, is_whole_listing=False).suspect


def test_epochs_that_did_not_stay_are_none() -> None:
    assert merged({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 3, "d": 4}) == {"a": 1, "b": 0, "c": 0, "d": 0}


def test_a_memory_survives_its_document() -> None:
    memory = Memory(backfilled=told(3, {"": 2}), backfilling=under_way(after="b", around={"": 2}), suspect=True)
    assert Memory.model_validate_json(memory.model_dump_json(exclude_defaults=True)) == memory
