from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer.flag_steps import Known, Looked, Step, Waits, is_overdue, next_step, remembered
from tests.support.flag_chains import HASTY, WAITS, Game, Write, at

SETTLE_S, SETTLE_MAX_S, REFLAG_S = int(WAITS.settle_s), int(WAITS.settle_max_s), int(WAITS.reflag_s)
NEW = Known(at(0), at(100))
LOOKED = Looked(covered=at(100), began=at(130))
COVERED = replace(NEW, looked=LOOKED)


@pytest.mark.parametrize(
    ("known", "last_s", "now_s", "step"),
    [
        (NEW, 100, 100 + SETTLE_S - 1, "settle"),
        (NEW, 100, 100 + SETTLE_S, "look"),
        (NEW, 99, 100 + SETTLE_S, "drop"),  # the one of second 100 carries on
        (replace(NEW, last_seen=at(SETTLE_MAX_S)), SETTLE_MAX_S, SETTLE_MAX_S, "look"),  # never quiet, long enough
        (COVERED, 100, 130 + REFLAG_S - 1, "again"),  # delivered twice
        (COVERED, 100, 130 + REFLAG_S, "look"),
        (COVERED, 99, 130 + REFLAG_S, "drop"),
        (replace(COVERED, looked=LOOKED.model_copy(update={"done": True})), 100, 900, "drop"),
        (replace(COVERED, first_seen=at(150), last_seen=at(150)), 150, 150 + SETTLE_S - 1, "settle"),
        (replace(COVERED, first_seen=at(150), last_seen=at(150)), 150, 150 + SETTLE_S, "look"),
        (replace(COVERED, first_seen=at(150), last_seen=at(150)), 100, 150 + SETTLE_S, "drop"),
    ],
)
def test_what_becomes_of_a_flag(known: Known, last_s: int, now_s: int, step: Step) -> None:
    assert next_step(at(last_s), known, at(now_s), WAITS) == step


