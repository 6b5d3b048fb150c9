"""Finding out what is owed: every scope is looked at when a worker starts, and each one whose manifest has changed.

Whoever writes a manifest need not know that there are backfills and alerts.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import structlog

from blobmap.errors import BlobmapError
from consumer.retry import growing_delays
from consumer.told_before import covers
from consumer.until import until

if TYPE_CHECKING:
    from datetime import datetime

    from consumer.catalog import Catalog

_log = structlog.get_logger(__name__)

_AT_ONCE = 8


class Considers(Protocol):
    """Who sees to it that movers are told."""

    async def consider(self, bucket: str, scope: str, last_seen: datetime | None = None) -> None:
        """Publishes a task where a backfill is owed."""


class Settles(Protocol):
    """Who sees to it that alerts end."""

    async def settle(self, bucket: str, scope: str) -> None:
        """Resolves the alerts of a scope that is claimed now."""


class Owing:
    """Looks at scopes, again as long as that fails.

    Args:
        catalog: the manifests in force, loaded.
        backfills: asked about each scope.
        alerts: asked about each scope.
    """

    def __init__(self, catalog: Catalog, backfills: Considers, alerts: Settles) -> None:
        self._catalog = catalog
        self._backfills = backfills
        self._alerts = alerts
        self._due: dict[tuple[str, str], None] = {}
        self._noted = asyncio.Event()
        self._failing: dict[tuple[str, str], str] = {}
        catalog.listeners.append(self._note)

    async def keep(self, stop: asyncio.Event) -> None:
        """Looks at every scope, then at those that change.

        Args:
            stop: set to end it.
        """
        for bucket, trie in self._catalog.tries.items():
            for scope in trie.scopes():
                self._note(bucket, scope)
        await until(stop, self._keep())

    def _note(self, bucket: str, scope: str) -> None:
        self._due[bucket, scope] = None
        scopes = self._catalog.tries[bucket].scopes()
        if scope not in scopes:  # what belonged to it may belong to a scope around it now
            self._due |= {(bucket, outer): None for outer in scopes if covers(outer, scope)}
        self._noted.set()

    async def _keep(self) -> None:
        delays = growing_delays()
        while True:
            await self._noted.wait()
            self._noted.clear()
            due, self._due = list(self._due), {}
            limit = asyncio.Semaphore(_AT_ONCE)
            await asyncio.gather(*(self._look(*one, limit) for one in due))
            if not self._failing:
                delays = growing_delays()
                continue
            await asyncio.sleep(next(delays))
            self._due |= dict.fromkeys(self._failing)
            self._noted.set()

    async def _look(self, bucket: str, scope: str, limit: asyncio.Semaphore) -> None:
        """Looks at one scope, and keeps in mind whether that has failed."""
        async with limit:
            try:
                await self._backfills.consider(bucket, scope)
                await self._alerts.settle(bucket, scope)
            except BlobmapError as error:
                if self._failing.get((bucket, scope)) != str(error):
                    _log.warning("not looked at", bucket=bucket, scope=scope, reason=str(error))
                self._failing[bucket, scope] = str(error)
            else:
                self._failing.pop((bucket, scope), None)
