"""One range of keys listed and told, page after page, for a bounded time.

Listing and resolving are done in a thread of their own, a page at a time, so that a range that is given up ends with
the page that is being read.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from consumer.telling import told

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence

    from blobmap.objects import Entry
    from blobmap.resolve import Resolution
    from blobmap.storage import Storage
    from consumer.telling import Addressees, Telling, Told


@dataclass(frozen=True, slots=True)
class KeyRange:
    """What is listed, and which of it is told.

    Attributes:
        storage: the bucket; used by nobody else meanwhile, as it remembers what it could not list.
        prefix: only keys at or below it, by whole segments.
        after: only keys greater than this, None for the beginning.
        resolve: the blob that a key belongs to now.
        is_news: whether an object that belongs to a blob has to be told.
    """

    storage: Storage
    prefix: str
    after: str | None
    resolve: Callable[[str], Resolution]
    is_news: Callable[[Entry, Resolution], bool]

    @property
    def is_ordered(self) -> bool:
        """Whether it is listed in key order, so that it can be left and gone on with later."""
        return self.storage.is_remote


async def tell_range(
    keys: KeyRange, to: Addressees, telling: Telling, *, most_s: float, tick: Callable[[str | None], Awaitable[bool]]
) -> str | None:
    """Tells a range. Returns when all that was told is confirmed.

    Args:
        keys: what is told.
        to: who is told.
        telling: tells them.
        most_s: seconds after which an ordered listing is left.
        tick: called after each page with the key up to which all is confirmed (None where there is none, or no order);
            false to give it up.

    Returns:
        The key after which it has to go on; None where nothing is left, or where it was given up.

    Raises:
        LostError: the session is over.
        UnavailableError: the bucket cannot be listed, or something was not taken.
        RefusedError: the bucket does not serve us.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + most_s
    last = keys.after
    thread = ThreadPoolExecutor(1, thread_name_prefix="listing")
    pages = _pages(keys, to)
    try:
        while (page := await loop.run_in_executor(thread, next, pages, None)) is not None:
            found, last = page
            await telling.add(found, last)
            if not await tick(telling.reached if keys.is_ordered else None):
                return None
            if keys.is_ordered and loop.time() >= deadline:
                await telling.finish(last)
                return last
        await telling.finish(last)
        return None
    finally:
        thread.submit(pages.close)
        thread.shutdown(wait=False)


def _pages(keys: KeyRange, to: Addressees) -> Generator[tuple[Sequence[Told], str]]:
    """What is told of each page, and the last key of the page."""
    for page in _listed(keys):
        found = []
        for entry in page:
            resolution = keys.resolve(entry["path"])
            if resolution.kind == "blob" and keys.is_news(entry, resolution):
                found.append(told(to, entry, resolution, source="backfill", tagged=keys.storage.is_remote))
        yield found, page[-1]["path"]


def _listed(keys: KeyRange) -> Iterator[Sequence[Entry]]:
    prefix = keys.prefix
    if prefix and keys.after is None and keys.resolve(prefix).kind == "blob":
        # Seldom: an object that has the prefix itself as its key is not below it.
        beside = keys.storage.level(prefix.rpartition("/")[0]).objects
        yield from filter(None, [[entry for entry in beside if entry["path"] == prefix]])
    yield from keys.storage.pages(prefix, after=keys.after)
