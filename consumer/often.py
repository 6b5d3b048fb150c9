"""Messages that come again and again: an alert long before the broker sets them aside, and its end.

The broker counts each time that a message goes back to its queue, and gives up on it at the limit in `topology`. A few
restarts are no reason to alert; so many returns have one that somebody has to find.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from blobmap.errors import UnavailableError
from consumer.alerts import Alert, alert_message
from consumer.ports import LostError
from consumer.retry import growing_delays
from consumer.topology import DELIVERY_LIMIT
from consumer.until import set_within

if TYPE_CHECKING:
    from consumer.ports import Delivery, Sink, Status

_log = structlog.get_logger(__name__)

# Far below the broker's limit, and far above what a few restarts cause: somebody should look.
OFTEN = 20


class Often:
    """What was delivered often in one session and is not acknowledged yet.

    Args:
        queue: the queue that the deliveries come from.
        alerts: queue of the alerts.
        sink: where alerts go; one that cannot be published is tried again, and holds up nothing.
        status: where it is counted, and what tells whether the alert was raised in another session.
        tasks: where alerts are published.
    """

    def __init__(self, queue: str, alerts: str, *, sink: Sink, status: Status, tasks: asyncio.TaskGroup) -> None:
        self._queue = queue
        self._alerts = alerts
        self._sink = sink
        self._status = status
        self._tasks = tasks
        self._tags: set[int] = set()
        self._most = 0
        self._telling: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()

    def note(self, delivery: Delivery) -> None:
        """Takes down one that has come often."""
        self._status.counts["delivered often"] += 1
        if delivery.deliveries % OFTEN == 0:
            _log.warning("delivered often", deliveries=delivery.deliveries, routing_key=delivery.routing_key)
        self._tags.add(delivery.tag)
        self._most = max(self._most, delivery.deliveries)
        self._tell()

    def acknowledged(self, tag: int) -> None:
        """Every delivery up to this tag is done."""
        if self._tags:
            self._tags = {unacknowledged for unacknowledged in self._tags if unacknowledged > tag}
            self._tell()

    def end(self) -> None:
        """Nothing more will come: what cannot be told at once is left untold."""
        self._ending.set()

    def _tell(self) -> None:
        if self._telling is None or self._telling.done():
            self._telling = self._tasks.create_task(self._until_told())

    async def _until_told(self) -> None:
        for delay in growing_delays():
            raised = bool(self._tags)
            alert = self._alert()
            if raised == (alert.key in self._status.alerts):
                return
            message = alert_message(self._alerts, alert, datetime.now(UTC), resolved=not raised)
            try:
                await self._sink.publish(message)
            except LostError:  # the session tells of that itself
                return
            except UnavailableError as error:
                _log.warning("alert not published", key=alert.key, reason=str(error))
                if await set_within(self._ending, delay):
                    return
            else:
                self._keep(alert, raised=raised)

    def _alert(self) -> Alert:
        return Alert(
            "dead-letter",
            "warning",
            f"{self._queue}/delivered-often",
            f"messages of queue {self._queue!r} come again and again, one was delivered {self._most} times;"
            f" after {DELIVERY_LIMIT} times the broker sets it aside",
            details={"queue": self._queue, "deliveries": self._most, "limit": DELIVERY_LIMIT},
        )

    def _keep(self, alert: Alert, *, raised: bool) -> None:
        if raised:
            self._status.alerts[alert.key] = alert.summary
        else:
            del self._status.alerts[alert.key]
