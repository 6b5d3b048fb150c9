"""The manifests in force, kept fresh: when to look at what is stored, and for how long what was read may decide.

What is read holds for a lease, counted by this process's own clock from when a complete comparison began. So whoever
has read a manifest knows that a lease later no process decides without it.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import structlog

from blobmap.errors import BlobmapError, ManifestError
from blobmap.manifest import manifest_key, scope_of_key
from consumer.bucket_manifests import BucketManifests
from consumer.retry import growing_delays, persist
from consumer.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from blobmap import ManifestStore, Trie
    from blobmap.storage import StorageOptions

_log = structlog.get_logger(__name__)

_READERS = 16

# More than these at once are sooner found by one listing than read one by one.
_MOST_ASKED = 100


def place_of(url: str) -> tuple[str, str] | None:
    """Where manifests lie, as their gateway names it.

    Args:
        url: a manifest root.

    Returns:
        Bucket and prefix (`""`: all of it); None where the root is a path.
    """
    scheme, separator, place = url.partition("://")
    if not separator or scheme != "s3":
        return None
    bucket, _, prefix = place.partition("/")
    return bucket, prefix.strip("/")


class Catalog:
    """The manifests of every bucket.

    One lease for all of them: deliveries of all buckets come out of one queue, and those of a bucket whose root cannot
    be read would soon be all that it may give out.

    Args:
        roots: for each bucket where its manifests lie, and how that is reached.
        refresh_s: seconds from one comparison to the next where nobody asks.
        lease_s: seconds, from the start of a complete comparison, for which it may be acted upon.
        give_up_s: seconds to try, at start, a root that cannot be reached.
        alert: told of a scope whose manifest cannot be used, and why; with None, that it can again or is gone.
        clock: seconds that only grow.

    Attributes:
        tries: for each bucket what is in force; one scope at a time is exchanged in it.
        listeners: called in the event loop with bucket and scope, after its rules were exchanged or dropped, or its
            stored manifest became unusable or usable.
    """

    def __init__(
        self,
        roots: Mapping[str, tuple[str, StorageOptions]],
        *,
        refresh_s: float,
        lease_s: float,
        give_up_s: float,
        alert: Callable[[str, str, str | None], None] = lambda _bucket, _scope, _reason: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._refresh_s = refresh_s
        self._lease_s = lease_s
        self._give_up_s = give_up_s
        self._alert = alert
        self._clock = clock
        threads = ThreadPoolExecutor(_READERS, thread_name_prefix="manifests")
        self._buckets = {
            bucket: _Kept(
                BucketManifests(bucket, url, options, threads=threads, changed=self._tell, clock=clock), refresh_s
            )
            for bucket, (url, options) in roots.items()
        }
        self._alerted: set[tuple[str, str]] = set()
        self._compared = asyncio.Event()
        self.tries: Mapping[str, Trie] = {bucket: kept.manifests.trie for bucket, kept in self._buckets.items()}
        self.listeners: list[Callable[[str, str], None]] = []

    # --- keeping them

    async def load(self) -> None:
        """Reads everything for the first time, all buckets at once.

        Raises:
            UnavailableError: a root could not be read whole in that time.
            RefusedError: a root does not serve us.
            UsageError: a root is none.
        """
        await asyncio.gather(*map(self._load, self._buckets.values()))

    async def keep(self, stop: asyncio.Event) -> None:
        """Keeps everything fresh: compares from time to time, and looks where it is asked to.

        Args:
            stop: set to end it.
        """
        await until(stop, self._keep())

    @asynccontextmanager
    async def kept(self, stop: asyncio.Event) -> AsyncIterator[None]:
        """Loads, and then keeps everything fresh as long as the context lasts.

        Args:
            stop: ends the wait for the first load. Set when keeping fails by a fault of ours: nobody may go on then.

        Raises:
            BlobmapError: as `load`.
        """
        await until(stop, self.load())
        keeping = asyncio.create_task(self.keep(stop))
        keeping.add_done_callback(lambda _: stop.set())
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        if not keeping.cancelled():
            keeping.result()

    async def announce(self, bucket: str, scope: str, epoch: int) -> None:  # noqa: ARG002  # who hears of it reads it
        """Tells this process alone, which in embedded mode is everybody; see `ports.Announcer`."""
        self.ask(bucket, scope)

    def ask(self, bucket: str | None = None, scope: str | None = None) -> None:
        """Asks for a look soon, whatever is under way now.

        Args:
            bucket: where something has changed; None: anywhere. One that is not ours is no matter.
            scope: what has changed; None: anything.
        """
        kept = self._buckets.values() if bucket is None else filter(None, [self._buckets.get(bucket)])
        for one in kept:
            one.ask(scope)

    def noticed(self, bucket: str, key: str) -> None:
        """Asks for a look at whatever lies under a key of the gateway, if that is a manifest of ours.

        Args:
            bucket: bucket of the gateway that somebody wrote to.
            key: what was written or removed.
        """
        for ours, kept in self._buckets.items():
            place = place_of(kept.manifests.url)
            if place is None or place[0] != bucket:
                continue
            below = f"{place[1]}/" if place[1] else ""
            scope = scope_of_key(key.removeprefix(below)) if key.startswith(below) else None
            if scope is not None:
                self.ask(ours, scope)

    # --- whether they may decide

    @property
    def is_fresh(self) -> bool:
        """Whether what is in force may decide now."""
        return all(map(self._holds, self._buckets.values()))

    async def fresh(self) -> None:
        """Returns as soon as what is in force may decide."""
        reason = self.stale()
        if reason is None:
            return
        _log.warning("stale", reason=reason)
        while self.stale() is not None:
            self._compared.clear()
            await self._compared.wait()
        _log.warning("fresh")

    def stale(self) -> str | None:
        """Why nothing may be decided now, None where it may."""
        late = [bucket for bucket, kept in self._buckets.items() if not self._holds(kept)]
        if not late:
            return None
        buckets = ", ".join(map(repr, late))
        return f"the manifests of bucket {buckets} were not compared in the last {self._lease_s:g} s"

    # --- what is known of them

    def store(self, bucket: str) -> ManifestStore:
        """The manifest root of a bucket.

        Raises:
            UsageError: it is none.
        """
        return self._buckets[bucket].manifests.store()

    def invalid(self, bucket: str, scope: str) -> str | None:
        """Why the stored manifest of a scope cannot be used; the last good one, if there was any, is in force."""
        return self._buckets[bucket].manifests.invalid.get(scope)

    def read_at(self, bucket: str, scope: str, epoch: int) -> float | None:
        """When this process first read that epoch, by its clock; None where it did not, or has read a later one."""
        return self._buckets[bucket].manifests.read_at(scope, epoch)

    async def _keep(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for kept in self._buckets.values():
                tasks.create_task(kept.keep(self._compared.set))

    async def _load(self, kept: _Kept) -> None:
        manifests = kept.manifests
        what = f"read the manifests of bucket {manifests.bucket!r} at {manifests.url}"
        await persist(manifests.compare, what=what, give_up_s=self._give_up_s)
        self._compared.set()

    def _holds(self, kept: _Kept) -> bool:
        began_s = kept.manifests.compared_s
        return began_s is not None and self._clock() - began_s < self._lease_s

    def _tell(self, bucket: str, scope: str) -> None:
        for listener in self.listeners:
            listener(bucket, scope)
        reason = self.invalid(bucket, scope)
        if reason is not None and (bucket, scope) not in self._alerted:
            self._alerted.add((bucket, scope))
            self._alert(bucket, scope, reason)
        elif reason is None and (bucket, scope) in self._alerted:
            self._alerted.discard((bucket, scope))
            self._alert(bucket, scope, None)


class _Kept:
    """One bucket's manifests and when to look at them: one look at a time.

    Args:
        manifests: what is kept.
        refresh_s: seconds from one comparison to the next where nobody asks.
    """

    def __init__(self, manifests: BucketManifests, refresh_s: float) -> None:
        self.manifests = manifests
        self._refresh_s = refresh_s
        self._everything = False
        self._scopes: set[str] = set()
        self._asked = asyncio.Event()

    def ask(self, scope: str | None) -> None:
        """Asks for a look at one scope, or at everything."""
        if scope is not None:
            with suppress(ManifestError):  # of a scope that can have none there is nothing to read
                manifest_key(scope)
                self._scopes.add(scope)
        if scope is None or len(self._scopes) > _MOST_ASKED:
            self._everything = True
        self._asked.set()

    async def keep(self, compared: Callable[[], None]) -> None:
        """Looks, until it is cancelled.

        Args:
            compared: called after every complete comparison.
        """
        loop = asyncio.get_running_loop()
        due_s = loop.time() + self._refresh_s
        delays = growing_delays()
        failing: str | None = None
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due_s):
                    await self._asked.wait()
            began_s = loop.time()
            try:
                whole = await self._look(whole=began_s >= due_s)
            except BlobmapError as error:
                if str(error) != failing:
                    failing = str(error)
                    _log.warning("manifests not compared", bucket=self.manifests.bucket, reason=failing)
                self._everything = True
                due_s = loop.time() + min(next(delays), self._refresh_s)
                continue
            if whole:
                if failing is not None:
                    _log.warning("manifests compared again", bucket=self.manifests.bucket)
                failing, delays = None, growing_delays()
                due_s = began_s + self._refresh_s
                compared()

    async def _look(self, *, whole: bool) -> bool:
        """Looks at what was asked for until now; whether that was everything.

        Raises:
            UnavailableError: it could not be read.
            RefusedError: it is not served to us.
        """
        self._asked.clear()
        scopes, self._scopes = self._scopes, set()
        whole, self._everything = whole or self._everything, False
        for scope in () if whole else scopes:
            if not await self.manifests.look(scope):  # gone, as far as one read can tell
                whole = True
                break
        if whole:
            await self.manifests.compare()
        return whole
