"""Everything below a prefix: which stores there are and which of them nobody has cut yet, and what is no store at all.

A scan reads documents and lists folders; arrays are not listed, so it says nothing about sizes of stores. It stops at
the root of a store, and says of each whether there are stores inside it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from blobmap.chunk_keys import METADATA_NAMES, canonical_index
from blobmap.claims import resolve_layout
from blobmap.foreign import is_icechunk, is_reference_json, is_reference_parquet, kind_of_file
from blobmap.nodes import join, read_body, read_node
from blobmap.resolve import Trie
from blobmap.search import count_loose, find_nodes, pages_until
from blobmap.storage import as_storage
from blobmap.tally import Count, around
from blobmap.walk import Walk
from blobmap.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from obstore.store import ObjectStore

    from blobmap.arrays import ArrayLayout
    from blobmap.foreign import Kind
    from blobmap.manifests import ManifestStore
    from blobmap.nodes import Node
    from blobmap.objects import Entry, Level
    from blobmap.storage import Storage

_THREADS: Final = 16
_MANY: Final = 100  # a folder with more children than this, all of them numbers, is searched and not walked
_REFERENCE_BYTES: Final = 16 * 2**20  # a longer document is not opened to see whether it holds references


@dataclass(frozen=True, slots=True)
class FoundStore:
    """One zarr store.

    Attributes:
        scope: its key.
        epoch: of its manifest, None if it has none.
        arrays: how many arrays it has.
        unclaimed: paths of arrays that resolve to nothing under the manifests in force.
        claimed_by: other scopes whose manifests claim some of its arrays.
        inner: keys of what looks like stores inside it.
        problems: one line for each metadata document of it that cannot be understood.
    """

    scope: str
    epoch: int | None
    arrays: int
    unclaimed: tuple[str, ...] = ()
    claimed_by: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def is_new(self) -> bool:
        """Whether nobody has cut it: no manifest of its own, and something that no other manifest claims."""
        return self.epoch is None and (bool(self.unclaimed) or not self.claimed_by)


@dataclass(frozen=True, slots=True)
class FoundForeign:
    """Objects that are no zarr store.

    Attributes:
        prefix: where they are; the highest folder that has no store in it, or the folder itself.
        kind: what they are.
        objects: how many.
        stored_bytes: their size together.
    """

    prefix: str
    kind: Kind
    objects: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class Scan:
    """What lies below a prefix.

    Attributes:
        stores: every store, by key.
        foreign: everything else, by prefix and kind.
        problems: what could not be read, one line each: documents, manifests, prefixes.
    """

    stores: tuple[FoundStore, ...] = ()
    foreign: tuple[FoundForeign, ...] = ()
    problems: tuple[str, ...] = ()


def scan_stores(
    data: ObjectStore | Storage,
    manifests: ManifestStore,
    prefix: str = "",
    *,
    on_progress: Callable[[int, int], None] | None = None,
) -> Scan:
    """Find every store below a prefix, at any depth.

    Args:
        data: the bucket or directory. It is only read.
        manifests: what is in force.
        prefix: where to begin, by whole segments; empty for everything.
        on_progress: told how many folders were looked at and how many stores were found.

    Returns:
        Stores, foreign objects, and what could not be read.

    Raises:
        UnavailableError: a store cannot be reached.
        RefusedError: a store does not serve us.
    """
    storage = as_storage(data)
    trie, epochs = Trie(), {}
    for manifest in manifests.load_all():
        trie.add(manifest)
        epochs[manifest.scope] = manifest.epoch
    prefix = prefix.strip("/")
    storage.forget(prefix)
    work = _Scanning(storage, on_progress)
    work.run(prefix)
    stores = tuple(work.found(trie, epochs))
    problems = [problem for store in stores for problem in store.problems]
    problems += [f"{storage.name}: {fenced!r} could not be listed" for fenced in storage.gaps(prefix)]
    return Scan(stores, tuple(work.foreign(prefix)), (*problems, *manifests.problems))


class _Scanning:
    """One scan while it runs."""

    def __init__(self, storage: Storage, on_progress: Callable[[int, int], None] | None) -> None:
        self._storage = storage
        self._workers = Workers(_THREADS)
        self._on_progress = on_progress
        self._folders = 0
        self._stores: dict[str, tuple[Walk, list[ArrayLayout]]] = {}
        self._foreign: defaultdict[tuple[str, Kind], Count] = defaultdict(Count)

    def run(self, prefix: str) -> None:
        self._enter([prefix])
        self._workers.collect()

    def found(self, trie: Trie, epochs: dict[str, int]) -> Iterator[FoundStore]:
        for scope, (walk, arrays) in sorted(self._stores.items()):
            answers = {layout.path: resolve_layout(trie, scope, layout) for layout in arrays}
            others = {
                answer.scope for answer in answers.values() if answer.kind != "unmanaged" and answer.scope != scope
            }
            yield FoundStore(
                scope=scope,
                epoch=epochs.get(scope),
                arrays=len(arrays),
                unclaimed=tuple(sorted(path for path, answer in answers.items() if answer.kind == "unmanaged")),
                claimed_by=tuple(sorted(other for other in others if other is not None)),
                inner=tuple(sorted(join(scope, path) for path in walk.inner)),
                problems=tuple(sorted(walk.problems)),
            )

    def foreign(self, prefix: str) -> Iterator[FoundForeign]:
        """Counts by folder, folded into the highest folder below the prefix that has no store in it."""
        holding = {outer for scope in self._stores for outer in _and_around(scope)}
        folded: defaultdict[tuple[str, Kind], Count] = defaultdict(Count)
        for (folder, kind), count in self._foreign.items():
            chain = [place for place in _and_around(folder) if _is_below(place, prefix) and place not in holding]
            place = chain[-1] if chain and kind != "icechunk repository" else folder
            folded[place, kind].merge(count)
        for (place, kind), count in sorted(folded.items()):
            yield FoundForeign(place, kind, count.objects, count.stored_bytes)

    def _enter(self, folders: Iterable[str]) -> None:
        for folder in folders:
            self._workers.do(partial(self._read, folder), self._entered)

    def _read(self, folder: str) -> tuple[str, Node]:
        return folder, read_node(self._storage, folder, "")

    def _entered(self, read: tuple[str, Node]) -> None:
        folder, node = read
        self._folders += 1
        if node.layout is not None or node.problem is not None:
            arrays: list[ArrayLayout] = []
            walk = Walk(self._storage, folder, self._workers, lambda layout, _: arrays.append(layout))
            self._stores[folder] = (walk, arrays)
            walk.start(node)
        else:
            self._workers.do(partial(self._look, folder), self._looked)
        if self._on_progress is not None:
            self._on_progress(self._folders, len(self._stores))

    def _look(self, folder: str) -> _Seen:
        """Look at one folder that is no store."""
        level = self._storage.level(folder)
        folders = [_name(key) for key in level.prefixes]
        objects = [_name(entry["path"]) for entry in level.objects]
        if is_icechunk(folders, objects):
            return _Seen(folder, whole="icechunk repository", loose=self._count_all(folder))
        for entry in level.objects:
            if _name(entry["path"]) == ".zmetadata" and self._holds(entry, is_reference_parquet):
                return _Seen(folder, whole="kerchunk references", loose=self._count_all(folder))
        numbers = [name for name in folders if canonical_index(name) is not None]
        if len(folders) > _MANY and len(numbers) == len(folders):
            nodes, loose = find_nodes(self._storage, folder, self._workers.stopping)
            return _Seen(folder, children=nodes, whole="other objects", loose=loose)
        return _Seen(folder, children=level.prefixes, files=dict(self._by_kind(level)))

    def _by_kind(self, level: Level) -> Iterator[tuple[Kind, Count]]:
        counts: defaultdict[Kind, Count] = defaultdict(Count)
        documents: list[Entry] = []
        for entry in level.objects:
            name = _name(entry["path"])
            if name.endswith(".json") and name not in METADATA_NAMES:
                documents.append(entry)
            else:
                count_loose(counts[kind_of_file(name)], [entry])
        count_loose(counts["kerchunk references" if self._are_references(documents) else "other objects"], documents)
        for kind, count in counts.items():
            if count.objects:
                yield kind, count

    def _are_references(self, documents: list[Entry]) -> bool:
        """Whether JSON documents of one folder are references: the smallest one tells for all."""
        small = min(documents, key=lambda entry: entry["size"], default=None)
        return small is not None and self._holds(small, is_reference_json)

    def _holds(self, entry: Entry, what: Callable[[bytes], bool]) -> bool:
        """Whether a document, unless it is too long to look, is what the question says."""
        if entry["size"] > _REFERENCE_BYTES:
            return False
        body = read_body(self._storage, entry["path"])
        return body is not None and what(body.data)

    def _count_all(self, folder: str) -> Count:
        count = Count()
        for page in pages_until(self._storage, folder, self._workers.stopping):
            for entry in page:
                count.add(entry["path"], entry["size"])
        return count

    def _looked(self, seen: _Seen) -> None:
        if seen.whole is not None:
            self._foreign[seen.folder, seen.whole].merge(seen.loose)
        for kind, count in seen.files.items():
            self._foreign[seen.folder, kind].merge(count)
        self._enter(seen.children)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was seen in a folder that is no store: deeper folders to enter, files by kind, or one kind as a whole."""

    folder: str
    children: tuple[str, ...] = ()
    files: Mapping[Kind, Count] = field(default_factory=dict)
    whole: Kind | None = None
    loose: Count = field(default_factory=Count)


def _name(key: str) -> str:
    return key.rpartition("/")[2]


def _and_around(key: str) -> Iterator[str]:
    """A key and everything above it, from the inside out, down to the root."""
    yield key
    yield from around(key)
    if key:
        yield ""


def _is_below(key: str, prefix: str) -> bool:
    return key != prefix and (not prefix or key.startswith(prefix + "/"))
