from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from consumer.letters import Letter, read_letter
from consumer.records import dead_letter


def test_what_we_wrote_is_read_again() -> None:
    message = dead_letter(
        "dead",
        b"body",
        code="bad-record",
        reason="why",
        first_seen=datetime(2026, 11, 30, 12, tzinfo=UTC),
        deliveries=3,
        exchange="s3.events",
        routing_key="k",
    )
    assert read_letter(message.headers, message.body) == Letter(
        "bad-record", "why", "2026-11-30T12:00:00Z", 3, "s3.events", "k", b"body"
    )


def test_what_the_broker_gave_up_is_known_by_its_death() -> None:
    """The header as RabbitMQ's guide on dead lettering describes it."""
    death = {
        "count": 1,
        "reason": "delivery_limit",
        "queue": "blobmap.events",
        "time": datetime(2026, 11, 30, 12, tzinfo=UTC),
        "exchange": "s3.events",
        "routing-keys": ["k"],
    }
    assert read_letter({"x-death": [death], "x-delivery-count": 200}, b"x") == Letter(
        "delivery-limit",
        "given up by the broker in queue 'blobmap.events'",
        "2026-11-30T12:00:00+00:00",
        201,
        "s3.events",
        "k",
        b"x",
    )


@pytest.mark.parametrize("headers", [{}, {"x-death": []}, {"x-death": "x"}, {"x-death": ["x"]}, {"other": 1}])
def test_a_letter_without_a_word_came_from_nobody_knows_where(headers: dict[str, Any]) -> None:
    letter = read_letter(headers, b"x")
    assert (letter.code, letter.exchange, letter.first_seen, letter.deliveries) == ("unknown", None, None, None)
    assert "nobody knows where" in str(letter)


def test_odd_headers_are_unknown_values() -> None:
    letter = read_letter({"code": "c", "deliveries": "many"}, b"")
    assert (letter.deliveries, letter.exchange, letter.first_seen, letter.reason) == (None, None, None, "")
    assert read_letter({"x-death": [{}]}, b"").exchange is None


def test_a_letter_is_two_lines_whatever_is_in_it() -> None:
    letter = Letter("c", "why\n\x1b[31m", "2026", 1, "", "k\n", "é\n".encode() + b"\xff\x1b" + b"x" * 500)
    lines = str(letter).split("\n")
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)
    assert lines[0] == "2026  c  delivered 1 times  from '' 'k\\n'  why\\n\\x1b[31m"
    assert lines[1].startswith("    é\\n\\\\xff\\x1bxxx") or lines[1].startswith("    é\\n\\xff\\x1bxxx")
    assert lines[1].endswith("x...")


def test_a_body_that_is_no_text_is_base64_in_json() -> None:
    assert Letter("c", "", None, None, None, "", b"text").to_json()["body"] == "text"
    document = Letter("c", "", None, None, None, "", b"\xff").to_json()
    assert (document["body_base64"], "body" in document) == ("/w==", False)
