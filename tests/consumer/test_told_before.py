from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from blobmap.manifest import Blob, Bucket, Manifest, Pin
from blobmap.resolve import Resolution
from consumer.backfill_steps import suspected
from consumer.memory import Backfilling, Memory, backfilled
from consumer.told_before import covers, related, told_before
from tests.support.untold import Game

if TYPE_CHECKING:
    from collections.abc import Sequence

SCOPES = ("", "s", "s/n", "t")
KEYS = ("s", "s/x/0", "s/x/1", "s/n", "s/n/x/0", "s/n/x/5", "t/x/0", "x/0", "sn/x/0")

rules = st.lists(
    st.builds(
        Blob,
        id=st.sampled_from(["b_x", "b_y"]),
        prefixes=st.sampled_from([("x",), ("n/x",), ("",), ("s/n/x",), ("s",)]),
        bucket=st.none() | st.builds(Bucket, st.just(0), st.sampled_from([1, 4]), st.just("v3_slash")),
    ),
    max_size=2,
).map(tuple)
manifests = st.builds(
    Manifest,
    scope=st.sampled_from(SCOPES),
    epoch=st.just(1),
    hot_always=st.sampled_from([(), (), ("x/**",), ("n/**",)]),
    blobs=rules,
    pinned=st.sampled_from([(), (), (Pin("x", "kept"),), (Pin("n", "kept"),), (Pin("", "kept"),)]),
)
moves = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(KEYS)),
    st.tuples(st.just("write"), manifests),
    st.tuples(st.sampled_from(["begin", "finish", "remove"]), st.sampled_from(SCOPES)),
)


def x_of(scope: str, *pins: str) -> Manifest:
    return Manifest(scope, 1, (), (Blob("b_x", ("x",), None),), tuple(Pin(pin, "kept") for pin in pins))


@given(st.lists(moves, max_size=30))
@example(
    [
        ("write", x_of("s")),
        ("begin", "s"),
        ("finish", "s"),
        ("write", x_of("s", "x")),
        ("put", "s/x/0"),
        ("write", x_of("s")),
    ]
)
@settings(max_examples=600)
def test_nothing_stays_untold_whatever_is_written_in_between(played: Sequence[tuple[str, object]]) -> None:
    game = Game()
    for name, what in played:
        getattr(game, name)(what)
    game.settle()
    assert game.untold() == []


def test_an_outer_pin_that_comes_and_goes_while_the_inner_scope_is_backfilled() -> None:
    """What is remembered of each scope by itself would say that the key was told."""
    game = settled(x_of(""), x_of("s"))
    game.write(x_of("", "s"))
    game.write(Manifest("s", 1, (), (Blob("b_y", ("x",), None),)))
    game.begin("s")
    game.finish("s")
    game.write(x_of(""))
    game.settle()
    assert game.untold() == []


def settled(*given: Manifest) -> Game:
    game = Game()
    for manifest in given:
        game.write(manifest)
    for key in KEYS:
        game.put(key)
    game.settle()
    return game


@pytest.mark.parametrize(
    "then",
    [
        x_of("s", "y"),
        Manifest("s", 1, (), (Blob("b_x", ("x",), None), Blob("b_n", ("n",), None))),
    ],
    ids=["a pin beside it", "a rule more"],
)
def test_what_was_told_is_not_told_again(then: Manifest) -> None:
    game = settled(x_of("s"))
    game.repeats = 0
    game.write(then)
    game.settle()
    assert (game.untold(), game.repeats) == ([], 0)


def test_nested_scopes_that_settled_repeat_nothing() -> None:
    game = settled(x_of(""), x_of("s"), x_of("s/n"))
    game.repeats = 0
    for scope in ("s/n", "s", "", "s", "s/n"):
        game.write(x_of(scope, "y"))
        game.settle()
    assert (game.untold(), game.repeats) == ([], 0)


def test_only_what_is_younger_than_the_record_is_repeated_after_a_skipped_epoch() -> None:
    game = settled(x_of("s"))
    game.put("s/x/1")
    game.repeats = 0
    game.write(x_of("s", "x"))
    game.write(x_of("s"))
    game.settle()
    assert (game.untold(), game.repeats) == ([], 1)


NOW = Resolution("blob", "b_x_0", "s", 2)
BEGAN = datetime(2026, 11, 30, tzinfo=UTC)
OLD = BEGAN - timedelta(days=1)


def memory(of: Manifest, **around: int) -> Memory:
    return Memory(backfilled=backfilled(of, BEGAN, around))


def test_nothing_is_known_without_a_record_or_where_it_is_suspect() -> None:
    known = memory(x_of("s"))
    assert told_before("s", {"s": known}, {"s": 2}).has("s/x/0", OLD, NOW)
    whole = Backfilling(run="r", epoch=1, began=BEGAN, heartbeat=BEGAN, whole=True)
    for doubtful in (Memory(), suspected(known), known.model_copy(update={"backfilling": whole})):
        assert not told_before("s", {"s": doubtful}, {"s": 2}).has("s/x/0", OLD, NOW)


def test_another_blob_is_news() -> None:
    told = told_before("s", {"s": memory(x_of("s"))}, {"s": 2})
    assert not told.has("s/x/0", OLD, Resolution("blob", "b_x_1", "s", 2))
    assert not told.has("s/x/0", OLD, Resolution("blob", "b_x_0", "", 2))
    assert not told.has("s/y/0", OLD, NOW)


def test_a_scope_that_was_there_and_of_which_nothing_is_remembered_proves_nothing() -> None:
    told = told_before("s", {"s": memory(x_of("s"), **{"s/x": 4})}, {"s": 2})
    assert told.unproved == ("s/x/",)
    assert not told.has("s/x/0", OLD, NOW)
    assert not told.has("s/x", OLD, NOW), "a scope covers the key that it is named like"


def test_of_what_was_written_while_a_manifest_came_or_went_nothing_is_known() -> None:
    known = {"s": memory(x_of("s"), **{"s/n": 3}), "s/n": memory(replace(x_of("s/n"), epoch=3), s=1)}
    assert told_before("s", known, {"s": 2, "s/n": 3}).since is None
    told = told_before("s", known, {"s": 1})
    assert told.has("s/x/0", OLD, NOW)
    assert not told.has("s/x/0", BEGAN, NOW)
    assert not told.has("s/x/0", BEGAN - timedelta(minutes=59), NOW), "clocks differ"


def test_scopes_lie_around_by_whole_segments() -> None:
    assert [inner for inner in ("", "s", "s/n", "sn") if covers("s", inner)] == ["s", "s/n"]
    assert list(related("s", ("", "s", "s/n", "sn", "t"))) == ["", "s/n"]
