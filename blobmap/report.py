"""How much of a bucket is archivable, and what holds back the rest: counted in one listing, by row, blob and array.

Every object of the listing is in exactly one of the sums of a row, so they add up to it. Sizes are those of the
listing; documents only say what an array is and how many objects its grid has.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from blobmap.blob_sizes import BlobSizes, Window, hold_against
from blobmap.census import Size, take_census
from blobmap.chunk_keys import canonical_index
from blobmap.claims import is_neighbour
from blobmap.nodes import join
from blobmap.policy import Policy
from blobmap.resolve import Trie
from blobmap.roles import stand
from blobmap.structure import read_structures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from blobmap.arrays import ArrayLayout
    from blobmap.census import Census, Sizes
    from blobmap.manifest import Manifest, Pin
    from blobmap.manifests import ManifestStore
    from blobmap.roles import Role, Standing
    from blobmap.storage import Storage
    from blobmap.structure import Structure

LARGE_COORDINATE_BYTES: Final = 2**30
"""A coordinate that keeps more than this on disk is named."""

_MOST_DIVIDED: Final = 64  # manifests up to which the listing is divided by what they name

HotClass = Literal[
    "metadata", "dimension coordinate", "scalar", "auxiliary coordinate", "possible coordinate", "small array", "other"
]
"""Why objects are hot: documents, then arrays by what they are, then what lies below a hot pattern and is no array."""


@dataclass(slots=True)
class Row:
    """What a part of the bucket holds.

    Attributes:
        name: the first segment of its keys; "" for objects that have only one.
        archivable: what resolves to a blob.
        hot: what stays on disk by a manifest, and metadata documents.
        pinned: what stays on disk by a pin.
        unmanaged: what no manifest claims.
        blobs: how many blobs have objects here.
        array_objects: objects of arrays that are stored.
        grid_objects: objects that the grids of these arrays have.
    """

    name: str
    archivable: Size = field(default_factory=Size)
    hot: Size = field(default_factory=Size)
    pinned: Size = field(default_factory=Size)
    unmanaged: Size = field(default_factory=Size)
    blobs: int = 0
    array_objects: int = 0
    grid_objects: int = 0

    @property
    def total(self) -> Size:
        """All of it."""
        parts = (self.archivable, self.hot, self.pinned, self.unmanaged)
        return Size(sum(part.objects for part in parts), sum(part.stored_bytes for part in parts))


@dataclass(frozen=True, slots=True)
class ArrayNote:
    """One array that somebody should know about.

    Attributes:
        scope: key of its store.
        path: below that.
        role: what it is to the other arrays.
        objects: stored objects.
        grid_objects: objects of its whole grid.
        stored_bytes: size of the stored objects together.
    """

    scope: str
    path: str
    role: Role
    objects: int
    grid_objects: int
    stored_bytes: int


@dataclass(slots=True)
class Unclaimed:
    """What nobody claims of one store.

    Attributes:
        scope: key of the store.
        held_by: the nearest scope at or above it that has a manifest, None if there is none.
        size: of the unmanaged objects.
        arrays: paths of the arrays that have any.
    """

    scope: str
    held_by: str | None
    size: Size = field(default_factory=Size)
    arrays: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """All that is reported.

    Attributes:
        prefix: what it is about.
        total: the whole of it.
        rows: by first segment of the key, in order.
        hot: sizes of what is hot, by why it is.
        blobs: sizes of the blobs.
        large_coordinates: coordinates that keep more than `LARGE_COORDINATE_BYTES` on disk, the largest first.
        outgrown: arrays that are hot as small ones and are not small any more, the largest first.
        incomplete: arrays with fewer stored objects than their grid has, the least complete first.
        unclaimed: stores of which something is unmanaged, the largest first.
        loose: unmanaged objects outside of any store, by row.
        pins: scope and pin, of every manifest.
        problems: what could not be read, one line each; it is not in the sums.
    """

    prefix: str
    total: Row
    rows: list[Row]
    hot: dict[HotClass, Size]
    blobs: BlobSizes
    large_coordinates: list[ArrayNote] = field(default_factory=list)
    outgrown: list[ArrayNote] = field(default_factory=list)
    incomplete: list[ArrayNote] = field(default_factory=list)
    unclaimed: list[Unclaimed] = field(default_factory=list)
    loose: dict[str, Size] = field(default_factory=dict)
    pins: list[tuple[str, Pin]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def make_report(
    data: Storage,
    manifests: ManifestStore,
    prefix: str = "",
    *,
    window: Window,
    on_progress: Callable[[int], None] | None = None,
) -> Report:
    """Count everything below a prefix.

    Args:
        data: the bucket.
        manifests: its manifest root.
        prefix: by whole segments; "" is everything.
        window: what blobs are held against.
        on_progress: told how many objects were counted so far.

    Returns:
        The report.

    Raises:
        UnavailableError: a store cannot be reached.
        RefusedError: a store does not serve us.
    """
    held = _Held(manifests, prefix)
    census = take_census(data, held.trie, [prefix], outer=held.outer(), on_progress=on_progress)
    work = _Reporting(prefix, held, census, window)
    stores = census.stores()
    for structure in read_structures(data, census.nodes, stores):
        work.add_structure(structure)
    report = work.report
    report.problems += [f"{data.name}: {gap!r} could not be listed, and is not counted" for gap in data.gaps(prefix)]
    report.problems += manifests.problems
    return work.finished()


class _Held:
    """What the manifests say that can cover anything below a prefix, as far as a report needs it."""

    def __init__(self, manifests: ManifestStore, prefix: str) -> None:
        self.trie = Trie()
        self.pins: list[tuple[str, Pin]] = []
        self._policies: dict[str, Policy] = {}
        self._rows: dict[str, str] = {}
        self._arrays: set[str] = set()
        for manifest in manifests.load_all():
            if prefix in ("", manifest.scope) or is_neighbour(prefix, manifest.scope):
                self._add(manifest)

    def _add(self, manifest: Manifest) -> None:
        self.trie.add(manifest)
        self.pins += [(manifest.scope, pin) for pin in manifest.pinned]
        recorded = manifest.policy or {}
        limits = {name: recorded[name] for name in ("t_hot_bytes", "t_aux_bytes") if recorded.get(name, -1) >= 0}
        self._policies[manifest.scope] = Policy(**limits)
        if len(self._policies) <= _MOST_DIVIDED:
            self._arrays.update(
                join(manifest.scope, prefix.removesuffix("/").removesuffix("/c"))
                for blob in manifest.blobs
                for prefix in blob.prefixes
            )
        if not manifest.scope:
            self._rows = {blob.id: blob.prefixes[0].partition("/")[0] for blob in manifest.blobs}

    def outer(self) -> set[str]:
        """Prefixes that hold arrays with rules; none where there are too many for each to be listed by itself."""
        if len(self._policies) > _MOST_DIVIDED:
            return set()
        return {outer for array in self._arrays for outer in _at_or_above(array.rpartition("/")[0]) if array}

    def scope_of(self, place: str) -> str | None:
        """The nearest scope at or above a place that has a manifest."""
        return next((outer for outer in _at_or_above(place) if outer in self._policies), None)

    def policy(self, place: str) -> Policy:
        """The thresholds of the nearest manifest at or above a place."""
        scope = self.scope_of(place)
        return Policy() if scope is None else self._policies[scope]

    def row_of(self, scope: str, blob_id: str) -> str:
        """The row of a blob: that of its scope, or of the first prefix of its rule."""
        return scope.partition("/")[0] or self._rows.get(blob_id.rpartition("_")[0], "")


class _Reporting:
    """One report while it is made."""

    def __init__(self, prefix: str, held: _Held, census: Census, window: Window) -> None:
        self._held = held
        self._rows: dict[str, Row] = {}
        self._sizes = census.by_node()
        self._unclaimed: dict[str, Unclaimed] = {}
        self._hot: defaultdict[HotClass, Size] = defaultdict(Size)
        self.report = Report(prefix, Row("all"), [], self._hot, hold_against(window, census.blobs), pins=held.pins)
        for place, sizes in self._sizes.items():
            self._add_place(place, sizes, _store_of(place, census.nodes))
        for scope, blob_id in census.blobs:
            self._row(held.row_of(scope, blob_id)).blobs += 1
        self.report.total.blobs = len(census.blobs)

    def add_structure(self, structure: Structure) -> None:
        """Take in what the documents of one store say."""
        standings, _ = stand(structure.arrays, structure.groups)
        numbered = any(self._stored(join(structure.scope, group.path)).objects for group in structure.groups)
        for array in structure.arrays:
            place = join(structure.scope, array.path)
            stored = self._stored(place)
            # Objects of a folder called 0 can be taken for chunks of the group around it: then nobody can say how many
            # an array of that name has.
            is_counted = not (numbered and canonical_index(array.name) is not None)
            if is_counted:
                for row in (self.report.total, self._row(place.partition("/")[0])):
                    row.array_objects += stored.objects
                    row.grid_objects += array.grid_objects
            self._note(structure.scope, array, standings[array.path], stored, is_counted=is_counted)
        self.report.problems += structure.problems

    def _note(self, scope: str, array: ArrayLayout, standing: Standing, stored: Size, *, is_counted: bool) -> None:
        place = join(scope, array.path)
        sizes = self._sizes.get(place, {})
        note = ArrayNote(scope, array.path, standing.role, stored.objects, array.grid_objects, stored.stored_bytes)
        if is_counted and 0 < stored.objects < array.grid_objects:
            self.report.incomplete.append(note)
        if "unmanaged" in sizes:
            self._unclaimed[scope].arrays.append(array.path)
        hot = sizes.get("hot")
        if hot is None:
            return
        kind: HotClass = "small array" if standing.role == "data" else standing.role
        self._hot[kind].add(hot.objects, hot.stored_bytes)
        self._hot["other"].add(-hot.objects, -hot.stored_bytes)
        policy = self._held.policy(place)
        limits = {"data": policy.t_hot_bytes, "auxiliary coordinate": policy.t_aux_bytes}
        if standing.role in limits and hot.stored_bytes > limits[standing.role]:
            self.report.outgrown.append(note)
        elif standing.role != "data" and hot.stored_bytes > LARGE_COORDINATE_BYTES:
            self.report.large_coordinates.append(note)

    def finished(self) -> Report:
        """Put everything in order."""
        report = self.report
        report.rows = [self._rows[name] for name in sorted(self._rows)]
        report.unclaimed = sorted(
            self._unclaimed.values(), key=lambda store: (-store.size.stored_bytes, -store.size.objects, store.scope)
        )
        for notes in (report.large_coordinates, report.outgrown):
            notes.sort(key=lambda note: (-note.stored_bytes, note.scope, note.path))
        report.incomplete.sort(key=lambda note: (note.objects / note.grid_objects, note.scope, note.path))
        report.hot = {kind: size for kind, size in self._hot.items() if size.objects}
        return report

    def _add_place(self, place: str, sizes: Sizes, store: str | None) -> None:
        for row in (self.report.total, self._row(place.partition("/")[0])):
            for fate, size in sizes.items():
                part = {"blob": row.archivable, "pinned": row.pinned, "unmanaged": row.unmanaged}.get(fate, row.hot)
                part.add(size.objects, size.stored_bytes)
        for fate, kind in _HOT_KINDS:
            if fate in sizes:
                self._hot[kind].add(sizes[fate].objects, sizes[fate].stored_bytes)
        unmanaged = sizes.get("unmanaged")
        if unmanaged is None:
            return
        if store is None:
            loose = self.report.loose.setdefault(place.partition("/")[0], Size())
            loose.add(unmanaged.objects, unmanaged.stored_bytes)
        else:
            unclaimed = self._unclaimed.setdefault(store, Unclaimed(store, self._held.scope_of(store)))
            unclaimed.size.add(unmanaged.objects, unmanaged.stored_bytes)

    def _row(self, name: str) -> Row:
        return self._rows.setdefault(name, Row(name))

    def _stored(self, place: str) -> Size:
        """What is stored in a place beside metadata documents."""
        parts = [size for fate, size in self._sizes.get(place, {}).items() if fate != "metadata"]
        return Size(sum(part.objects for part in parts), sum(part.stored_bytes for part in parts))


_HOT_KINDS: Final[tuple[tuple[Literal["metadata", "hot"], HotClass], ...]] = (
    ("metadata", "metadata"),
    ("hot", "other"),
)


def _store_of(place: str, nodes: Mapping[str, object]) -> str | None:
    """The topmost node at or above a place."""
    found = None
    for outer in _at_or_above(place):
        if outer in nodes:
            found = outer
    return found


def _at_or_above(key: str) -> Iterator[str]:
    while key:
        yield key
        key = key.rpartition("/")[0]
    yield ""
