"""What the manifests in force make of every object below a prefix: one listing, counted by kind, node and blob.

Nothing is kept per object. A node is a group or an array, known by its metadata documents; what a key belongs to is the
deepest node above it. Documents are not read here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from blobmap.chunk_keys import METADATA_NAMES
from blobmap.sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from blobmap.objects import Entry
    from blobmap.resolve import Trie
    from blobmap.rules import Resolution
    from blobmap.storage import Storage
    from blobmap.sweep import Part

Fate = Literal["blob", "hot", "pinned", "unmanaged", "metadata"]
"""What becomes of an object: the kinds of a resolution, and metadata documents, which are hot, by themselves."""

FATES: Final[tuple[Fate, ...]] = ("blob", "hot", "pinned", "unmanaged", "metadata")

_INDEX: Final = "0123456789./"
# What a chunk's key has after the array, from the left-most place where it can begin.
_SUFFIX: Final = re.compile(r"(?:^|/)(?:c[/.])?+(?:[0-9]++[/.])*+[0-9]++\Z")
_NO_NAMES: Final[frozenset[str]] = frozenset()
_K = TypeVar("_K")
_path = itemgetter("path")
_size = itemgetter("size")


@dataclass(slots=True)
class Size:
    """How many objects, and their size together."""

    objects: int = 0
    stored_bytes: int = 0

    def add(self, objects: int, stored_bytes: int) -> None:
        """Add what was counted elsewhere."""
        self.objects += objects
        self.stored_bytes += stored_bytes


Sizes = dict[Fate, Size]


@dataclass(slots=True)
class Census:
    """What was counted.

    Attributes:
        places: sizes by node, or by folder where there is no node.
        blobs: sizes by scope and blob id.
        scopes: sizes by scope of the manifest that decided, None where there is none.
        nodes: key of every node, with the names of its metadata documents.
    """

    places: dict[str, Sizes] = field(default_factory=dict)
    blobs: dict[tuple[str, str], Size] = field(default_factory=dict)
    scopes: dict[str | None, Sizes] = field(default_factory=dict)
    nodes: dict[str, frozenset[str]] = field(default_factory=dict)

    def merge(self, other: Census) -> None:
        """Add what was counted elsewhere."""
        _merge(self.places, other.places)
        _merge(self.scopes, other.scopes)
        for blob, size in other.blobs.items():
            self.blobs.setdefault(blob, Size()).add(size.objects, size.stored_bytes)
        for node, names in other.nodes.items():
            self.nodes[node] = self.nodes.get(node, names) | names

    def by_node(self) -> dict[str, Sizes]:
        """Give the sizes of places by the deepest node at or above each; places without any stay as they are."""
        found: dict[str, Sizes] = {}
        for place, sizes in self.places.items():
            _merge(found, {self.node_of(place) or place: sizes})
        return found

    def node_of(self, place: str) -> str | None:
        """Name the deepest node at or above a place, if there is one."""
        while place not in self.nodes:
            if not place:
                return None
            place = place.rpartition("/")[0]
        return place

    def stores(self) -> list[str]:
        """Name the topmost nodes, in order."""
        return sorted(node for node in self.nodes if not node or self.node_of(node.rpartition("/")[0]) is None)


def take_census(
    storage: Storage,
    trie: Trie,
    prefixes: Iterable[str],
    *,
    outer: Collection[str] = (),
    on_progress: Callable[[int], None] | None = None,
) -> Census:
    """Count everything below some prefixes.

    Args:
        storage: the bucket.
        trie: the manifests in force.
        prefixes: where to count; none of them lies below another.
        outer: prefixes that are known to hold several arrays or stores, see `Sweep`.
        on_progress: told how many objects were counted so far.

    Returns:
        The census. Where a part could not be listed, `storage.gaps` names it, and the census is without it.

    Raises:
        UnavailableError: the bucket cannot be reached.
        RefusedError: the bucket does not serve us.
    """
    census = Census()
    sweep = Sweep(
        storage,
        lambda part: _Counting(trie, part),
        lambda counted: census.merge(counted.census),
        outer=outer,
        on_progress=on_progress,
    )
    sweep.run(prefixes)
    return census


class _Counting:
    """The census of one listing.

    Args:
        trie: the manifests in force.
        part: what is listed.
    """

    def __init__(self, trie: Trie, part: Part) -> None:
        self.census = Census()
        self._trie = trie
        self._one_node = part.prefix if part.one_node else None
        # The place found last, and what keys begin and end with that have it too.
        self._place, self._begin, self._stem = "", "/", ""

    def add(self, page: Sequence[Entry]) -> None:
        """Count one page."""
        keys = [*map(_path, page)]
        answers = self._trie.lookup_many(keys)
        documents = self._documents(keys)
        place = None if documents else self._one_node if self._one_node is not None else self._place_of_all(keys)
        if place is not None:
            self._add_to(place, zip(answers, map(_size, page), strict=True))
            return
        for key, answer, size in zip(keys, answers, map(_size, page), strict=True):
            place = self._place_of(key) if self._one_node is None else self._one_node
            self._count(place, answer, 1, size, "metadata" if key in documents else answer.kind)

    def _add_to(self, place: str, answered: Iterable[tuple[Resolution, int]]) -> None:
        """Count keys of one place: keys of one blob mostly come together, and have the very same answer."""
        totals: dict[int, tuple[Resolution, Size]] = {}
        last: Resolution | None = None
        objects = stored_bytes = 0
        for answer, size in answered:
            if answer is last:
                objects += 1
                stored_bytes += size
                continue
            if last is not None:
                _total(totals, last).add(objects, stored_bytes)
            last, objects, stored_bytes = answer, 1, size
        if last is not None:
            _total(totals, last).add(objects, stored_bytes)
        for answer, total in totals.values():
            self._count(place, answer, total.objects, total.stored_bytes, answer.kind)

    def _count(self, place: str, answer: Resolution, objects: int, stored_bytes: int, fate: Fate) -> None:
        census = self.census
        _size_of(census.places, place, fate).add(objects, stored_bytes)
        _size_of(census.scopes, answer.scope, fate).add(objects, stored_bytes)
        if answer.blob_id is not None and answer.scope is not None:
            census.blobs.setdefault((answer.scope, answer.blob_id), Size()).add(objects, stored_bytes)

    def _documents(self, keys: Sequence[str]) -> frozenset[str]:
        """Find the metadata documents of a page, and so its nodes."""
        joined = "\n".join(["", *keys, ""])
        if "zarr.json\n" not in joined and ".z" not in joined:
            return frozenset()
        found = frozenset(key for key in keys if key.rpartition("/")[2] in METADATA_NAMES)
        nodes = self.census.nodes
        for key in found:
            node, _, name = key.rpartition("/")
            nodes[node] = nodes.get(node, _NO_NAMES) | {name}
        if found:
            self._begin = "/"  # a place found before may be another now
        return found

    def _place_of_all(self, keys: Sequence[str]) -> str | None:
        """The place that a page without documents has in common.

        Where keys are in order, what has another place than the first and the last of them is a node between the two,
        and so are its documents.
        """
        first, last = self._place_of(keys[0]), self._place_of(keys[-1])
        return first if first == last and keys == sorted(keys) else None

    def _place_of(self, key: str) -> str:
        stem = key.rstrip(_INDEX)
        if stem == self._stem and key.startswith(self._begin):
            return self._place
        suffix = _SUFFIX.search(key)
        least = suffix.start() if suffix else key.rfind("/")
        place = key.rpartition("/")[0]
        while place not in self.census.nodes and len(place) > max(least, 0):
            place = place.rpartition("/")[0]
        self._place, self._begin, self._stem = place, f"{place}/" if place else "", stem
        return place


def _total(totals: dict[int, tuple[Resolution, Size]], answer: Resolution) -> Size:
    """What was counted of one answer, by which object it is: its fields would be hashed each time."""
    found = totals.get(id(answer))
    if found is None:
        found = totals[id(answer)] = (answer, Size())
    return found[1]


def _size_of(sizes: dict[_K, Sizes], key: _K, fate: Fate) -> Size:
    found = sizes.get(key)
    if found is None:
        found = sizes[key] = {}
    size = found.get(fate)
    if size is None:
        size = found[fate] = Size()
    return size


def _merge(mine: dict[_K, Sizes], theirs: dict[_K, Sizes]) -> None:
    for key, sizes in theirs.items():
        for fate, size in sizes.items():
            _size_of(mine, key, fate).add(size.objects, size.stored_bytes)
