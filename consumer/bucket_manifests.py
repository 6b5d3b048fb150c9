"""The manifests of one bucket: what is stored against what is in force, and the difference taken over.

Reading is done in threads; what was in force goes on answering meanwhile. When to look is `catalog`'s.
"""

from __future__ import annotations

import asyncio
import gc
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import structlog

from blobmap import ManifestStore, Trie
from blobmap.errors import BlobmapError, MissingError, UnavailableError, UnreadableError
from blobmap.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator
    from concurrent.futures import Executor

    from blobmap.manifests import Changes
    from blobmap.storage import StorageOptions

T = TypeVar("T")

_log = structlog.get_logger(__name__)

# As many as there are threads to do them, and a few that are next.
_AT_ONCE = 24


@dataclass(frozen=True, slots=True)
class _Found:
    """What a read of one manifest came to.

    Attributes:
        etag: of what was read; None where there is nothing, or nothing usable.
        epoch: of what was read; None likewise.
        is_new: whether rules or pins are others now.
        problem: why what is stored cannot be used, None where it can.
        is_there: whether there is a manifest at all.
    """

    etag: str | None = None
    epoch: int | None = None
    is_new: bool = False
    problem: str | None = None
    is_there: bool = True


class BucketManifests:
    """The manifests of one bucket.

    Args:
        bucket: its name.
        url: where they lie.
        options: how that is reached.
        threads: where reading is done.
        changed: called, in the event loop, with a scope whose rules were exchanged or dropped, or whose stored
            manifest became unusable or usable.
        clock: seconds that only grow.

    Attributes:
        bucket: its name.
        url: where they lie.
        trie: what is in force.
        invalid: for each scope whose stored manifest cannot be used, why.
        compared_s: time at which the last complete comparison began, None before the first one.
    """

    def __init__(
        self,
        bucket: str,
        url: str,
        options: StorageOptions,
        *,
        threads: Executor,
        changed: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.bucket = bucket
        self.url = url
        self.trie = Trie()
        self.invalid: dict[str, str] = {}
        self.compared_s: float | None = None
        self._options = options
        self._threads = threads
        self._changed = changed
        self._clock = clock
        self._compared: ManifestStore | None = None
        self._shared: ManifestStore | None = None
        self._versions: dict[str, str] = {}
        self._epochs: dict[str, tuple[int, float]] = {}

    def store(self) -> ManifestStore:
        """The manifest root, for others: what a store remembers of gaps belongs to one listing at a time.

        Raises:
            UsageError: it is none.
        """
        if self._shared is None:
            self._shared = ManifestStore(open_storage(self.url, self._options))
        return self._shared

    def read_at(self, scope: str, epoch: int) -> float | None:
        """When this process first read that epoch, by its clock; None where it did not, or has read a later one."""
        held, at_s = self._epochs.get(scope, (0, 0.0))
        return at_s if held == epoch else None

    async def compare(self) -> None:
        """Compares everything that is stored with what is in force, and takes over what differs.

        Raises:
            UnavailableError: the root or a manifest could not be read, or not the whole root listed. What could be read
                was taken over all the same; the comparison does not count as complete.
            RefusedError: likewise, as the root does not serve us.
            UsageError: the root is none.
        """
        began_s = self._clock()
        changes = await self._in_thread(self._list, dict(self._versions))
        if changes.changed:
            with _collector_at_rest():
                await _all(self._follow(scope, version) for scope, version in changes.changed.items())
        await _all(self._let_go(scope) for scope in changes.gone)
        if changes.gaps:
            gaps = ", ".join(map(repr, changes.gaps))
            raise UnavailableError(f"{self.url}: {gaps} could not be listed whole")
        if self.compared_s is None:
            scopes = len(self.trie.scopes())
            _log.info("manifests", bucket=self.bucket, root=self.url, scopes=scopes, nodes=len(self.trie))
        self.compared_s = began_s

    async def look(self, scope: str) -> bool:
        """Reads one manifest that somebody has changed.

        Returns:
            False where there is none: whether it is gone only a comparison can tell.

        Raises:
            UnavailableError: the root cannot be reached.
            RefusedError: it does not serve us.
        """
        found = await self._in_thread(self._read, scope)
        if not found.is_there:
            return False
        self._versions[scope] = found.etag or ""  # without one, what a listing calls it is not known
        self._note(scope, found)
        return True

    async def _follow(self, scope: str, version: str) -> None:
        """Takes over a manifest that the listing shows in a version that we do not know."""
        found = await self._in_thread(self._read, scope)
        if not found.is_there:  # a gateway may replace a file by removing it first
            raise UnavailableError(f"{self.url}: the manifest of {scope!r} is listed and not there")
        self._versions[scope] = version
        self._note(scope, found)

    async def _let_go(self, scope: str) -> None:
        """Drops a manifest that a listing does not show any more; one that is there nevertheless is taken over."""
        found = await self._in_thread(self._read, scope)
        if found.is_there:
            self._note(scope, found)
            return
        self.trie.discard(scope)
        del self._versions[scope]
        self._epochs.pop(scope, None)
        self.invalid.pop(scope, None)
        _log.info("manifest gone", bucket=self.bucket, scope=scope)
        self._changed(self.bucket, scope)

    def _note(self, scope: str, found: _Found) -> None:
        """Writes down what a read came to, and tells those who want to know."""
        if found.epoch is not None and self._epochs.get(scope, (0, 0.0))[0] < found.epoch:
            self._epochs[scope] = found.epoch, self._clock()
        before = self.invalid.pop(scope, None)
        if found.problem is not None:
            self.invalid[scope] = found.problem
            if found.problem != before:
                _log.error("manifest invalid", bucket=self.bucket, scope=scope, problem=found.problem)
        elif found.is_new and self.compared_s is not None:
            _log.info("manifest", bucket=self.bucket, scope=scope, epoch=found.epoch)
        if found.is_new or found.problem != before:
            self._changed(self.bucket, scope)

    # --- all that runs in threads

    async def _in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def _list(self, known: dict[str, str]) -> Changes:
        if self._compared is None:
            self._compared = ManifestStore(open_storage(self.url, self._options))
        return self._compared.changed_since(known)

    def _read(self, scope: str) -> _Found:
        try:
            held = self.store().read(scope)  # reading leaves nothing behind in a store
        except MissingError:
            return _Found(is_there=False)
        except UnreadableError as error:
            return _Found(problem=str(error))
        epoch = held.manifest.epoch
        verdict = self.trie.replace(held.manifest)
        if verdict == "refused":
            problem = f"{self.url}: the manifest of {scope!r} has epoch {epoch}, as the one in force, and other rules"
            return _Found(held.etag, epoch, problem=problem)
        if verdict in ("older", "merged"):
            _log.warning("manifest", bucket=self.bucket, scope=scope, epoch=epoch, verdict=verdict)
        return _Found(held.etag, epoch, is_new=verdict in ("taken", "merged"))


async def _all(works: Iterable[Coroutine[object, object, None]]) -> None:
    """Awaits all of them, some at once, and only then raises the first error.

    Never all at once: the event loop would do nothing else until each of many thousands had its place in the queue.
    """
    left = iter(works)
    errors: list[BlobmapError] = []

    async def work_off() -> None:
        for work in left:
            try:
                await work
            except BlobmapError as error:
                errors.append(error)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_AT_ONCE):
            tasks.create_task(work_off())
    if errors:
        raise errors[0]


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """Keeps the collector of cycles from walking what is being read, which would stop the event loop again and again.

    What was read has no cycles, and later collections leave it aside; it is freed when nothing refers to it any more.
    """
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
