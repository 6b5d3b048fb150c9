"""Whether a backfill is owed, and who sees to it.

Pure. It is owed by a manifest: its epoch against what is remembered as told. Flags and manifests that could not be read
only say that what is remembered is not to be relied on.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from consumer.memory import Memory


def is_owed(memory: Memory, epoch: int, scopes: Collection[str]) -> bool:
    """Whether something may exist that movers were not told under a manifest.

    Args:
        memory: what is remembered of its scope.
        epoch: its epoch.
        scopes: the scopes that have a manifest now.

    Returns:
        True where that epoch was not backfilled to its end, where what was told is not known, or where a scope around
        or inside is gone: its objects may belong to this one now.
    """
    if memory.suspect or epoch > memory.backfilled_epoch:
        return True
    if memory.backfilling is not None and memory.backfilling.whole:
        return True
    told = memory.backfilled
    return told is not None and any(scope not in scopes for scope in told.around)


def is_alive(memory: Memory, run: str, epoch: int, now: datetime, *, alive_s: float) -> bool:
    """Whether another chain of tasks sees to it.

    Args:
        memory: what is remembered of the scope.
        run: the chain that asks.
        epoch: of the manifest that has to be backfilled.
        now: UTC.
        alive_s: seconds after its last heartbeat in which a chain is taken for alive.
    """
    other = memory.backfilling
    if other is None or other.run == run or other.epoch < epoch:
        return False
    return now - other.heartbeat < timedelta(seconds=alive_s)


def is_to_do(memory: Memory, run: str, epoch: int, scopes: Collection[str], now: datetime, *, alive_s: float) -> bool:
    """Whether a backfill is owed and no other chain sees to it; arguments as for `is_owed` and `is_alive`."""
    return is_owed(memory, epoch, scopes) and not is_alive(memory, run, epoch, now, alive_s=alive_s)


def is_late(memory: Memory, epoch: int, last_seen: datetime) -> bool:
    """Whether a flag shows that a key that is claimed was not told, though its manifest was backfilled.

    Args:
        memory: what is remembered of the scope.
        epoch: of its manifest.
        last_seen: UTC; when an object was last seen that is claimed now and was not then.
    """
    told = memory.backfilled
    return told is not None and epoch <= memory.backfilled_epoch and last_seen >= told.began
