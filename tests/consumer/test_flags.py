from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from consumer import flags
from consumer.events import ObjectEvent
from consumer.flags import FlagBook, store_root

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


def event(key: str, bucket: str = "b") -> ObjectEvent:
    return ObjectEvent(bucket, key, "created", "objectcreated:put")


def body(book: FlagBook, subject: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(book.message(subject).body)
    return result


@pytest.mark.parametrize(
    ("key", "root"),
    [
        ("s.zarr/t/c/0/0", "s.zarr"),
        ("a/b/s.zarr/t/c/0", "a/b/s.zarr"),
        ("a/outer.zarr/inner.zarr/t/0", "a/outer.zarr"),
        ("S.ZARR/t/0", "S.ZARR"),
        ("s.zarr3/t/0", "s.zarr3"),
        (".zarr/t/0", ".zarr"),
        ("project/run/t/c/0", "project"),
        ("t/0.0", "t"),
        ("object", ""),
        ("s.zarr", ""),
        ("a/s.zarr", "a"),
        ("s.zarr.tmp/x", "s.zarr.tmp"),
    ],
)
def test_the_store_of_a_key(key: str, root: str) -> None:
    assert store_root(key) == root


def test_a_new_store(book: FlagBook) -> None:
    subject = book.note(event("new.zarr/t/c/0"), None)
    assert subject == "b/new.zarr"
    assert body(book, subject) == {
        "schema": "blobmap.flags.v1",
        "key": "b/new.zarr",
        "bucket": "b",
        "scope": "new.zarr",
        "reason": "new-store",
        "prefix": "new.zarr",
        "first_object": "new.zarr/t/c/0",
        "first_seen": "2026-11-30T12:00:00Z",
        "last_seen": "2026-11-30T12:00:00Z",
    }
    assert book.message(subject).queue == "flags"


@pytest.mark.parametrize(
    ("key", "scope", "prefix"),
    [
        ("a/n.zarr/t/c/0", "a/n.zarr", "a/n.zarr"),
        ("a/N.ZARR3/t/c/0", "a/N.ZARR3", "a/N.ZARR3"),
        ("project/run/t/c/0", None, "project"),
        ("object", None, ""),
    ],
)
def test_the_scope_of_a_new_store_is_known_by_its_name_only(
    book: FlagBook, key: str, scope: str | None, prefix: str
) -> None:
    told = body(book, book.note(event(key), None) or "")
    assert (told["scope"], told["prefix"], told["reason"]) == (scope, prefix, "new-store")


def test_below_a_scope_the_scope_is_the_store(book: FlagBook) -> None:
    subject = book.note(event("s.zarr/new.zarr/t/c/0"), "s.zarr")
    assert subject == "b/s.zarr"
    assert body(book, subject)["scope"] == "s.zarr"
    assert body(book, subject)["reason"] == "unclaimed-array"


def test_a_scope_may_be_the_whole_bucket(book: FlagBook) -> None:
    subject = book.note(event("t/c/0"), "")
    assert subject == "b/"
    assert body(book, subject)["scope"] == ""


def test_until_a_flag_is_confirmed_every_event_waits_for_it(book: FlagBook) -> None:
    assert book.note(event("n.zarr/a"), None) == "b/n.zarr"
    assert book.note(event("n.zarr/b"), None) == "b/n.zarr"
    book.confirmed("b/n.zarr")
    assert book.note(event("n.zarr/c"), None) is None


def test_a_flag_is_repeated_while_events_go_on(book: FlagBook, clock: Clock) -> None:
    book.note(event("n.zarr/first"), None)
    book.confirmed("b/n.zarr")
    clock.passed_s = 59.9
    assert book.note(event("n.zarr/b"), None) is None
    clock.passed_s = 60
    assert book.note(event("n.zarr/c"), None) == "b/n.zarr"
    told = body(book, "b/n.zarr")
    assert told["first_object"] == "n.zarr/first"
    assert (told["first_seen"], told["last_seen"]) == ("2026-11-30T12:00:00Z", "2026-11-30T12:01:00Z")
    book.confirmed("b/n.zarr")
    assert book.note(event("n.zarr/d"), None) is None


def test_stores_and_buckets_are_flagged_each(book: FlagBook) -> None:
    for bucket in ("b", "c"):
        for store in ("n.zarr", "m.zarr"):
            assert book.note(event(f"{store}/a", bucket), None) == f"{bucket}/{store}"


def test_only_so_many_stores_are_remembered(book: FlagBook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flags, "_MOST_SUBJECTS", 3)
    for number in range(4):
        subject = book.note(event(f"{number}.zarr/a"), None)
        assert subject is not None
        book.confirmed(subject)
    assert book.note(event("3.zarr/b"), None) is None
    assert book.note(event("1.zarr/b"), None) is None
    assert book.note(event("0.zarr/b"), None) == "b/0.zarr"
    book.confirmed("b/2.zarr")  # forgotten meanwhile
    assert len(book._subjects) == 3
