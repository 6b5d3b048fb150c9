"""One store, surveyed: every array with the number and size of its objects, in one pass and without opening any.

Groups are walked level by level (see `walk`), each array is listed flat as soon as it is found, several at once.
Objects are counted page by page (see `tally`) and never kept, so memory grows with arrays, not with objects.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Final

from blobmap.errors import DocumentError, ListingError, MissingError
from blobmap.nodes import join, read_node, settle_node
from blobmap.policy import format_size
from blobmap.tally import Measured, Tally
from blobmap.walk import Walk
from blobmap.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from blobmap.arrays import ArrayLayout, GroupLayout
    from blobmap.nodes import Node
    from blobmap.storage import Storage

_THREADS: Final = 8


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a survey is.

    Attributes:
        objects: counted so far.
        arrays_done: arrays whose objects are counted.
        arrays: arrays found so far.
    """

    objects: int = 0
    arrays_done: int = 0
    arrays: int = 0


@dataclass(frozen=True, slots=True)
class Survey:
    """One store and what it holds.

    Attributes:
        scope: key of the store.
        arrays: every array, by path.
        groups: every group, by path.
        etags: of the metadata document of each array, by path.
        problems: one line for each metadata document that cannot be understood.
        unread: paths of the nodes with such documents.
        warnings: what else is to be said, one line each.
        loose_objects: objects that are neither metadata nor below an array.
        loose_bytes: their size together.
    """

    scope: str
    arrays: tuple[Measured, ...]
    groups: tuple[GroupLayout, ...]
    etags: Mapping[str, str | None] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    loose_objects: int = 0
    loose_bytes: int = 0


def survey_store(storage: Storage, scope: str, *, on_progress: Callable[[Progress], None] | None = None) -> Survey:
    """Survey one store.

    Args:
        storage: where it is.
        scope: its key; empty for a store at the root.
        on_progress: told how far it is, from any thread but never from two at once.

    Returns:
        The survey.

    Raises:
        MissingError: there is no zarr store at this key.
        ListingError: a part of it could not be listed, so that nothing can be said about the whole.
        UnavailableError: the store cannot be reached.
        RefusedError: the store does not serve us.
    """
    root = read_node(storage, scope, "")
    if root.layout is None and root.problem is None:
        raise MissingError(f"{storage.name}: there is no zarr store at {scope or 'its root'!r}")
    work = _Surveying(storage, scope, on_progress)
    work.run(root)
    fenced = [prefix for prefix in storage.unreadable if _touches(prefix, scope)]
    if fenced:
        raise ListingError(
            f"{storage.name}: {scope!r} cannot be listed whole, nothing is decided about it; unreadable: "
            + ", ".join(repr(prefix) for prefix in sorted(fenced))
        )
    return work.result()


class _Surveying:
    """One survey while it runs."""

    def __init__(self, storage: Storage, scope: str, on_progress: Callable[[Progress], None] | None) -> None:
        self._storage = storage
        self._scope = scope
        self._workers = Workers(_THREADS)
        self._walk = Walk(storage, scope, self._workers, self._found)
        self._measured: dict[str, Measured] = {}
        self._etags: dict[str, str | None] = {}
        self._on_progress = on_progress
        self._progress = Progress()
        self._reporting = Lock()

    def run(self, root: Node) -> None:
        self._walk.start(root)
        self._workers.collect()

    def result(self) -> Survey:
        walk = self._walk
        return Survey(
            scope=self._scope,
            arrays=tuple(self._measured[path] for path in sorted(self._measured)),
            groups=tuple(sorted(walk.groups, key=lambda group: group.path)),
            etags=self._etags,
            problems=tuple(sorted(walk.problems)),
            unread=tuple(sorted(walk.unread)),
            warnings=tuple(self._warnings()),
            loose_objects=walk.loose.objects,
            loose_bytes=walk.loose.stored_bytes,
        )

    def _found(self, layout: ArrayLayout, etag: str | None) -> None:
        self._etags[layout.path] = etag
        self._report(arrays=1)
        self._workers.do(lambda: self._measure(layout, ()), lambda found: self._counted(layout, *found))

    def _measure(self, layout: ArrayLayout, apart_from: tuple[str, ...]) -> tuple[Tally, ArrayLayout, str | None]:
        """List one array flat: the count, the array as all its documents describe it, and what is wrong with them."""
        key = join(self._scope, layout.path)
        tally = Tally(layout, key + "/" if key else "", apart_from=apart_from)
        for page in self._storage.pages(key):
            if self._workers.stopping.is_set():
                break
            tally.add(page)
            self._report(objects=len(page))
        try:
            return tally, settle_node(self._storage, self._scope, layout, tally.documents), None
        except DocumentError as error:
            return tally, layout, str(error)

    def _counted(self, layout: ArrayLayout, tally: Tally, settled: ArrayLayout, problem: str | None) -> None:
        inside = _topmost(tally.inside)
        if inside and problem is None:
            skip = len(self._scope) + 1 if self._scope else 0
            self._walk.enter(node[skip:] for node in inside)
            apart_from = tuple(node + "/" for node in inside)
            self._workers.do(
                lambda: self._measure(layout, apart_from), lambda found: self._keep(layout, found[0], settled, found[2])
            )
        else:
            self._keep(layout, tally, settled, problem)

    def _keep(self, layout: ArrayLayout, tally: Tally, settled: ArrayLayout, problem: str | None) -> None:
        self._report(arrays_done=1)
        if problem is not None:
            self._walk.fail(layout.path, problem)
        else:
            self._measured[layout.path] = replace(tally.result(), layout=settled)

    def _report(self, *, objects: int = 0, arrays_done: int = 0, arrays: int = 0) -> None:
        if self._on_progress is None:
            return
        with self._reporting:
            now = self._progress
            self._progress = Progress(now.objects + objects, now.arrays_done + arrays_done, now.arrays + arrays)
            self._on_progress(self._progress)

    def _warnings(self) -> Iterator[str]:
        loose = self._walk.loose
        if loose.objects:
            yield (
                f"{loose.objects} objects ({format_size(loose.stored_bytes)}) belong to no array and stay unmanaged, "
                f"the first is {loose.first!r}"
            )
        for group in self._walk.groups:
            gone = [
                path
                for path in (join(group.path, member) for member in group.members)
                if path not in self._measured and path not in self._walk.unread
            ]
            if gone:
                yield (
                    f"consolidated metadata of {group.path or 'the store'!r} names {len(gone)} arrays that have no "
                    f"document of their own, the first is {min(gone)!r}"
                )


def _touches(prefix: str, scope: str) -> bool:
    """Whether one of two keys is the other, or lies below it."""
    return not prefix or not scope or f"{prefix}/".startswith(f"{scope}/") or f"{scope}/".startswith(f"{prefix}/")


def _topmost(nodes: set[str]) -> list[str]:
    return sorted(node for node in nodes if not any(node.startswith(other + "/") for other in nodes))
