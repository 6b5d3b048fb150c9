"""What the nodes of stores are, read from their metadata documents: for whoever has listed them already.

Only documents that the listing has seen are read, several at a time; arrays are not listed. (`walk` is for whoever has
not listed anything yet.)
"""

from __future__ import annotations

from collections import defaultdict, deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from blobmap.arrays import ArrayLayout, GroupLayout
from blobmap.errors import DocumentError
from blobmap.layout import read_consolidated, read_v2_group
from blobmap.nodes import join, read_named, read_node, settle_node

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from blobmap.layout import Consolidated
    from blobmap.storage import Storage

_READERS: Final = 16
_AHEAD: Final = 512  # nodes that are asked for before the first store of them is handed out


@dataclass(frozen=True, slots=True)
class Structure:
    """One store, without anything that is stored in its arrays.

    Attributes:
        scope: its key.
        arrays: every array that can be understood, by path.
        groups: every group that can be understood, by path.
        problems: one line for each node that cannot.
    """

    scope: str
    arrays: tuple[ArrayLayout, ...]
    groups: tuple[GroupLayout, ...]
    problems: tuple[str, ...]


def read_structures(
    storage: Storage, nodes: Mapping[str, Collection[str]], stores: Collection[str]
) -> Iterator[Structure]:
    """Read the documents of every node of some stores.

    Args:
        storage: the bucket.
        nodes: key of every node, with the names of its metadata documents.
        stores: keys of the stores; none of them lies in another.

    Yields:
        The stores, in the order of their keys.

    Raises:
        UnavailableError: the bucket cannot be reached.
        RefusedError: the bucket does not serve us.
    """
    known = frozenset(stores)
    paths: defaultdict[str, list[str]] = defaultdict(list)
    for node in nodes:
        store = _store_of(node, known)
        if store is not None:
            paths[store].append(node[len(store) :].removeprefix("/"))
    readers = ThreadPoolExecutor(_READERS, thread_name_prefix="structure")
    begun: deque[_Reading] = deque()
    try:
        for store in sorted(paths):
            begun.append(_Reading(storage, store, sorted(paths[store]), nodes, readers))
            while sum(len(reading.found) for reading in begun) > _AHEAD:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        readers.shutdown(cancel_futures=True)


class _Reading:
    """One store while its nodes are read."""

    def __init__(
        self,
        storage: Storage,
        store: str,
        paths: list[str],
        nodes: Mapping[str, Collection[str]],
        readers: ThreadPoolExecutor,
    ) -> None:
        self._storage = storage
        self._store = store
        self._nodes = nodes
        # Asked for first, so that whoever waits for one of them waits for somebody who is at work.
        self._consolidated: dict[str, Future[Consolidated | None]] = {
            path: readers.submit(self._read_consolidated, path)
            for path in paths
            if ".zmetadata" in nodes[join(store, path)]
        }
        self.found = [readers.submit(self._read, path) for path in paths]

    def result(self) -> Structure:
        read = [future.result() for future in self.found]
        return Structure(
            self._store,
            tuple(found for found in read if isinstance(found, ArrayLayout)),
            tuple(found for found in read if isinstance(found, GroupLayout)),
            tuple(found for found in read if isinstance(found, str)),
        )

    def _read(self, path: str) -> ArrayLayout | GroupLayout | str | None:
        names = set(self._nodes[join(self._store, path)])
        first: Final = 3 if "zarr.json" in names else 2
        hint = None if first == 3 or ".zattrs" in names else self._hint(path)
        node = read_node(self._storage, self._store, path, first=first, consolidated=hint)
        if node.problem is not None:
            return node.problem
        try:
            if isinstance(node.layout, ArrayLayout):
                return settle_node(self._storage, self._store, node.layout, names)
            if isinstance(node.layout, GroupLayout) and node.layout.zarr_format == 2:
                return self._group(path, names)
        except DocumentError as error:
            return str(error)
        return node.layout

    def _group(self, path: str, names: Collection[str]) -> GroupLayout:
        zattrs = read_named(self._storage, join(self._store, path, ".zattrs")) if ".zattrs" in names else None
        known = self._consolidated.get(path)
        consolidated = known.result() if known is not None else None
        return read_v2_group(path, zattrs=zattrs, members=consolidated.arrays if consolidated else ())

    def _read_consolidated(self, path: str) -> Consolidated | None:
        found = read_named(self._storage, join(self._store, path, ".zmetadata"))
        try:
            return read_consolidated(*found) if found is not None else None
        except DocumentError:
            return None  # a repetition of what the documents themselves say

    def _hint(self, path: str) -> Mapping[str, object] | None:
        """Attributes of an array in the consolidated metadata of the nearest group around it that has them."""
        group = path
        while group:
            group = group.rpartition("/")[0]
            known = self._consolidated.get(group)
            consolidated = known.result() if known is not None else None
            relative = path[len(group) + 1 if group else 0 :]
            if consolidated is not None and relative in consolidated.attributes:
                return consolidated.attributes[relative]
        return None


def _store_of(node: str, stores: Collection[str]) -> str | None:
    while node not in stores:
        if not node:
            return None
        node = node.rpartition("/")[0]
    return node
