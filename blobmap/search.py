"""Looking for zarr documents where no document says what lies there: a flat listing, names only.

This is how a folder without metadata, or with a broken document, is searched: walking it level by level could mean as
many requests as it has objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blobmap.chunk_keys import METADATA_NAMES
from blobmap.tally import Count, around, topmost

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from threading import Event

    from blobmap.objects import Entry
    from blobmap.storage import Storage


def find_nodes(storage: Storage, key: str, stopping: Event) -> tuple[tuple[str, ...], Count]:
    """Search everything below a key.

    Args:
        storage: where it is.
        key: of the folder to search, which is not a node itself.
        stopping: ends the search early when set; the answer is then of no use.

    Returns:
        Keys of the topmost nodes below it, in order, and a count of all objects that are neither metadata nor below one
        of these.
    """
    found: set[str] = set()
    for page in pages_until(storage, key, stopping):
        names = "\n".join([entry["path"] for entry in page])
        if "zarr.json" in names or ".z" in names:
            found |= {
                node for entry in page for node, _, name in [entry["path"].rpartition("/")] if name in METADATA_NAMES
            }
    found.discard(key)
    nodes = topmost(found)
    loose = Count()
    for page in pages_until(storage, key, stopping):
        count_loose(loose, page, apart_from=frozenset(nodes))
    return nodes, loose


def count_loose(count: Count, entries: Iterable[Entry], *, apart_from: frozenset[str] = frozenset()) -> None:
    """Count objects that are neither metadata documents nor markers of directories, and not below some keys."""
    for entry in entries:
        key = entry["path"]
        if key.rpartition("/")[2] in METADATA_NAMES or key.endswith("/"):
            continue
        if not apart_from or apart_from.isdisjoint(around(key)):
            count.add(key, entry["size"])


def pages_until(storage: Storage, key: str, stopping: Event) -> Iterator[Sequence[Entry]]:
    """The pages of a flat listing, until somebody says that no result is wanted any more."""
    for page in storage.pages(key):
        if stopping.is_set():
            return
        yield page
