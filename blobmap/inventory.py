"""What lies below a prefix, for whoever asks about many prefixes: a census and the documents it met, in key order."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING

from blobmap.census import Size
from blobmap.nodes import join
from blobmap.roles import stand
from blobmap.structure import read_structures
from blobmap.tally import Measured

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from blobmap.census import Census, Fate
    from blobmap.roles import Standing
    from blobmap.storage import Storage


class Inventory:
    """Everything that a census counted, with what the documents say.

    Args:
        data: the bucket.
        census: of it.

    Attributes:
        blobs: sizes by scope and rule id.
        problems: key of a store and what is wrong with one of its documents, for each that cannot be understood.
    """

    def __init__(self, data: Storage, census: Census) -> None:
        self.blobs: dict[tuple[str, str], Size] = {}
        self.problems: list[tuple[str, str]] = []
        for (scope, blob_id), size in census.blobs.items():
            self.blobs.setdefault((scope, blob_id.rpartition("_")[0]), Size()).add(size.objects, size.stored_bytes)
        self._sizes = census.by_node()
        self._places = sorted(self._sizes)
        self._nodes = census.nodes
        self._node_keys = sorted(census.nodes)
        arrays: dict[str, tuple[Measured, Standing]] = {}
        for structure in read_structures(data, census.nodes, census.stores()):
            standings, _ = stand(structure.arrays, structure.groups)
            for layout in structure.arrays:
                place = join(structure.scope, layout.path)
                stored = self.stored(place)
                measured = Measured(layout, stored.objects, stored.stored_bytes, layout.encoding, layout.obstacle)
                arrays[place] = (measured, standings[layout.path])
            self.problems += [(structure.scope, problem) for problem in structure.problems]
        self._arrays = arrays
        self._array_keys = sorted(arrays)

    def sizes_at(self, place: str) -> Mapping[Fate, Size]:
        """What is stored of one node, by fate."""
        return self._sizes.get(place, {})

    def stored(self, place: str) -> Size:
        """What is stored of one node, its documents apart."""
        parts = [size for fate, size in self.sizes_at(place).items() if fate != "metadata"]
        return Size(sum(part.objects for part in parts), sum(part.stored_bytes for part in parts))

    def sizes_below(self, prefix: str) -> Mapping[Fate, Size]:
        """What lies in the nodes and folders at or below a prefix, by fate; also where they hold more than that."""
        found: dict[Fate, Size] = {}
        for place in _at_or_below(prefix, self._places):
            for fate, size in self._sizes[place].items():
                found.setdefault(fate, Size()).add(size.objects, size.stored_bytes)
        return found

    def documents_below(self, prefix: str) -> int:
        """How many metadata documents lie at or below a prefix."""
        return sum(len(self._nodes[node]) for node in _at_or_below(prefix, self._node_keys))

    def arrays_below(self, scope: str) -> tuple[list[Measured], dict[str, Standing]]:
        """The arrays at or below a scope, with paths relative to it, and their standings by that path."""
        arrays, standings = [], {}
        for place in _at_or_below(scope, self._array_keys):
            measured, standing = self._arrays[place]
            path = place[len(scope) :].removeprefix("/")
            arrays.append(replace(measured, layout=replace(measured.layout, path=path)))
            standings[path] = standing
        return arrays, standings


def _at_or_below(prefix: str, ordered: Sequence[str]) -> Iterator[str]:
    """Those of some keys, in order, that are a prefix or lie below it."""
    if not prefix:
        yield from ordered
        return
    place = bisect_left(ordered, prefix)
    if place < len(ordered) and ordered[place] == prefix:
        yield prefix
    for place in range(bisect_left(ordered, prefix + "/"), bisect_left(ordered, prefix + "0")):
        yield ordered[place]
