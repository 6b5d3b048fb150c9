"""One task of a scope's backfill: taken where nobody else sees to it, told, handed over or brought to its end."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import structlog

from blobmap import Trie
from blobmap.store_keys import is_addressable
from consumer.backfill_steps import beaten, ended, handed_over, is_overtaken, taken
from consumer.key_range import KeyRange, tell_range
from consumer.owed import is_owed, is_to_do
from consumer.tasks import Task
from consumer.telling import telling
from consumer.told_before import ToldBefore, related
from consumer.until import set_within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from blobmap.manifest import Manifest
    from blobmap.storage import Storage
    from consumer.backfill_known import BackfillKnown
    from consumer.catalog import Catalog
    from consumer.memory import Backfilling
    from consumer.ports import Sink
    from consumer.telling import Addressees

_log = structlog.get_logger(__name__)

# How many range limits a chain may be silent before another one takes its place.
_SILENT_RANGES = 3

# For a manifest that was announced, and that this process has been asked to read.
_READ_S = 5.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things take.

    Attributes:
        lease_s: seconds after which no process decides without a manifest that this one has read.
        range_s: seconds after which a task hands over to the next one; the broker takes a delivery away after 30
            minutes, as it is shipped.
        heartbeat_s: seconds from one heartbeat to the next.
    """

    lease_s: float
    range_s: float = 300.0
    heartbeat_s: float = 30.0

    @property
    def alive_s(self) -> float:
        """Seconds after its last heartbeat in which a chain is taken for alive."""
        return _SILENT_RANGES * max(self.range_s, self.heartbeat_s)


@dataclass(frozen=True, slots=True)
class Follows:
    """What has to be published after a task, before it is acknowledged.

    Attributes:
        task: a task.
        waits: whether it has to wait.
        safe: what to do as soon as it is confirmed.
    """

    task: Task
    waits: bool = False
    safe: Callable[[], Awaitable[object]] | None = None


