"""A bucket, its manifests and workers that backfill it: real listings, manifests and memories, and queues in memory.

Time is turned by hand, so that a lease passes at once. A worker can be killed before or after each thing that it does
to the world.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from blobmap import ManifestStore
from blobmap.storage import StorageOptions, open_storage
from consumer.backfill import BackfillPlan, Backfills
from consumer.catalog import Catalog
from consumer.memory import recall, remember
from consumer.scope_backfill import Pace
from consumer.telling import Addressees
from consumer.topology import wait_queue

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from blobmap.manifest import Manifest
    from blobmap.storage import Storage
    from consumer.memory import Memory
    from consumer.records import Message

LEASE_S = 120.0
WAITING = wait_queue("tasks", LEASE_S)
START = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Time:
    """The time of day and a clock, both turned by hand."""

    def __init__(self) -> None:
        self.passed_s = 0.0

    def clock(self) -> float:
        return self.passed_s

    def now(self) -> datetime:
        return START + timedelta(seconds=self.passed_s)


class Killed(BaseException):
    """A worker ends at once, as by SIGKILL."""


@dataclass
class Fate:
    """When a worker is killed: at that step of all that are counted; None: never."""

    at: int | None = None
    steps: int = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.at:
            raise Killed


@dataclass
class Queues:
    """What was published, by queue; a sink."""

    messages: defaultdict[str, list[Message]] = field(default_factory=lambda: defaultdict(list))
    fate: Fate = field(default_factory=Fate)

    async def publish(self, message: Message) -> None:
        self.fate.step()
        await asyncio.sleep(0)
        self.messages[message.queue].append(message)
        self.fate.step()

    def records(self, queue: str = "objects.one") -> list[dict[str, Any]]:
        return [record for message in self.messages[queue] for record in json.loads(message.body)["records"]]

    def told(self, queue: str = "objects.one") -> set[tuple[str, str, str]]:
        """Key, scope and blob of each record."""
        return {(record["key"], record["scope"], record["blob_id"]) for record in self.records(queue)}

    def journalled(self) -> list[tuple[dict[str, Any], list[Any]]]:
        """Each entry with the group that it is in."""
        bodies = (json.loads(message.body) for message in self.messages["journal"])
        return [(group, entry) for body in bodies for group in body["told"] for entry in group["entries"]]


class Site:
    """Bucket `b`, told to movers `one` and `two`.

    Args:
        directory: where the manifests lie.
        data: opens the bucket.
        range_s: seconds after which a task hands over; 0: after each page.
    """

    def __init__(self, directory: Path, data: Callable[[], Storage], *, range_s: float = 300.0) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.root = str(directory)
        self.manifests = ManifestStore(open_storage(self.root, StorageOptions()))
        self.queues = Queues()
        self.time = Time()
        self._data = data
        self._pace = Pace(lease_s=LEASE_S, range_s=range_s, heartbeat_s=0)

    def write(self, manifest: Manifest) -> None:
        """Writes a manifest, over the one that is there."""
        etag = None
        if manifest.scope in set(self.manifests.scopes()):
            etag = self.manifests.read(manifest.scope).etag
        self.manifests.write(manifest, etag=etag)

    async def worker(self) -> Worker:
        """Starts a worker, which reads the manifests."""
        worker = Worker(self, self._data, self._pace)
        await worker.refresh()
        return worker

    def memory(self, scope: str) -> Memory:
        return recall(self.manifests.storage, scope)[0]

    def change(self, scope: str, change: Callable[[Memory], Memory]) -> None:
        remember(self.manifests.storage, scope, change)


class Worker:
    """One process."""

    def __init__(self, site: Site, data: Callable[[], Storage], pace: Pace) -> None:
        self._site = site
        self.catalog = Catalog(
            {"b": (site.root, StorageOptions())}, refresh_s=60, lease_s=LEASE_S, give_up_s=5, clock=site.time.clock
        )
        movers = {"one": "objects.one", "two": "objects.two"}
        plan = BackfillPlan("tasks", {"b": Addressees("b", movers, journal="journal", batch_objects=2)}, pace)
        self.backfills = Backfills(
            plan, self.catalog, {"b": data}, sink=site.queues, clock=site.time.clock, now=site.time.now
        )
        known = self.backfills._known
        untouched = known.remember

        async def remembered(bucket: str, scope: str, change: Callable[[Memory], Memory]) -> Memory:
            site.queues.fate.step()
            memory = await untouched(bucket, scope, change)
            site.queues.fate.step()
            return memory

        known.remember = remembered  # type: ignore[method-assign]  # a worker can be killed there

    async def refresh(self) -> None:
        """Compares the manifests with what is stored."""
        await self.catalog.load()

    async def pass_lease(self) -> None:
        """A lease passes, after which the manifests are compared once more."""
        await self.refresh()
        self._site.time.passed_s += LEASE_S
        await self.refresh()

    async def handle_next(self) -> None:
        """Handles one task, and acknowledges it."""
        tasks = self._site.queues.messages["tasks"]
        message = tasks[0]
        await self.backfills.handle(message.body, self._site.queues)
        tasks.remove(message)

    async def work(self) -> None:
        """Handles tasks until there are none, also of those that wait."""
        messages = self._site.queues.messages
        for _ in range(1000):
            if messages["tasks"]:
                await self.handle_next()
            elif messages[WAITING]:
                await self.pass_lease()
                messages["tasks"] += messages.pop(WAITING)
            else:
                return
        raise AssertionError("tasks without end")

    async def backfill(self, *scopes: str) -> None:
        """Does what is owed of these scopes."""
        await self.refresh()
        for scope in scopes:
            await self.backfills.consider("b", scope)
        await self.work()
