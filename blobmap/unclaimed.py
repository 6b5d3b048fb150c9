"""Which arrays of one store nobody claims, without listing any of them: is there anything that a partition could do?"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from blobmap.claims import resolve_layout
from blobmap.errors import ListingError, MissingError
from blobmap.nodes import read_node
from blobmap.walk import Walk
from blobmap.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blobmap.arrays import ArrayLayout
    from blobmap.resolve import Trie
    from blobmap.state import Unclaimable
    from blobmap.storage import Storage

_THREADS: Final = 16
_VERSION: Final = version("blobmap")


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """The arrays of one store that resolve to nothing.

    Attributes:
        etags: of the metadata document of each, by path.
        problems: one line for each metadata document that cannot be understood.
    """

    etags: Mapping[str, str | None]
    problems: tuple[str, ...] = ()

    def worth_trying(self, tried: Mapping[str, Unclaimable]) -> tuple[str, ...]:
        """Paths of those that were not tried in vain, as they are now and by this version."""
        return tuple(
            path
            for path, etag in sorted(self.etags.items())
            if path not in tried or (tried[path].etag, tried[path].version) != (etag, _VERSION)
        )


def find_unclaimed(data: Storage, trie: Trie, scope: str) -> Unclaimed:
    """Read the documents of one store, and ask what its arrays resolve to.

    Args:
        data: where the store is. It is only read.
        trie: the manifests in force.
        scope: key of the store; empty for a store at the root.

    Returns:
        The arrays that no rule, hot pattern or pin covers.

    Raises:
        MissingError: there is no zarr store at this key.
        ListingError: a part of it could not be looked at.
        UnavailableError: the store cannot be reached.
        RefusedError: the store does not serve us.
    """
    root = read_node(data, scope, "")
    if root.layout is None and root.problem is None:
        raise MissingError(f"{data.name}: there is no zarr store at {scope or 'its root'!r}")
    data.forget(scope)
    workers = Workers(_THREADS)
    etags: dict[str, str | None] = {}

    def take(layout: ArrayLayout, etag: str | None) -> None:
        if resolve_layout(trie, scope, layout).kind == "unmanaged":
            etags[layout.path] = etag

    walk = Walk(data, scope, workers, take)
    walk.start(root)
    workers.collect()
    gaps = data.gaps(scope)
    if gaps:
        raise ListingError(
            f"{data.name}: {scope!r} cannot be looked at whole; unreadable: {', '.join(map(repr, sorted(gaps)))}"
        )
    return Unclaimed(etags, tuple(sorted(walk.problems)))
