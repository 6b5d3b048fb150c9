from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from consumer.ledger import Ledger


def test_nothing_entered_nothing_settled() -> None:
    assert Ledger().settled() is None


def test_what_caused_nothing_is_settled_at_once() -> None:
    ledger = Ledger()
    ledger.enter(1)
    ledger.enter(2)
    assert ledger.settled() == 2
    assert ledger.settled() is None
    assert len(ledger) == 0


def test_the_head_holds_up_the_rest() -> None:
    ledger = Ledger()
    first, second = ledger.enter(1), ledger.enter(2)
    first.open_outputs = 1
    second.open_outputs = 2
    assert ledger.settled() is None
    second.open_outputs = 0
    assert ledger.settled() is None
    first.open_outputs = 0
    assert ledger.settled() == 2


@given(st.lists(st.integers(0, 3), max_size=30), st.data())
def test_settled_is_the_highest_tag_below_which_all_is_done(outputs: list[int], data: st.DataObject) -> None:
    """Against the plain reading of that sentence."""
    ledger = Ledger()
    entries = [ledger.enter(tag) for tag in range(1, len(outputs) + 1)]
    for entry, count in zip(entries, outputs, strict=True):
        entry.open_outputs = count
    acknowledged = 0
    while True:
        done = [entry.tag for entry in entries if not any(e.open_outputs for e in entries[: entry.tag])]
        expected = max(done, default=0)
        assert ledger.settled() == (expected if expected > acknowledged else None)
        acknowledged = expected
        assert len(ledger) == len(entries) - acknowledged
        still_open = [entry for entry in entries if entry.open_outputs]
        if not still_open:
            return
        data.draw(st.sampled_from(still_open)).open_outputs -= 1
