from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from consumer import flags
from consumer.flags import FlagBook
from consumer.records import FlagSubject

START = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.passed_s = 0.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self.passed_s)

    def seconds(self) -> float:
        return self.passed_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(clock: Clock) -> FlagBook:
    return FlagBook("flags", reflag_s=60, now=clock.now, clock=clock.seconds)


NEW = FlagSubject("b", "n.zarr", "n.zarr", "new-store")


def body(book: FlagBook, subject: FlagSubject) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(book.message(subject).body)
    return result


def test_a_new_store(book: FlagBook) -> None:
    assert book.note(NEW, "n.zarr/t/c/0")
    assert body(book, NEW) == {
        "schema": "blobmap.flags.v1",
        "key": "b/n.zarr",
        "bucket": "b",
        "scope": "n.zarr",
        "reason": "new-store",
        "prefix": "n.zarr",
        "first_object": "n.zarr/t/c/0",
        "first_seen": "2026-11-30T12:00:00Z",
        "last_seen": "2026-11-30T12:00:00Z",
    }
    assert book.message(NEW).queue == "flags"
    assert book.message(NEW).key == "b/n.zarr"


@pytest.mark.parametrize(("prefix", "scope"), [("project", None), ("", None), ("", "")])
def test_what_is_not_known_is_null_and_the_root_is_empty(book: FlagBook, prefix: str, scope: str | None) -> None:
    subject = FlagSubject("b", prefix, scope, "unclaimed-array")
    book.note(subject, "project/x")
    told = body(book, subject)
    assert (told["key"], told["prefix"], told["scope"]) == (f"b/{prefix}", prefix, scope)
    assert told["reason"] == "unclaimed-array"


def test_until_a_flag_is_confirmed_every_object_waits_for_it(book: FlagBook) -> None:
    assert book.note(NEW, "n.zarr/a")
    assert not book.stands(NEW)
    assert book.note(NEW, "n.zarr/b")
    book.confirmed(NEW)
    assert book.stands(NEW)
    assert not book.note(NEW, "n.zarr/c")


def test_a_flag_is_repeated_while_objects_come(book: FlagBook, clock: Clock) -> None:
    book.note(NEW, "n.zarr/first")
    book.confirmed(NEW)
    clock.passed_s = 59.9
    assert not book.note(NEW, "n.zarr/b")
    clock.passed_s = 60
    assert not book.stands(NEW)
    assert book.note(NEW, "n.zarr/c")
    told = body(book, NEW)
    assert told["first_object"] == "n.zarr/c"
    assert (told["first_seen"], told["last_seen"]) == ("2026-11-30T12:00:00Z", "2026-11-30T12:01:00Z")
    book.confirmed(NEW)
    assert not book.note(NEW, "n.zarr/d")


def test_an_object_names_a_store_better_than_a_document(book: FlagBook) -> None:
    """Whoever reads the flag resolves that key, and a document has the same answer whatever is claimed."""
    book.note(NEW, "n.zarr/zarr.json")
    assert body(book, NEW)["first_object"] == "n.zarr/zarr.json"
    for key in ("n.zarr/t/.zarray", "n.zarr/t/0", "n.zarr/t/1"):
        book.note(NEW, key)
    assert body(book, NEW)["first_object"] == "n.zarr/t/0"


def test_where_somebody_has_to_look_each_flag_names_an_object_of_its_own(book: FlagBook, clock: Clock) -> None:
    """The first one may have become part of a store since; what else lies there would never be looked at."""
    subject = FlagSubject("b", "project", None, "new-store")
    book.note(subject, "project/first")
    book.note(subject, "project/second")
    assert body(book, subject)["first_object"] == "project/first"
    book.confirmed(subject)
    book.note(subject, "project/third")
    clock.passed_s = 60
    assert book.note(subject, "project/fourth")
    assert book.note(subject, "project/fifth")
    told = body(book, subject)
    assert told["first_object"] == "project/fourth"
    assert (told["first_seen"], told["last_seen"]) == ("2026-11-30T12:00:00Z", "2026-11-30T12:01:00Z")


@pytest.mark.parametrize("other", [{"bucket": "c"}, {"prefix": "m"}, {"scope": None}, {"reason": "unclaimed-array"}])
def test_what_is_about_something_else_is_flagged_too(book: FlagBook, other: dict[str, Any]) -> None:
    """Also where only more is known of the same prefix: somebody has to do something else about it."""
    book.note(NEW, "n.zarr/a")
    book.confirmed(NEW)
    assert book.note(replace(NEW, **other), "n.zarr/b")


def test_only_so_many_stores_are_remembered(book: FlagBook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flags, "_MOST_SUBJECTS", 3)
    subjects = [FlagSubject("b", f"{number}.zarr", None, "new-store") for number in range(4)]
    for subject in subjects:
        assert book.note(subject, "a")
        book.confirmed(subject)
    assert not book.note(subjects[3], "b")
    assert not book.note(subjects[1], "b")
    assert not book.stands(subjects[0])
    assert book.note(subjects[0], "b")
    book.confirmed(subjects[2])  # forgotten meanwhile
    assert len(book._noted) == 3
