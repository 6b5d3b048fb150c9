"""Alerts about manifests that cannot be used: kept until a session takes them, the latest word about each."""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from consumer.alerts import Alert, alert_message, store_subject
from consumer.outputs import Outputs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from consumer.ports import Sink, Status
    from consumer.records import Message


class ManifestAlerts:
    """What has to be said about manifests, and is not yet.

    Args:
        queue: queue of the alerts.
        status: where it is said too.
    """

    def __init__(self, queue: str, status: Status) -> None:
        self._queue = queue
        self._status = status
        self._waiting: dict[str, Message] = {}
        self._more = asyncio.Event()

    def tell(self, bucket: str, scope: str, reason: str | None) -> None:
        """Takes down that a manifest cannot be used, or (None) that this is over."""
        subject = store_subject(bucket, scope)
        summary = f"the manifest of {subject!r} can be used again" if reason is None else reason
        alert = Alert("manifest-invalid", "warning", subject, summary, bucket, scope)
        if reason is None:
            self._status.alerts.pop(alert.key, None)
        else:
            self._status.alerts[alert.key] = summary
        self._waiting[alert.key] = alert_message(self._queue, alert, datetime.now(UTC), resolved=reason is None)
        self._more.set()

    @asynccontextmanager
    async def published(self, sink: Sink) -> AsyncIterator[None]:
        """Publishes, as long as the context lasts, what waits and what comes; what is not confirmed waits on."""
        task = asyncio.create_task(self._publish(sink))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _publish(self, sink: Sink) -> None:
        outputs = Outputs(self._status, patience_s=math.inf)  # it ends with the session only
        while True:
            self._more.clear()
            for key, message in tuple(self._waiting.items()):
                await outputs.publish(sink.publish, message)
                if self._waiting.get(key) is message:
                    del self._waiting[key]
            await self._more.wait()
