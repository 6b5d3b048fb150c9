"""From the key of an unclaimed object to the store that it belongs to, by the zarr documents above it.

Documents are looked for from the root of the bucket down, each once, in threads of our own, so that a bucket that
hangs holds up nobody else. What was seen is kept with bounds: a document for good, its absence for a while and until
one is written.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

import structlog

from blobmap.arrays import GroupLayout
from blobmap.errors import MissingError, RefusedError, UnreadableError, UsageError
from blobmap.nodes import join, read_node
from blobmap.store_keys import is_addressable
from consumer.foreign_data import above, identify

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from blobmap.foreign import Kind
    from blobmap.storage import Storage

T = TypeVar("T")

_log = structlog.get_logger(__name__)

_STORE_NAME = re.compile(r".*\.zarr[0-9]*", re.IGNORECASE)

# Ancestors of the keys that are being looked for always fit in, so that what was just seen is still there at the end.
_MOST_PREFIXES = 20_000

_AT_ONCE = 8

_NODE_NAMES = ("zarr.json", ".zgroup", ".zarray")

# A longer one is there, and that is enough: consolidated metadata can be as long as it likes.
_LONG_BYTES = 2**20

# Somebody may have mended it.
_REFUSED_S = 60.0

_Seen: TypeAlias = Literal["document", "nothing", "refused"]
_Place: TypeAlias = tuple[str, str]  # bucket and prefix


@dataclass(frozen=True, slots=True)
class Found:
    """What an object belongs to.

    Attributes:
        kind: `store` (there is a zarr document above it), `foreign` (there is none) or `unknown` (we may not look).
        prefix: root of the store: the outermost group or array; of what is foreign the prefix that it is counted
            under, which is the root of a repository or of a set of references where there is one, else as for what is
            unknown: the outermost prefix that is named like a zarr store, else the first segment, else `""`.
        what: the kind of foreign data.
        awaited: a prefix above the store that is named like a zarr store and has no document yet. Uploads in the order
            of keys bring the document of a store last, and those of its arrays long before.
    """

    kind: Literal["store", "foreign", "unknown"]
    prefix: str
    what: Kind | None = None
    awaited: str | None = None


def store_by_name(key: str) -> str:
    """Guesses, from its key alone, which store an object belongs to.

    Returns:
        The outermost prefix that is named like a zarr store, else the first segment, else `""`: an object without a
        prefix belongs to the root of its bucket.
    """
    *segments, _ = key.split("/")
    for depth, segment in enumerate(segments, start=1):
        if _STORE_NAME.fullmatch(segment):
            return "/".join(segments[:depth])
    return segments[0] if segments else ""


def is_store_name(prefix: str) -> bool:
    """Whether a prefix is named like a zarr store."""
    return _STORE_NAME.fullmatch(prefix.rpartition("/")[2]) is not None


class Finder:
    """Finds stores, and remembers what it saw.

    Args:
        data: opens each bucket that may be looked at; called in a thread, again as long as it fails.
        trust_s: seconds for which it holds that a prefix has no document, unless `void` is told otherwise; 0 for who
            is not told of every document.
        clock: seconds that only grow.

    Attributes:
        guessed: for each bucket that cannot be looked at, so that names have to tell its stores, the reason.
    """

    def __init__(
        self,
        data: Mapping[str, Callable[[], Storage]],
        *,
        trust_s: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._data = data
        self.guessed: dict[str, str] = {}
        self._trust_s = trust_s
        self._clock = clock
        self._opened: dict[str, Storage] = {}
        self._seen: OrderedDict[_Place, tuple[_Seen, float]] = OrderedDict()
        self._foreign: OrderedDict[_Place, Found] = OrderedDict()
        self._looks: dict[_Place, _Look] = {}
        self._searches: set[_Search] = set()
        self._refused: dict[str, str] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="finder")

    def close(self) -> None:
        """Begins nothing any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def known(self, bucket: str, key: str) -> Found | None:
        """What an object belongs to, as far as memory tells; None: `find` has to look."""
        if bucket not in self._data:
            return self._guess(bucket, key)
        for prefix in above(key):
            seen = self._remembered((bucket, prefix))
            if seen is None:
                return None
            if seen != "nothing":
                return _as_found(seen, prefix, key)
        return self._foreign.get((bucket, key.rpartition("/")[0]))

    async def find(self, bucket: str, key: str) -> Found:
        """Finds what an object belongs to.

        Args:
            bucket: name of the bucket.
            key: of the object; for a zarr document this is the store that it is a part of.

        Returns:
            The store, or what is there instead. A document that is written meanwhile, and that `void` is told of, is
            seen.

        Raises:
            UnavailableError: the bucket cannot be reached.
        """
        search = _Search(bucket, key)
        self._searches.add(search)
        try:
            async with self._slots:
                while True:
                    search.stale = False
                    found = await self._search(bucket, key)
                    if not search.stale:
                        return found
        finally:
            self._searches.discard(search)

    async def is_group(self, bucket: str, prefix: str) -> bool:
        """Whether a zarr group lies at a prefix; it is read anew. Where nobody can tell the answer is no.

        Raises:
            UnavailableError: the bucket cannot be reached.
        """
        if bucket not in self._data or not is_addressable(prefix):
            return False
        try:
            async with self._slots:
                node = await self._in_thread(lambda: read_node(self._storage(bucket), prefix, ""))
        except (RefusedError, UsageError):
            return False
        return isinstance(node.layout, GroupLayout)

    def void(self, bucket: str, key: str) -> None:
        """Forgets that there was nothing where a zarr document was written.

        Args:
            bucket: name of the bucket.
            key: of the document.
        """
        place = (bucket, key.rpartition("/")[0])
        seen = self._seen.get(place)
        if seen is not None and seen[0] != "document":
            del self._seen[place]
        look = self._looks.get(place)
        if look is not None:
            look.stale = True
        for search in self._searches:
            if search.passes(place):
                search.stale = True

    # --- one search

    async def _search(self, bucket: str, key: str) -> Found:
        if bucket not in self._data:
            return self._guess(bucket, key)
        for prefix in above(key):
            seen = self._remembered((bucket, prefix)) or await self._look((bucket, prefix))
            if seen != "nothing":
                return _as_found(seen, prefix, key)
        top = store_by_name(key)
        prefix, what = await self._in_thread(lambda: identify(self._storage(bucket), key, top))
        found = Found("foreign", prefix, what)
        _keep(self._foreign, (bucket, key.rpartition("/")[0]), found)
        return found

    async def _look(self, place: _Place) -> _Seen:
        """Looks for a document, once for all that wait for it; whoever stops waiting leaves the others their answer."""
        look = self._looks.get(place)
        if look is None:
            look = self._looks[place] = _Look()
            look.task = asyncio.ensure_future(self._look_until_fresh(place, look))
            look.task.add_done_callback(lambda task: self._looked(place, task))
        assert look.task is not None  # noqa: S101 - set in the line that makes it
        return await asyncio.shield(look.task)

    async def _look_until_fresh(self, place: _Place, look: _Look) -> _Seen:
        while True:
            look.stale = False
            seen = await self._ask(place)
            if not look.stale or seen == "document":
                break
        lasts_s = {"document": float("inf"), "nothing": self._trust_s, "refused": _REFUSED_S}[seen]
        _keep(self._seen, place, (seen, self._clock() + lasts_s))
        return seen

    async def _ask(self, place: _Place) -> _Seen:
        bucket, prefix = place
        if prefix and not is_addressable(prefix):
            return "nothing"
        try:
            there = await self._in_thread(lambda: self._has_document(bucket, prefix))
        except (RefusedError, UsageError) as error:
            self._say(bucket, prefix, str(error))
            return "refused"
        if self._refused.get(bucket) == prefix:
            del self._refused[bucket], self.guessed[bucket]
        return "document" if there else "nothing"

    def _looked(self, place: _Place, task: asyncio.Future[_Seen]) -> None:
        del self._looks[place]
        if not task.cancelled():
            task.exception()  # those who wait for it have it; perhaps nobody does any more

    # --- what is done in threads

    async def _in_thread(self, do: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, do)

    def _has_document(self, bucket: str, prefix: str) -> bool:
        """Whether anything says that a node is here, be it broken: what it says is for others to read."""
        storage = self._storage(bucket)
        for name in _NODE_NAMES:
            try:
                storage.get(join(prefix, name), limit=_LONG_BYTES)
            except MissingError:
                continue
            except UnreadableError:
                pass  # too long to be read for this
            return True
        return False

    def _storage(self, bucket: str) -> Storage:
        storage = self._opened.get(bucket)
        if storage is None:
            storage = self._opened[bucket] = self._data[bucket]()
        return storage

    # --- what is remembered

    def _remembered(self, place: _Place) -> _Seen | None:
        found = self._seen.get(place)
        if found is None:
            return None
        seen, until = found
        if self._clock() >= until:
            del self._seen[place]
            return None
        self._seen.move_to_end(place)
        return seen

    def _guess(self, bucket: str, key: str) -> Found:
        self._say(bucket, "", "the configuration has no `data` for it")
        return Found("unknown", store_by_name(key))

    def _say(self, bucket: str, prefix: str, reason: str) -> None:
        """Makes known, once as long as it is so, that stores of a bucket are guessed."""
        if bucket not in self.guessed:
            _log.warning("stores are guessed from their names", bucket=bucket, reason=reason)
            self._refused[bucket] = prefix
            self.guessed[bucket] = reason


@dataclass(slots=True, eq=False)
class _Look:
    """A document that is being looked for; stale: one was written meanwhile."""

    task: asyncio.Future[_Seen] | None = None
    stale: bool = False


@dataclass(slots=True, eq=False)
class _Search:
    """A store that is being looked for; stale: a document was written above the key meanwhile."""

    bucket: str
    key: str
    stale: bool = False

    def passes(self, place: _Place) -> bool:
        bucket, prefix = place
        return bucket == self.bucket and (not prefix or self.key.startswith(prefix + "/"))


def _as_found(seen: _Seen, prefix: str, key: str) -> Found:
    named = store_by_name(key)
    if seen != "document":
        return Found("unknown", named)
    is_inside = is_store_name(named) and prefix.startswith(named + "/")
    return Found("store", prefix, awaited=named if is_inside else None)


def _keep(memory: OrderedDict[_Place, T], place: _Place, value: T) -> None:
    memory[place] = value
    memory.move_to_end(place)
    if len(memory) > _MOST_PREFIXES:
        memory.popitem(last=False)
