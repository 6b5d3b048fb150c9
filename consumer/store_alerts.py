"""Alerts about stores: each is raised once in the life of its store, and is over when somebody claims it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

import structlog

from consumer.alerts import Alert, alert_message, store_subject
from consumer.memory import Memory, Raised, recall, remember

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from blobmap.resolve import Trie
    from blobmap.storage import Storage
    from consumer.alerts import Detail
    from consumer.catalog import Catalog
    from consumer.ports import Sink

_log = structlog.get_logger(__name__)

StoreAlertKind: TypeAlias = Literal["unmanaged-store", "unclaimed-array", "hot-outgrown"]

_SUMMARIES: Mapping[StoreAlertKind, str] = {
    "unmanaged-store": "nobody has cut {where}: its objects stay on disk",
    "unclaimed-array": "no rule of {where} claims some of its objects: they stay on disk",
    "hot-outgrown": "{where} keeps an array on disk for its size, and it has grown beyond that",
}
_RESOLVED: Mapping[StoreAlertKind, str] = {
    "unmanaged-store": "{where} is cut now",
    "unclaimed-array": "a rule of {where} claims them now",
    "hot-outgrown": "{where} has a rule for the array now",
}


class StoreAlerts:
    """Raises and resolves.

    Args:
        queue: queue of the alerts.
        sink: publishes.
        catalog: the manifests in force.
        now: the time of day, UTC.
    """

    def __init__(
        self, queue: str, sink: Sink, catalog: Catalog, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._queue = queue
        self._sink = sink
        self._catalog = catalog
        self._now = now
        self._settling = asyncio.Lock()  # what is resolved by one is seen by the next

    async def report(
        self, bucket: str, scope: str, kind: StoreAlertKind, key: str, details: Mapping[str, Detail] | None = None
    ) -> None:
        """Raises an alert, unless it was raised before. A kill between the two steps repeats it, with the same key.

        Args:
            bucket: name of the bucket.
            scope: of the store.
            kind: what is wrong.
            key: of an object that nobody claims.
            details: further figures and names.

        Raises:
            BlobmapError: the state of the scope cannot be read or written.
            LostError: the session is over; the alert may have been published.
        """
        storage = self._storage(bucket)
        memory, _ = await asyncio.to_thread(recall, storage, scope)
        if kind in memory.alerts:
            return
        await self._publish(bucket, scope, kind, {"first_object": key, **(details or {})}, resolved=False)
        await self._remember(storage, scope, kind, Raised(raised=self._now(), key=key))

    async def settle(self, bucket: str, scope: str, *, trie: Trie | None = None) -> None:
        """Resolves the alerts of a scope that somebody has claimed, whoever that was. Raises as `report`.

        Args:
            bucket: name of the bucket.
            scope: of the store.
            trie: what claims, where that is newer than what the catalog has.
        """
        async with self._settling:
            await self._settle(bucket, scope, trie or self._catalog.tries[bucket])

    async def _settle(self, bucket: str, scope: str, trie: Trie) -> None:
        storage = self._storage(bucket)
        memory, _ = await asyncio.to_thread(recall, storage, scope)
        for kind, raised in memory.alerts.items():
            if kind == "manifest-invalid" or raised.resolved is not None or not _is_over(trie, scope, kind, raised):
                continue
            await self._publish(bucket, scope, kind, {"first_object": raised.key}, resolved=True)
            await self._remember(storage, scope, kind, raised.model_copy(update={"resolved": self._now()}))

    def _storage(self, bucket: str) -> Storage:
        return self._catalog.store(bucket).storage

    async def _publish(
        self, bucket: str, scope: str, kind: StoreAlertKind, details: Mapping[str, Detail], *, resolved: bool
    ) -> None:
        where = repr(store_subject(bucket, scope))
        summary = (_RESOLVED if resolved else _SUMMARIES)[kind].format(where=where)
        alert = Alert(
            kind=kind,
            severity="warning",
            subject=store_subject(bucket, scope),
            summary=summary,
            bucket=bucket,
            scope=scope,
            details=details,
        )
        await self._sink.publish(alert_message(self._queue, alert, self._now(), resolved=resolved))
        _log.info("alert", key=alert.key, resolved=resolved, summary=summary)

    async def _remember(self, storage: Storage, scope: str, kind: StoreAlertKind, raised: Raised) -> None:
        def change(memory: Memory) -> Memory:
            return memory.model_copy(update={"alerts": {**memory.alerts, kind: raised}})

        await asyncio.to_thread(remember, storage, scope, change)


def _is_over(trie: Trie, scope: str, kind: StoreAlertKind, raised: Raised) -> bool:
    """A store is managed as soon as it has a manifest; of an object only its own claim can tell."""
    if kind == "unmanaged-store" and scope in trie.scopes():
        return True
    return trie.lookup(raised.key).kind not in ("unmanaged", "hot" if kind == "hot-outgrown" else "unmanaged")
