"""The manifests in force: one trie for each bucket, from its own manifest root."""

from __future__ import annotations

import asyncio
import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

from blobmap import ManifestStore, Trie
from blobmap.storage import StorageOptions, open_storage
from consumer.retry import persist

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_log = structlog.get_logger(__name__)


async def load_catalog(roots: Mapping[str, tuple[str, StorageOptions]], *, give_up_s: float) -> Mapping[str, Trie]:
    """Reads the manifests of every bucket, all buckets at once, in threads.

    Args:
        roots: for each bucket where its manifests lie, and how that is reached.
        give_up_s: seconds to try a root that cannot be reached.

    Returns:
        A trie for each bucket.

    Raises:
        UnavailableError: a root could not be reached in that time.
        RefusedError: a root does not serve us.
        UsageError: a root is none.
    """
    tries = await asyncio.gather(
        *(_load_patiently(bucket, url, options, give_up_s) for bucket, (url, options) in roots.items())
    )
    return dict(zip(roots, tries, strict=True))


async def _load_patiently(bucket: str, url: str, options: StorageOptions, give_up_s: float) -> Trie:
    trie = await persist(
        lambda: asyncio.to_thread(_load, bucket, url, options),
        what=f"read the manifests of bucket {bucket!r} at {url}",
        give_up_s=give_up_s,
    )
    _log.info("manifests", bucket=bucket, root=url, scopes=len(tuple(trie.scopes())), nodes=len(trie))
    return trie


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


def _load(bucket: str, url: str, options: StorageOptions) -> Trie:
    store = ManifestStore(open_storage(url, options))
    trie = Trie()
    with _collector_at_rest():
        trie.add_all(store.load_all())
    for problem in store.problems:
        _log.error("manifest skipped", bucket=bucket, problem=problem)
    return trie
