from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from consumer.aside import AGAIN_S, Aside
from consumer.ports import Delivery, Status

if TYPE_CHECKING:
    from consumer.records import Message

SEEN = datetime(2026, 11, 30, 12, tzinfo=UTC)
DELIVERY = Delivery(7, b"body", deliveries=3, exchange="s3.events", routing_key="k", first_seen=SEEN)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def alerts(messages: list[Message]) -> list[tuple[str, object]]:
    """Key and number of letters of the alerts among messages."""
    told = [json.loads(message.body) for message in messages if message.queue == "alerts"]
    return [(alert["key"], alert["details"]["letters"]) for alert in told]


def test_a_letter_has_all_that_is_needed_to_handle_it_later() -> None:
    letter, _ = Aside("dead", "alerts", Status()).letters(DELIVERY, code="wrapped", reason="a wrapper")
    assert (letter.queue, letter.body) == ("dead", b"body")
    assert letter.headers == {
        "code": "wrapped",
        "reason": "a wrapper",
        "first_seen": "2026-11-30T12:00:00Z",
        "deliveries": "3",
        "exchange": "s3.events",
        "routing_key": "k",
    }


def test_a_part_can_be_set_aside_alone() -> None:
    letter, _ = Aside("dead", "alerts", Status()).letters(DELIVERY, code="bad", reason="r", body=b"part")
    assert letter.body == b"part"


def test_every_kind_is_alerted_once_and_again_after_some_time() -> None:
    clock = Clock()
    aside = Aside("dead", "alerts", Status(), clock=clock)
    assert alerts(aside.letters(DELIVERY, code="bad", reason="r")) == [("dead-letter:dead/bad", 1)]
    assert alerts(aside.letters(DELIVERY, code="bad", reason="r")) == []
    assert alerts(aside.letters(DELIVERY, code="other", reason="r")) == [("dead-letter:dead/other", 1)]
    clock.now += AGAIN_S
    assert alerts(aside.letters(DELIVERY, code="bad", reason="r")) == [("dead-letter:dead/bad", 3)]


def test_what_was_told_outlives_a_session() -> None:
    status = Status()
    for session in range(2):
        messages = Aside("dead", "alerts", status, clock=Clock()).letters(DELIVERY, code="bad", reason="r")
        assert len(alerts(messages)) == 1 - session
