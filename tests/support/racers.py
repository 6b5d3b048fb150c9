"""Writers that race for the same manifests, each in a process of its own, and the count of what came of it."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from blobmap.errors import ConflictError
from blobmap.manifest import Manifest
from blobmap.manifests import ManifestStore

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

    from tests.support.backends import Backend

SCOPE = "raced/store.zarr"


@dataclass(frozen=True)
class Race:
    """What a race came to.

    Attributes:
        made: writes that their writer was told had been made.
        kept: writes that can be seen in what is stored at the end.
        conflicts: writes that their writer was told had not been made.
    """

    made: int
    kept: int
    conflicts: int

    @property
    def lost(self) -> int:
        return self.made - self.kept


@dataclass(frozen=True)
class _Outcome:
    updates: int
    conflicts: int
    created: list[str]


def race(backend: Backend, *, writers: int, updates: int, in_threads: bool = False) -> tuple[Race, Race]:
    """Let every writer add 1 to the epoch of one manifest so many times, then create as many that all others want too.

    Returns:
        The race of the updates, and that of the first writes.
    """
    store = _opened(backend)
    store.write(Manifest(SCOPE, 1), etag=None)
    with _pool(writers, in_threads=in_threads or backend.memory is not None) as pool:
        outcomes = list(pool.map(_write, [backend] * writers, range(writers), [updates] * writers))
    update = Race(
        sum(outcome.updates for outcome in outcomes),
        store.read(SCOPE).manifest.epoch - 1,
        sum(outcome.conflicts for outcome in outcomes),
    )
    claims = [(scope, _name(writer)) for writer, outcome in enumerate(outcomes) for scope in outcome.created]
    kept = sum(store.read(scope).manifest.generated_by == writer for scope, writer in claims)
    return update, Race(len(claims), kept, writers * updates - len(claims))


def _pool(writers: int, *, in_threads: bool) -> Executor:
    """As many workers, none of which begins before all are there."""
    if in_threads:
        return ThreadPoolExecutor(writers, initializer=threading.Barrier(writers).wait)
    # Not forked: the client library has threads of its own by now.
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(writers)
    return ProcessPoolExecutor(writers, mp_context=context, initializer=_wait_for_all, initargs=(start,))


def _wait_for_all(start: Barrier) -> None:
    start.wait()


def _opened(backend: Backend) -> ManifestStore:
    storage = backend.open()
    storage.is_remote = False  # no probe: the race is one
    return ManifestStore(storage)


def _name(writer: int) -> str:
    return f"writer {writer}"


def _write(backend: Backend, writer: int, updates: int) -> _Outcome:
    store = _opened(backend)
    made = conflicts = 0
    while made < updates:
        held = store.read(SCOPE)
        try:
            store.write(Manifest(SCOPE, held.manifest.epoch + 1, generated_by=_name(writer)), etag=held.etag)
            made += 1
        except ConflictError:
            conflicts += 1
    return _Outcome(made, conflicts, [scope for scope in _wanted(updates) if _creates(store, scope, writer)])


def _wanted(count: int) -> list[str]:
    return [f"raced/{number}.zarr" for number in range(count)]


def _creates(store: ManifestStore, scope: str, writer: int) -> bool:
    try:
        store.write(Manifest(scope, 1, generated_by=_name(writer)), etag=None)
    except ConflictError:
        return False
    return True
