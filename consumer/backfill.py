"""Backfills: telling movers what exists and was not told, a range of keys at a time, in tasks that any worker takes.

A task is acknowledged when the one that goes on, or the end of the chain, is written down; so a worker that is killed
anywhere leaves a task that begins where the one before it ended.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from blobmap.errors import BlobmapError, UnavailableError, UsageError
from consumer.backfill_known import BackfillKnown
from consumer.backfill_steps import suspected
from consumer.key_range import KeyRange, tell_range
from consumer.outputs import StuckError
from consumer.owed import is_late, is_to_do
from consumer.ports import LostError
from consumer.scope_backfill import Follows, Pace, ScopeBackfill, first_task, log_told
from consumer.tasks import Task, parse_task, task_message
from consumer.telling import telling
from consumer.topology import wait_queue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from blobmap.storage import Storage
    from consumer.catalog import Catalog
    from consumer.ports import Sink
    from consumer.telling import Addressees

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """What of the configuration backfills need.

    Attributes:
        tasks: queue of the tasks.
        addressees: for each bucket who is told what lies in it.
        pace: how long things take.
    """

    tasks: str
    addressees: Mapping[str, Addressees]
    pace: Pace


class Backfills:
    """Publishes tasks where they are owed, and does them.

    Args:
        plan: what the configuration says.
        catalog: the manifests in force, kept fresh.
        data: opens each bucket that can be listed; called in a thread.
        sink: publishes what no delivery waits for.
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
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._plan = plan
        self._catalog = catalog
        self._data = data
        self._sink = sink
        self._now = now
        self._known = BackfillKnown(catalog)
        self._scopes = ScopeBackfill(catalog, self._known, plan.pace, clock=clock, now=now)

    async def consider(self, bucket: str, scope: str, last_seen: datetime | None = None) -> None:
        """Publishes a task where a backfill is owed and nobody sees to it. Returns when it is confirmed.

        Args:
            bucket: name of the bucket; of one that cannot be listed nothing is owed.
            scope: any scope; one that has no manifest owes nothing.
            last_seen: UTC; when an object was last seen unclaimed that is claimed now.

        Raises:
            LostError: the session is over.
            UnavailableError: manifest root or queue cannot be reached.
            BlobmapError: what is stored cannot be read.
        """
        if bucket not in self._data:
            return
        manifest = await self._known.manifest(bucket, scope)
        if manifest is None:
            return
        memory = await self._known.recall(bucket, scope)
        if last_seen is not None and is_late(memory, manifest.epoch, last_seen):
            memory = await self._known.remember(bucket, scope, suspected)
        task = first_task(bucket, scope, manifest.epoch)
        scopes, alive_s = self._known.scopes(bucket, memory), self._plan.pace.alive_s
        # One that is alive looks at its end whether anything has become owed meanwhile.
        if is_to_do(memory, task.run, manifest.epoch, scopes, self._now(), alive_s=alive_s):
            await self._publish(Follows(task), self._sink)

    async def handle(self, body: bytes, sink: Sink) -> None:
        """Does one task. Returns when everything that it causes is confirmed.

        What cannot be done now goes to the queue where tasks wait, so that tasks of other buckets are not held up.

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
        try:
            follows = await self._do(task, to, sink)
        except (LostError, StuckError):
            raise
        except BlobmapError as error:
            _log.warning("backfill put off", bucket=task.bucket, prefix=task.prefix, reason=str(error))
            follows = Follows(task, waits=True)
        if follows is not None:
            await self._publish(follows, sink)

    async def _do(self, task: Task, to: Addressees, sink: Sink) -> Follows | None:
        stale = self._catalog.stale()
        if stale is not None:  # a delivery that waited here would be taken from us by the broker
            raise UnavailableError(stale)
        data = self._data[task.bucket]
        if task.scope is not None:
            return await self._scopes.do(task, to, sink=sink, data=data)
        since = task.since
        storage = await asyncio.to_thread(data)
        keys = KeyRange(
            storage,
            task.prefix,
            task.after,
            self._catalog.tries[task.bucket].lookup,
            lambda entry, _: since is None or entry["last_modified"] >= since,
        )
        async with telling(to, sink) as teller:
            rest = await tell_range(keys, to, teller, most_s=self._plan.pace.range_s, tick=_go_on)
        log_told(task, teller.count, rest, storage.gaps(task.prefix))
        return None if rest is None else Follows(task.model_copy(update={"after": rest}))

    def _addressees(self, task: Task) -> Addressees:
        to = self._plan.addressees.get(task.bucket)
        if to is None or task.bucket not in self._data:
            raise UsageError(f"bucket {task.bucket!r} is not configured, or has no data that could be listed")
        if task.mover is None:
            return to
        if task.mover not in to.movers:
            raise UsageError(f"mover {task.mover!r} is none of bucket {task.bucket!r}: {', '.join(to.movers)}")
        return replace(to, movers={task.mover: to.movers[task.mover]})

    async def _publish(self, follows: Follows, sink: Sink) -> None:
        tasks = self._plan.tasks
        queue = wait_queue(tasks, self._plan.pace.lease_s) if follows.waits else tasks
        await sink.publish(task_message(queue, follows.task))
        if follows.safe is not None:
            await follows.safe()


async def _go_on(_reached: str | None) -> bool:
    return True