class ScopeBackfill:
    """Does tasks of scopes.

    Args:
        catalog: the manifests in force, kept fresh.
        known: what is stored and remembered.
        pace: how long things take.
        clock: that of the catalog.
        now: the time of day, UTC.
    """

    def __init__(
        self,
        catalog: Catalog,
        known: BackfillKnown,
        pace: Pace,
        *,
        clock: Callable[[], float],
        now: Callable[[], datetime],
    ) -> None:
        self._catalog = catalog
        self._known = known
        self._pace = pace
        self._clock = clock
        self._now = now
        self._exchanged = asyncio.Event()
        catalog.listeners.append(lambda _bucket, _scope: self._exchanged.set())

    async def do(self, task: Task, to: Addressees, *, sink: Sink, data: Callable[[], Storage]) -> Follows | None:
        """Does a task. Returns when all that it told is confirmed.

        Args:
            task: the task; its prefix is its scope.
            to: who is told.
            sink: publishes records and lines of the journal.
            data: opens the bucket.

        Returns:
            What follows, if anything.

        Raises:
            LostError: the session is over.
            BlobmapError: manifests or bucket cannot be read; nothing is lost.
        """
        bucket, scope, epoch = task.bucket, task.prefix, task.epoch
        manifest = await self._known.manifest(bucket, scope)
        if manifest is None:
            return None
        memory = await self._known.recall(bucket, scope)
        scopes = self._known.scopes(bucket, memory)
        if is_overtaken(memory, task) or not is_to_do(
            memory, task.run, manifest.epoch, scopes, self._now(), alive_s=self._pace.alive_s
        ):
            return None
        is_new = memory.backfilling is None or memory.backfilling.run != task.run
        if manifest.epoch != epoch or (is_new and task.after is not None):
            return Follows(first_task(bucket, scope, manifest.epoch))
        in_force = await self._in_force(bucket, scope, epoch)
        if in_force is None or any(name not in in_force for name in related(scope, scopes)):
            return Follows(task, waits=True)
        ours = await self._take(task, in_force, scopes)
        if ours is None:
            return None
        told = ToldBefore() if ours.whole else await self._known.told_before(bucket, scope, in_force)
        trie = Trie()
        trie.add_all(in_force.values())  # that very epoch decides about all of the range, whatever comes meanwhile
        keys = KeyRange(
            await asyncio.to_thread(data),
            scope,
            ours.reached or ours.after,
            trie.lookup,
            lambda entry, found: not told.has(entry["path"], entry["last_modified"], found),
        )
        return await self._tell(task, in_force[scope], keys, to, sink=sink)

    async def _take(self, task: Task, in_force: Mapping[str, Manifest], scopes: Collection[str]) -> Backfilling | None:
        """Takes a task; None where another worker has been faster."""
        change = partial(
            taken,
            task=task,
            epoch=in_force[task.prefix].epoch,
            scopes=scopes,
            around=_epochs(in_force, task.prefix),
            now=self._now(),
            alive_s=self._pace.alive_s,
        )
        ours = (await self._known.remember(task.bucket, task.prefix, change)).backfilling
        return ours if ours is not None and ours.run == task.run else None

    async def _in_force(self, bucket: str, scope: str, epoch: int) -> Mapping[str, Manifest] | None:
        """What decides about the keys of a scope; None as long as a process may decide without that epoch."""
        read_at = self._catalog.read_at
        if read_at(bucket, scope, epoch) is None:
            self._exchanged.clear()
            self._catalog.ask(bucket, scope)
            await set_within(self._exchanged, _READ_S)
        since_s = read_at(bucket, scope, epoch)
        if since_s is None or self._clock() - since_s < self._pace.lease_s:
            return None
        in_force = self._held(bucket, scope)
        return in_force if scope in in_force and in_force[scope].epoch == epoch else None

    def _held(self, bucket: str, scope: str) -> Mapping[str, Manifest]:
        """The manifests of a scope, and of those around and inside."""
        trie = self._catalog.tries[bucket]
        names = (scope, *related(scope, trie.scopes()))
        return {name: held for name in names if (held := trie.manifest(name)) is not None}

    async def _tell(
        self, task: Task, manifest: Manifest, keys: KeyRange, to: Addressees, *, sink: Sink
    ) -> Follows | None:
        bucket, scope, storage = task.bucket, manifest.scope, keys.storage
        heart = _Heart(partial(self._beat, bucket, scope, task.run), self._pace.heartbeat_s)
        async with telling(to, sink) as teller:
            rest = await tell_range(keys, to, teller, most_s=self._pace.range_s, tick=heart.tick)
        if heart.stopped:
            return None
        gaps = tuple(gap for gap in storage.gaps(scope) if _matters(gap, storage))
        log_told(task, teller.count, rest, gaps)
        if rest is None:
            return await self._end(task, manifest, is_whole_listing=not gaps)
        change = partial(handed_over, run=task.run, after=rest, now=self._now())
        return Follows(
            task.model_copy(update={"after": rest}), safe=lambda: self._known.remember(bucket, scope, change)
        )

    async def _end(self, task: Task, manifest: Manifest, *, is_whole_listing: bool) -> Follows | None:
        """Remembers what was told, and goes on with what has become owed meanwhile."""
        bucket, scope = task.bucket, manifest.scope
        stored = await self._known.manifest(bucket, scope)
        change = partial(
            ended,
            run=task.run,
            manifest=manifest,
            around=_epochs(self._held(bucket, scope), scope),
            is_whole_listing=is_whole_listing,
        )
        memory = await self._known.remember(bucket, scope, change)
        if stored is None or not is_whole_listing:
            return None
        is_more = is_owed(memory, stored.epoch, self._known.scopes(bucket, memory))
        return Follows(first_task(bucket, scope, stored.epoch)) if is_more else None

    async def _beat(self, bucket: str, scope: str, run: str, reached: str | None) -> bool:
        """Says that a chain is alive; false where another one has taken its place."""
        beat = partial(beaten, run=run, reached=reached, now=self._now())
        memory = await self._known.remember(bucket, scope, beat)
        return memory.backfilling is not None and memory.backfilling.run == run


class _Heart:
    """Beats now and then while a range is told.

    Args:
        beat: says that it is alive, and how far it is; false to give up.
        every_s: seconds from one beat to the next.

    Attributes:
        stopped: whether it was told to give up.
    """

    def __init__(self, beat: Callable[[str | None], Awaitable[bool]], every_s: float) -> None:
        self._beat = beat
        self._every_s = every_s
        self._next_s = time.monotonic() + every_s
        self.stopped = False

    async def tick(self, reached: str | None) -> bool:
        """Beats if it is time to; whether to go on."""
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + self._every_s
            self.stopped = not await self._beat(reached)
        return not self.stopped


def first_task(bucket: str, scope: str, epoch: int) -> Task:
    """The task that the backfill of a scope begins with."""
    return Task(run=secrets.token_hex(8), bucket=bucket, scope=scope, epoch=epoch, prefix=scope)


def log_told(task: Task, count: int, rest: str | None, gaps: Sequence[str]) -> None:
    """Says what a task has come to."""
    _log.info("backfill", bucket=task.bucket, prefix=task.prefix, epoch=task.epoch, told=count, done=rest is None)
    if gaps:
        _log.error("not listed whole", bucket=task.bucket, prefix=task.prefix, gaps=list(gaps))


def _epochs(in_force: Mapping[str, Manifest], scope: str) -> dict[str, int]:
    return {name: held.epoch for name, held in in_force.items() if name != scope}


def _matters(gap: str, storage: Storage) -> bool:
    """Whether a gap may hide an object that can be told: a key that nobody can address belongs to no blob of ours."""
    return gap not in storage.odd_keys and is_addressable(gap)
