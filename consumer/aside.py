"""Setting messages aside: their dead letters, and an alert for each kind of fault.

The alert of a kind is told with the first letter, and with a later one where the last word is some time ago: a person
may have taken the letters away meanwhile. That this is over `dead drop` and `dead requeue` say; nobody else knows.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from consumer.alerts import Alert, alert_message
from consumer.records import dead_letter

if TYPE_CHECKING:
    from collections.abc import Callable

    from consumer.ports import Delivery, Status
    from consumer.records import Message

_log = structlog.get_logger(__name__)

# Receivers drop repeats by the key; a thousand bad messages are not worth a thousand of them.
AGAIN_S = 60.0


class Aside:
    """Writes dead letters, and the alerts that go with them.

    Args:
        dead: queue of the dead letters.
        alerts: queue of the alerts.
        status: what was told when, which outlives sessions.
        clock: seconds that only grow.
    """

    def __init__(self, dead: str, alerts: str, status: Status, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._dead = dead
        self._alerts = alerts
        self._status = status
        self._clock = clock

    def letters(self, delivery: Delivery, *, code: str, reason: str, body: bytes | None = None) -> list[Message]:
        """Writes what has to be published before a delivery is acknowledged.

        Args:
            delivery: what cannot be handled.
            code: kind of fault, one of few words.
            reason: the fault, one line.
            body: what is set aside, where that is not the whole delivery.

        Returns:
            A dead letter, and an alert where one is due.
        """
        _log.warning("refused", code=code, reason=reason, queue=self._dead, routing_key=delivery.routing_key)
        now = datetime.now(UTC)
        letter = dead_letter(
            self._dead,
            delivery.body if body is None else body,
            code=code,
            reason=reason,
            first_seen=delivery.first_seen or now,
            deliveries=delivery.deliveries,
            exchange=delivery.exchange,
            routing_key=delivery.routing_key,
        )
        self._status.set_aside[code] += 1
        alert = letters_alert(self._dead, code, letters=self._status.set_aside[code], reason=reason)
        told_s = self._status.told_aside_s.get(code)
        if told_s is not None and self._clock() - told_s < AGAIN_S:
            return [letter]
        self._status.told_aside_s[code] = self._clock()
        return [letter, alert_message(self._alerts, alert, now)]


def letters_alert(dead: str, code: str, *, letters: int, reason: str) -> Alert:
    """Writes the alert for dead letters of one kind; what it is told by is the same for all of them.

    Args:
        dead: queue of the dead letters.
        code: kind of fault.
        letters: how many a process has set aside since it began, 0 where none is left.
        reason: the latest fault.
    """
    left = f"messages were set aside as {code!r}, see `dead show`: {reason}"
    return Alert(
        "dead-letter",
        "warning",
        f"{dead}/{code}",
        left if letters else f"no message that was set aside as {code!r} is left",
        details={"queue": dead, "code": code, "letters": letters, "reason": reason},
    )
