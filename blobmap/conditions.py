"""Whether a server holds to conditional writes: found out by racing it, since a sequential test proves nothing.

Some servers ignore the conditions, and some look at them before they take the body and hold no lock between: one writer
alone never sees either. So several create one object at once, and several replace one version of it at once; whenever
more than one of them is told to have won, the server cannot keep two writers apart.
"""

from __future__ import annotations

import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from blobmap.errors import BlobmapError, ConflictError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from blobmap.storage import Storage

_WRITERS = 8
_ROUNDS = 4


def check_conditions(storage: Storage) -> None:
    """Race a store for conditional writes, below `.blobmap/probe/`; what was written there is deleted again.

    Raises:
        RefusedError: several writers won one race, or the server has no conditional writes, or may not be written.
        UnavailableError: the store failed.
    """
    with ThreadPoolExecutor(_WRITERS, thread_name_prefix="probe") as writers:
        for _ in range(_ROUNDS):
            key = f".blobmap/probe/{secrets.token_hex(8)}"
            try:
                _race_to_create(storage, key, writers)
                _race_to_update(storage, key, writers)
            finally:
                with suppress(BlobmapError):
                    storage.delete(key)


def _race_to_create(storage: Storage, key: str, writers: ThreadPoolExecutor) -> None:
    winners = _race(writers, lambda body: storage.create(key, body))
    _judge(storage, key, winners, "created one object")


def _race_to_update(storage: Storage, key: str, writers: ThreadPoolExecutor) -> None:
    etag = storage.get(key).etag or ""
    winners = _race(writers, lambda body: storage.update(key, body, etag))
    _judge(storage, key, winners, "replaced one version of an object")


def _race(writers: ThreadPoolExecutor, write: Callable[[bytes], object]) -> list[bytes]:
    """Let every writer write its own body at the same moment; returns the bodies that were taken."""
    start = threading.Barrier(_WRITERS)

    def run(body: bytes) -> bool:
        start.wait()
        try:
            write(body)
        except ConflictError:
            return False
        return True

    bodies = [secrets.token_bytes(16) for _ in range(_WRITERS)]
    return [body for body, won in zip(bodies, writers.map(run, bodies), strict=True) if won]


def _judge(storage: Storage, key: str, winners: list[bytes], what: str) -> None:
    if len(winners) > 1:
        raise RefusedError(
            f"{storage.name}: the server does not hold to conditional writes: of {_WRITERS} writers that {what} at the "
            f"same time {len(winners)} were told to have won, so two writers could overwrite each other unseen"
        )
    if winners != [storage.get(key).data]:
        raise RefusedError(
            f"{storage.name}: the server does not hold to conditional writes: what is stored after a race is not what "
            "the winner wrote"
        )