@pytest.mark.parametrize(
    ("hot_s", "now_s", "step"),
    [(None, 999, "drop"), (130, 130 + SETTLE_MAX_S, "look"), (130, 130 + SETTLE_MAX_S // 2 - 1, "drop")],
)
@pytest.mark.parametrize("last_s", [100, 200])
def test_arrays_that_are_small_are_looked_at_again_in_their_time(
    hot_s: int | None, now_s: int, step: Step, last_s: int
) -> None:
    looked = LOOKED.model_copy(update={"hot_since": None if hot_s is None else at(hot_s)})
    known = Known(at(0), at(last_s), looked)  # whatever was flagged since
    assert next_step(at(100), known, at(now_s), WAITS, for_size=True) == step


def test_a_flag_for_size_that_is_news_waits_like_any_other() -> None:
    assert next_step(at(100), NEW, at(100), WAITS, for_size=True) == "settle"
    assert next_step(at(100), NEW, at(100 + SETTLE_S), WAITS, for_size=True) == "look"


@pytest.mark.parametrize(
    ("known", "flag", "joined"),
    [
        (NEW, (50, 120), (0, 120)),
        (NEW, (50, 70), (0, 100)),
        (COVERED, (0, 100), (0, 100)),
        (COVERED, (0, 150), (150, 150)),  # its first object is covered: what is new began now
        (COVERED, (140, 150), (140, 150)),
        (replace(COVERED, first_seen=at(150), last_seen=at(150)), (0, 180), (150, 180)),
        (replace(COVERED, first_seen=at(150), last_seen=at(150)), (0, 90), (150, 150)),
    ],
)
def test_flags_of_a_store_are_joined(known: Known, flag: tuple[int, int], joined: tuple[int, int]) -> None:
    assert known.joined(at(flag[0]), at(flag[1])) == Known(at(joined[0]), at(joined[1]), known.looked)


def test_a_look_that_is_late_is_given_up_on_quiet_counting_from_the_look_before() -> None:
    assert not is_overdue(COVERED, at(130 + SETTLE_MAX_S - 1), WAITS)
    assert is_overdue(COVERED, at(130 + SETTLE_MAX_S), WAITS)


@pytest.mark.parametrize(
    ("failed", "is_cut", "is_news", "done"),
    [
        (None, False, True, False),  # what came meanwhile may not have been flagged
        (None, False, False, True),
        (None, True, False, False),
        (None, True, True, False),
        ("a reason", False, False, False),
    ],
)
def test_a_chain_ends_with_a_later_look_that_finds_nothing_new(
    failed: str | None, is_cut: bool, is_news: bool, done: bool
) -> None:
    look = Looked(covered=at(200), began=at(240), failed=failed)
    assert remembered(look, LOOKED, is_cut=is_cut, is_news=is_news, for_size=False).done is done
    assert remembered(look, None, is_cut=is_cut, is_news=is_news, for_size=False).done is done


def test_a_look_for_size_is_beside_the_chain() -> None:
    waiting = LOOKED.model_copy(update={"hot_since": at(130)})
    look = Looked(covered=at(200), began=at(240))

    def after(look: Looked, *, is_cut: bool, for_size: bool) -> Looked:
        return remembered(look, waiting, is_cut=is_cut, is_news=False, for_size=for_size)

    assert after(look, is_cut=False, for_size=True) == LOOKED
    assert after(look.model_copy(update={"failed": "x"}), is_cut=False, for_size=True) == waiting
    assert after(look, is_cut=False, for_size=False).hot_since == at(130)
    assert after(look, is_cut=True, for_size=True).hot_since is None  # what was small has grown
    assert after(look.model_copy(update={"hot_since": at(240)}), is_cut=True, for_size=True).hot_since == at(240)


def test_a_slow_look_does_not_undo_a_later_one() -> None:
    later = Looked(covered=at(300), began=at(330))
    assert remembered(LOOKED, later, is_cut=True, is_news=True, for_size=False) == later


WRITES = st.lists(
    st.builds(Write, st.integers(0, 120), st.integers(0, 1), st.sampled_from("abcx")), min_size=1, max_size=12
)


@settings(max_examples=300)
@given(
    st.sampled_from([WAITS, HASTY]),
    st.integers(-5, 5),
    WRITES,
    st.lists(st.sampled_from([0, 1, 2, 3, 4, 9, 9, 9]), max_size=12),
)
def test_every_array_gets_its_rule_and_every_chain_an_end(
    waits: Waits, skew_s: int, writes: list[Write], kills: list[int]
) -> None:
    """Whatever is written when, told by whom, suppressed, and wherever a worker is killed."""
    game = Game(waits, skew_s, frozenset("x"), tuple(kills))
    game.play(writes)
    assert game.claimed == {write.array for write in writes} - {"x"}
    quiet = max(write.second for write in writes) + 2 * waits.settle_s
    assert len([second for second in game.looks if second > quiet]) <= 3 + len(kills)


@given(st.integers(1, 400))
def test_what_is_never_claimed_costs_no_more_looks_than_quiet_times(writes: int) -> None:
    game = Game(unclaimable=frozenset("x"))
    game.play([Write(2 * second, 0, "x") for second in range(writes)])
    assert len(game.looks) <= 2 * (1 + 2 * writes // SETTLE_MAX_S + 1)


def test_a_flag_of_a_clock_that_runs_ahead_waits_and_ends() -> None:
    ahead = Known(at(1000), at(1000))
    assert next_step(at(1000), ahead, at(0), WAITS) == "settle"
    assert next_step(at(1000), ahead, at(1000 + SETTLE_S), WAITS) == "look"


def test_no_wait_is_needed_where_none_is_asked_for() -> None:
    now = at(0)
    assert next_step(now, Known(now, now), now, Waits(0, 0, 0)) == "look"
