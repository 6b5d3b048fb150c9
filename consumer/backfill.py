"""Backfills: telling movers what exists and was not told, a range of keys at a time, in tasks that any worker takes.

A task is done when the one that goes on, or the end of the chain, is written down; so a worker that is killed anywhere
leaves a task that begins where the one before it ended. That one is owed is found out by `owing`.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import structlog

from blobmap import Trie
from blobmap.errors import BlobmapError, UnreadableError, UsageError
from blobmap.store_keys import is_addressable
from consumer.backfill_steps import beaten, ended, handed_over, is_overtaken, suspected, taken
from consumer.key_range import KeyRange, tell_range
from consumer.memory import Memory, recall, remember
from consumer.outputs import StuckError
from consumer.owed import is_alive, is_late, is_owed
from consumer.ports import LostError
from consumer.tasks import Task, parse_task, task_message
from consumer.telling import telling
from consumer.told_before import ToldBefore, related, told_before
from consumer.topology import wait_queue
from consumer.until import set_within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from blobmap.manifest import Manifest
    from blobmap.storage import Storage
    from consumer.catalog import Catalog
    from consumer.ports import Sink
    from consumer.telling import Addressees

T = TypeVar("T")

_log = structlog.get_logger(__name__)

# A task is over long before the broker takes it away again (30 minutes, as it is shipped).
_RANGE_S = 300.0
_HEARTBEAT_S = 30.0

# How many range limits a chain may be silent before another one takes its place.
_SILENT_RANGES = 3

# For a manifest that was announced, and that this process has been asked to read.
_READ_S = 5.0

_READERS = 8


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """What of the configuration backfills need.

    Attributes:
        tasks: queue of the tasks.
        lease_s: seconds after which no process decides without a manifest that this one has read.
        addressees: for each bucket who is told what lies in it.
    """

    tasks: str
    lease_s: float
    addressees: Mapping[str, Addressees]


class Backfills:
    """Publishes tasks, and does them.

    Args:
        plan: what the configuration says.
        catalog: the manifests in force, kept fresh.
        data: opens each bucket that can be listed; called in a thread.
        sink: publishes what no delivery waits for.
        range_s: seconds after which a task hands over to the next one.
        heartbeat_s: seconds from one heartbeat to the next.
        clock: that of the catalog.
        now: the time of day, UTC.
    """

    def __init__(
        self,
        plan: BackfillPlan,
        catalog: Catalog,
        data: Mapping[str, Callable[[], Storage]],
        *,
        sink: Sink,
        range_s: float = _RANGE_S,
        heartbeat_s: float = _HEARTBEAT_S,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._plan = plan
        self._catalog = catalog
        self._data = data
        self._sink = sink
        self._range_s = range_s
        self._heartbeat_s = heartbeat_s
        self._alive_s = _SILENT_RANGES * max(range_s, heartbeat_s)
        self._clock = clock
        self._now = now
        self._exchanged = asyncio.Event()
        catalog.listeners.append(lambda _bucket, _scope: self._exchanged.set())

    # --- what is owed

    async def consider(self, bucket: str, scope: str, last_seen: datetime | None = None) -> None:
        """Publishes a task where a backfill is owed and nobody sees to it. Returns when it is confirmed.

        Args:
            bucket: name of the bucket.
            scope: any scope; one that has no manifest owes nothing.
            last_seen: UTC; when an object was last seen unclaimed that is claimed now.

        Raises:
            LostError: the session is over.
            UnavailableError: manifest root or queue cannot be reached.
            BlobmapError: what is stored cannot be read.
        """
        if bucket not in self._data:
            return
        manifest = await self._stored(bucket, scope)
        if manifest is None:
            return
        memory, _ = await asyncio.to_thread(recall, self._root(bucket), scope)
        if last_seen is not None and is_late(memory, manifest.epoch, last_seen):
            memory = await self._remember(bucket, scope, suspected)
        if not is_owed(memory, manifest.epoch, self._scopes(bucket, memory)):
            return
        # One that is alive and finds that something is suspect begins again by itself.
        if is_alive(memory, "", manifest.epoch, self._now(), alive_s=self._alive_s):
            return
        await self._publish(_first(bucket, scope, manifest.epoch), self._sink)

    # --- the tasks

    async def handle(self, body: bytes, sink: Sink) -> None:
        """Does one task. Returns when everything that it causes is confirmed.

        A task that cannot be done now goes to the queue where tasks wait.

        Args:
            body: the task.
            sink: publishes in the session of the delivery: records, lines of the journal, and tasks.

        Raises:
            UsageError: it is no task, or one for a bucket or a mover that is not configured.
            LostError: the session is over.
            StuckError: a queue took nothing for too long.
        """
        task = parse_task(body)
        to = self._addressees(task)
        await self._catalog.fresh()
        try:
            if task.scope is None:
                await self._do_by_hand(task, to, sink)
            elif task.epoch is None:
                raise UsageError(f"a task for scope {task.scope!r} without an epoch")
            else:
                await self._do_scope(task, task.scope, task.epoch, to, sink)
        except (LostError, StuckError):
            raise
        except BlobmapError as error:
            _log.warning("backfill put off", bucket=task.bucket, prefix=task.prefix, reason=str(error))
            await self._later(task, sink)

    async def _do_by_hand(self, task: Task, to: Addressees, sink: Sink) -> None:
        storage = await self._open(task.bucket)
        since = task.since
        keys = KeyRange(
            storage,
            task.prefix,
            task.after,
            self._catalog.tries[task.bucket].lookup,
            lambda entry, _: since is None or entry["last_modified"] >= since,
        )
        async with telling(to, sink) as teller:
            rest = await tell_range(keys, to, teller, most_s=self._range_s, tick=_go_on)
        self._say("backfilled by hand", task, teller.count, rest, storage.gaps(task.prefix))
        if rest is not None:
            await self._publish(task.model_copy(update={"after": rest}), sink)

    async def _do_scope(self, task: Task, scope: str, epoch: int, to: Addressees, sink: Sink) -> None:
        bucket = task.bucket
        manifest = await self._stored(bucket, scope)
        if manifest is None:
            return
        memory, _ = await asyncio.to_thread(recall, self._root(bucket), scope)
        scopes = self._scopes(bucket, memory)
        if not is_owed(memory, manifest.epoch, scopes):
            return
        if is_alive(memory, task.run, epoch, self._now(), alive_s=self._alive_s) or is_overtaken(memory, task):
            return
        is_ours = memory.backfilling is not None and memory.backfilling.run == task.run
        if manifest.epoch != epoch or (task.after is not None and not is_ours):
            await self._publish(_first(bucket, scope, manifest.epoch), sink)
            return
        in_force = await self._in_force(bucket, scope, epoch)
        if in_force is None or any(name not in in_force for name in related(scope, scopes)):
            await self._later(task, sink)
            return
        around = {name: one.epoch for name, one in in_force.items() if name != scope}
        change = partial(
            taken, task=task, epoch=epoch, scopes=scopes, around=around, now=self._now(), alive_s=self._alive_s
        )
        memory = await self._remember(bucket, scope, change)
        if memory.backfilling is None or memory.backfilling.run != task.run:
            return
        await self._tell_scope(task, memory, in_force, to, sink)

    async def _tell_scope(
        self, task: Task, memory: Memory, in_force: Mapping[str, Manifest], to: Addressees, sink: Sink
    ) -> None:
        """Does a task that is taken."""
        ours, bucket = memory.backfilling, task.bucket
        if ours is None:  # it would not be taken
            return
        manifest = in_force[task.prefix]
        before = ToldBefore() if ours.whole else await self._told_before(bucket, manifest, memory, in_force)
        trie = Trie()
        trie.add_all(in_force.values())  # this very epoch decides about all of the range, whatever comes meanwhile
        storage = await self._open(bucket)
        keys = KeyRange(
            storage,
            manifest.scope,
            ours.reached or ours.after,
            trie.lookup,
            lambda entry, found: not before.has(entry["path"], entry["last_modified"], found),
        )
        heart = _Heart(partial(self._beat, bucket, manifest.scope, task.run), self._heartbeat_s)
        async with telling(to, sink) as teller:
            rest = await tell_range(keys, to, teller, most_s=self._range_s, tick=heart.tick)
        if heart.stopped:
            return
        gaps = _gaps(storage, manifest.scope)
        self._say("backfilled", task, teller.count, rest, gaps)
        if rest is not None:
            await self._publish(task.model_copy(update={"after": rest, "began": ours.began}), sink)
            await self._remember(
                bucket, manifest.scope, partial(handed_over, run=task.run, after=rest, now=self._now())
            )
            return
        await self._end(task.run, bucket, manifest, sink, is_whole_listing=not gaps)

    async def _end(self, run: str, bucket: str, manifest: Manifest, sink: Sink, *, is_whole_listing: bool) -> None:
        """Remembers what was told, and goes on with what has become owed meanwhile."""
        scope = manifest.scope
        stored = await self._stored(bucket, scope)
        trie = self._catalog.tries[bucket]
        around = {name: held.epoch for name in related(scope, trie.scopes()) if (held := trie.manifest(name))}
        change = partial(ended, run=run, manifest=manifest, around=around, is_whole_listing=is_whole_listing)
        memory = await self._remember(bucket, scope, change)
        if stored is not None and is_whole_listing and is_owed(memory, stored.epoch, self._scopes(bucket, memory)):
            await self._publish(_first(bucket, scope, stored.epoch), sink)

    # --- what is known

    def _addressees(self, task: Task) -> Addressees:
        to = self._plan.addressees.get(task.bucket)
        if to is None or task.bucket not in self._data:
            raise UsageError(f"bucket {task.bucket!r} is not configured, or has no `data` that could be listed")
        if task.mover is None:
            return to
        if task.mover not in to.movers:
            raise UsageError(f"mover {task.mover!r} of bucket {task.bucket!r} is none of {', '.join(to.movers)}")
        return replace(to, movers={task.mover: to.movers[task.mover]})

    async def _stored(self, bucket: str, scope: str) -> Manifest | None:
        """The manifest that is stored; where there is none that can be used, what was told is not to be relied on."""
        try:
            held = await asyncio.to_thread(self._catalog.store(bucket).read, scope)
        except UnreadableError as error:
            _log.warning("manifest cannot be used", bucket=bucket, scope=scope, reason=str(error))
            await self._remember(bucket, scope, suspected)
            return None
        return held.manifest

    def _scopes(self, bucket: str, memory: Memory) -> set[str]:
        """The scopes that have a manifest, be it a broken one; of these, those that matter here."""
        known = _around(memory)
        return {*self._catalog.tries[bucket].scopes(), *(name for name in known if self._catalog.invalid(bucket, name))}

    async def _in_force(self, bucket: str, scope: str, epoch: int) -> Mapping[str, Manifest] | None:
        """What decides about the keys of a scope; None as long as a process may decide without that epoch."""
        read_at = self._catalog.read_at
        if read_at(bucket, scope, epoch) is None:
            self._exchanged.clear()
            self._catalog.ask(bucket, scope)
            await set_within(self._exchanged, _READ_S)
        since = read_at(bucket, scope, epoch)
        if since is None or self._clock() - since < self._plan.lease_s:
            return None
        trie = self._catalog.tries[bucket]
        names = [scope, *related(scope, trie.scopes())]
        in_force = {name: held for name in names if (held := trie.manifest(name)) is not None}
        return in_force if scope in in_force and in_force[scope].epoch == epoch else None

    async def _told_before(
        self, bucket: str, manifest: Manifest, memory: Memory, in_force: Mapping[str, Manifest]
    ) -> ToldBefore:
        scope = manifest.scope
        names = {*in_force, *_around(memory)} - {scope}
        limit = asyncio.Semaphore(_READERS)

        async def one(name: str) -> Memory:
            async with limit:
                return (await asyncio.to_thread(recall, self._root(bucket), name))[0]

        memories = dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))
        epochs = {name: held.epoch for name, held in in_force.items()}
        return await asyncio.to_thread(told_before, scope, {**memories, scope: memory}, epochs)

    # --- what is done

    async def _beat(self, bucket: str, scope: str, run: str, reached: str | None) -> bool:
        """Says that a chain is alive; false where another one has taken its place."""
        memory = await self._remember(bucket, scope, partial(beaten, run=run, reached=reached, now=self._now()))
        return memory.backfilling is not None and memory.backfilling.run == run

    async def _publish(self, task: Task, sink: Sink) -> None:
        await sink.publish(task_message(self._plan.tasks, task))

    async def _later(self, task: Task, sink: Sink) -> None:
        await sink.publish(task_message(wait_queue(self._plan.tasks, self._plan.lease_s), task))

    async def _open(self, bucket: str) -> Storage:
        return await asyncio.to_thread(self._data[bucket])

    def _root(self, bucket: str) -> Storage:
        return self._catalog.store(bucket).storage

    async def _remember(self, bucket: str, scope: str, change: Callable[[Memory], Memory]) -> Memory:
        return await asyncio.to_thread(remember, self._root(bucket), scope, change)

    def _say(self, what: str, task: Task, count: int, rest: str | None, gaps: Collection[str]) -> None:
        _log.info(what, bucket=task.bucket, prefix=task.prefix, epoch=task.epoch, told=count, goes_on=rest is not None)
        if gaps:
            _log.error("not listed whole", bucket=task.bucket, prefix=task.prefix, gaps=list(gaps))


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


async def _go_on(_reached: str | None) -> bool:
    return True


def _first(bucket: str, scope: str, epoch: int) -> Task:
    """The task that a backfill begins with."""
    return Task(run=secrets.token_hex(8), bucket=bucket, scope=scope, epoch=epoch, prefix=scope)


def _around(memory: Memory) -> set[str]:
    """The scopes that are remembered as around or inside."""
    return {
        *(memory.backfilled.around if memory.backfilled is not None else ()),
        *(memory.backfilling.around if memory.backfilling is not None else ()),
    }


def _gaps(storage: Storage, prefix: str) -> list[str]:
    """What could not be listed, but for keys that nobody can address."""
    odd = storage.odd_keys
    return [gap for gap in storage.gaps(prefix) if gap not in odd and is_addressable(gap)]
