"""How what is remembered of a scope changes while it is backfilled.

Pure. Each function gives the new memory for the one that was read, and may be called again after a conflict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer.memory import Backfilling, Memory, backfilled
from consumer.owed import is_to_do

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from blobmap.manifest import Manifest
    from consumer.tasks import Task


def suspected(memory: Memory) -> Memory:
    """What was told is not known any more; nothing changes where nothing was told."""
    if memory.backfilled is None and memory.backfilling is None:
        return memory
    return memory.model_copy(update={"suspect": True})


def is_overtaken(memory: Memory, task: Task) -> bool:
    """Whether a later task of the same chain is there: this one was delivered again after it had been done."""
    ours = memory.backfilling
    return ours is not None and ours.run == task.run and _place(ours.after) > _place(task.after)


def taken(
    memory: Memory,
    task: Task,
    epoch: int,
    *,
    scopes: Collection[str],
    around: Mapping[str, int],
    now: datetime,
    alive_s: float,
) -> Memory:
    """A worker begins with a task, or begins again; nothing changes where there is nothing to do for it.

    Args:
        memory: as it was read.
        task: the task.
        epoch: its epoch.
        scopes: the scopes that have a manifest now.
        around: epoch of each other scope that covers a part of it.
        now: UTC.
        alive_s: as in `owed.is_alive`.
    """
    if not is_to_do(memory, task.run, epoch, scopes, now, alive_s=alive_s):
        return memory
    before = memory.backfilling
    if before is not None and before.run == task.run:
        ours = before.model_copy(update={"heartbeat": now, "around": merged(before.around, around)})
        if ours.after != task.after:
            ours = ours.model_copy(update={"after": task.after, "reached": None})
        return memory.model_copy(update={"backfilling": ours})
    ours = Backfilling(
        run=task.run,
        epoch=epoch,
        began=now,
        heartbeat=now,
        whole=memory.suspect or (before is not None and before.whole),
        around=dict(around),
    )
    # From here on it says whether anything has happened since.
    return memory.model_copy(update={"backfilling": ours, "suspect": False})


def beaten(memory: Memory, run: str, reached: str | None, now: datetime) -> Memory:
    """The chain is alive, and has come so far."""
    ours = memory.backfilling
    if ours is None or ours.run != run:
        return memory
    return memory.model_copy(
        update={"backfilling": ours.model_copy(update={"heartbeat": now, "reached": reached or ours.reached})}
    )


def handed_over(memory: Memory, run: str, after: str, now: datetime) -> Memory:
    """The task that goes on after a key is safe."""
    ours = memory.backfilling
    if ours is None or ours.run != run or _place(ours.after) >= _place(after):
        return memory
    return memory.model_copy(
        update={"backfilling": ours.model_copy(update={"heartbeat": now, "after": after, "reached": None})}
    )


def ended(memory: Memory, run: str, manifest: Manifest, *, around: Mapping[str, int], is_whole_listing: bool) -> Memory:
    """Everything is confirmed.

    Args:
        memory: as it was read.
        run: the chain.
        manifest: under which it was told.
        around: epoch of each other scope that covers a part of what was listed.
        is_whole_listing: whether everything could be listed; where not, it has to be done again some time.
    """
    ours = memory.backfilling
    if ours is None or ours.run != run:
        return memory
    update: dict[str, object] = {"backfilling": None}
    if manifest.epoch >= memory.backfilled_epoch:
        update["backfilled"] = backfilled(manifest, ours.began, merged(ours.around, around))
    if not is_whole_listing:
        update["suspect"] = True
    return memory.model_copy(update=update)


def merged(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """The scopes around over some time: the epoch of each one, 0 where it had several, or was not always there."""
    return {scope: now[scope] if before.get(scope) == now.get(scope) else 0 for scope in sorted({*before, *now})}


def _place(after: str | None) -> tuple[bool, str]:
    return after is not None, after or ""
