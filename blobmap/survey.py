"""One store, surveyed: every array with the number and size of its objects, in one pass and without opening any.

Groups are walked level by level (see `walk`), each array is listed flat as soon as it is found, several at once.
Objects are counted page by page (see `tally`) and never kept, so memory grows with arrays, not with objects.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Final

from blobmap.counters import SHARES, Counters
from blobmap.counting import Order
from blobmap.errors import DocumentError, ListingError, MissingError
from blobmap.nodes import Node, join, read_node, settle_node
from blobmap.policy import format_size
from blobmap.splits import Split, share_out, split_listing
from blobmap.tally import Measured, Tally, topmost
from blobmap.walk import Walk
from blobmap.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from blobmap.arrays import ArrayLayout, GroupLayout
    from blobmap.objects import Entry
    from blobmap.storage import Storage

_THREADS: Final = 2  # files and memory: more threads only take the interpreter's lock from each other
_REMOTE_THREADS: Final = 16  # a server: most of the time is waiting
_LARGE: Final = 20_000  # objects of a grid from which on its listing by a server is split
_LARGE_LOCAL: Final = 5_000  # and its files are counted by processes; fewer are counted while those start
_NAMED: Final = 8  # arrays that a message names at most


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
        ListingError: a part of it could not be listed, or went away meanwhile, so that nothing can be said about the
            whole.
        UnavailableError: the store cannot be reached.
        RefusedError: the store does not serve us.
    """
    root = read_node(storage, scope, "")
    if root.layout is None and root.problem is None:
        raise MissingError(f"{storage.name}: there is no zarr store at {scope or 'its root'!r}")
    storage.forget(scope)
    work = _Surveying(storage, scope, on_progress)
    work.run(root)
    gaps = storage.gaps(scope)
    if gaps:
        raise ListingError(
            f"{storage.name}: {scope!r} cannot be listed whole, so nothing is decided about it; unreadable: "
            + ", ".join(repr(gap) for gap in sorted(gaps))
            + _said_of_links(storage, gaps)
        )
    if work.gone or (work.is_empty and read_node(storage, scope, "") == Node("")):
        what = ", ".join(repr(path) for path in sorted(work.gone)[:_NAMED]) or "the store itself"
        raise ListingError(
            f"{storage.name}: {scope!r} was removed or moved while it was listed, so nothing is decided about it; "
            f"gone: {what}"
        )
    return work.result()


def _said_of_links(storage: Storage, gaps: Iterable[str]) -> str:
    files = storage.files
    names = sorted({gap.rpartition("/")[2] for gap in gaps if files is not None and files.is_link(gap)})
    if not names:
        return ""
    return (
        "; links to directories and out of the root are not followed: to decide without what lies behind them, "
        f"exclude {', '.join(map(repr, names))}"
    )


@dataclass(slots=True)
class _Count:
    """The count of one array while its parts are listed."""

    tally: Tally
    parts: int = 0
    lock: Lock = field(default_factory=Lock)


class _Surveying:
    """One survey while it runs."""

    def __init__(self, storage: Storage, scope: str, on_progress: Callable[[Progress], None] | None) -> None:
        self._storage = storage
        self._scope = scope
        self._workers = Workers(_REMOTE_THREADS if storage.is_remote else _THREADS)
        self._walk = Walk(storage, scope, self._workers, self._found)
        self._measured: dict[str, Measured] = {}
        self._etags: dict[str, str | None] = {}
        self._on_progress = on_progress
        self._progress = Progress()
        self.gone: list[str] = []  # arrays whose documents were read, and were not listed afterwards
        self._reporting = Lock()
        self._counters = Counters()

    @property
    def is_empty(self) -> bool:
        """Whether no array was found, whole or not."""
        return not (self._measured or self.gone or self._walk.problems)

    def run(self, root: Node) -> None:
        try:
            self._walk.start(root)
            self._workers.collect()
        finally:
            self._counters.end()

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
        self._count(layout, (), self._counted)

    def _count(
        self, layout: ArrayLayout, apart_from: tuple[str, ...], then: Callable[[ArrayLayout, Tally], None]
    ) -> None:
        """Have one array listed flat, a large one in several parts at once."""
        key = join(self._scope, layout.path)
        prefix = key + "/" if key else ""
        large = layout.grid_objects > (_LARGE if self._storage.is_remote else _LARGE_LOCAL)
        tally = partial(Tally, layout, prefix, apart_from=apart_from)
        count = _Count(tally())
        work: list[Callable[[], None]]
        if large and self._storage.files is not None and self._counters.useful:
            self._storage.forget(key)
            root, exclude = self._storage.files.root, self._storage.files.exclude
            orders = [Order(root, exclude, key, share, tally()) for share in share_out(layout, prefix, SHARES)]
            work = [partial(self._have_counted, count, order) for order in orders]
        else:
            parts = split_listing(layout, prefix) if large and self._storage.is_remote else (Split(),)
            # Every listing is asked for before any is read: asking for one forgets what the others could not read.
            work = [partial(self._list, count, part, self._storage.pages(key, after=part.after)) for part in parts]
        count.parts = len(work)

        def finished(_: None) -> None:
            count.parts -= 1
            if count.parts == 0:
                then(layout, count.tally)

        for part in work:
            self._workers.do(part, finished)

    def _have_counted(self, count: _Count, order: Order) -> None:
        counted = self._counters.count(order, self._workers.stopping, lambda objects: self._report(objects=objects))
        with count.lock:
            count.tally.merge(counted.tally)
            self._storage.note(counted.unreadable, counted.odd_keys)

    def _list(self, count: _Count, part: Split, pages: Iterator[Sequence[Entry]]) -> None:
        for page in pages:
            if self._workers.stopping.is_set():
                return
            kept = part.within(page)
            with count.lock:
                count.tally.add(kept)
            self._report(objects=len(kept))
            if len(kept) < len(page):
                return

    def _counted(self, layout: ArrayLayout, tally: Tally) -> None:
        """Take in a first count: nodes inside the array are walked, and the array is counted again without them."""
        inside = topmost(tally.inside)
        if inside:
            skip = len(self._scope) + 1 if self._scope else 0
            self._walk.enter(node[skip:] for node in inside)
            self._count(layout, inside, self._settle)
        else:
            self._settle(layout, tally)

    def _settle(self, layout: ArrayLayout, tally: Tally) -> None:
        """Take in a count that stands, once the array's documents of both formats agree."""
        self._workers.do(partial(self._settled, layout, tally), partial(self._keep, layout, tally))

    def _settled(self, layout: ArrayLayout, tally: Tally) -> ArrayLayout | DocumentError:
        try:
            return settle_node(self._storage, self._scope, layout, tally.documents)
        except DocumentError as error:
            return error

    def _keep(self, layout: ArrayLayout, tally: Tally, settled: ArrayLayout | DocumentError) -> None:
        self._report(arrays_done=1)
        if not tally.documents:
            self.gone.append(layout.path)
        elif isinstance(settled, DocumentError):
            self._walk.fail(layout.path, str(settled))
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
                    f"consolidated metadata of {group.label} names {len(gone)} arrays that have no "
                    f"document of their own, the first is {min(gone)!r}"
                )
