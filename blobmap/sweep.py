"""Everything below a prefix, listed once, by several listings at a time, page by page into counters.

Where a listing is in key order, one begins, and hands over what is left of it whenever a worker has nothing to do: cut
at the children of its prefix, or at digits within an array. Where there is no order, folders are listed one by one. No
page is kept, and no object comes twice, however the work is divided.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from blobmap.chunk_keys import METADATA_NAMES
from blobmap.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from blobmap.objects import Entry
    from blobmap.storage import Storage

_THREADS: Final = 4
_REMOTE_THREADS: Final = 16
_PAGES: Final = (2, 4, 8, 16)  # read by a listing before it hands over, by how often it was handed over itself
_MOST_CHILDREN: Final = 256  # of a prefix that is divided without being looked at
_MOST_PARTS: Final = 32  # listings that are made of one that hands over
_DIGITS: Final = "123456789"
_CHARACTERS: Final = "2468BDFHJLNPRTVXZbdfhjlnprtvxz"
_CHUNK: Final = re.compile(r"(?:c[/.])?+(?:[0-9]++[/.])*+[0-9]++")
_path = itemgetter("path")


class Counter(Protocol):
    """Counts what one listing gives."""

    def add(self, page: Sequence[Entry]) -> None:
        """Count one page."""


_C = TypeVar("_C", bound=Counter)


@dataclass(frozen=True, slots=True)
class Part:
    """What one listing is to list.

    Attributes:
        prefix: everything below it.
        after: only keys greater than this, None for the beginning.
        last: only keys up to this one, None for the end.
        one_node: whether no metadata document lies deeper than directly below the prefix, as far as can be seen: then
            all of it belongs to one array.
        turn: how often it was handed over.
    """

    prefix: str
    after: str | None = None
    last: str | None = None
    one_node: bool = False
    turn: int = 0

    def holds(self, key: str) -> bool:
        """Say whether a key below the prefix is within the bounds."""
        return (self.after is None or key > self.after) and (self.last is None or key <= self.last)

    def inside(self, child: str, reached: str) -> Part:
        """Give what is left of one child, when the listing has come to a key."""
        return Part(
            child,
            reached if reached.startswith(child + "/") else None,
            self.last if self.last is not None and self.last.startswith(child + "/") else None,
            turn=self.turn + 1,
        )


class Sweep(Generic[_C]):
    """One sweep.

    Args:
        storage: what is listed.
        begin: makes a counter for a part that is to be listed; called in workers.
        take: takes in a counter whose part was listed; called in the thread that runs the sweep.
        outer: prefixes that are known to hold several arrays or stores: they are divided without being looked at.
        on_progress: told how many objects were listed, in the same thread.
    """

    def __init__(
        self,
        storage: Storage,
        begin: Callable[[Part], _C],
        take: Callable[[_C], None],
        *,
        outer: Collection[str] = (),
        on_progress: Callable[[int], None] | None = None,
    ) -> None:
        self._storage = storage
        self._outer = frozenset(outer)
        self._begin = begin
        self._take = take
        self._on_progress = on_progress
        # What is in memory is listed no sooner by several threads, and a listing is made whole before its first page.
        in_memory = storage.is_ordered and not storage.is_remote
        self._threads = 1 if in_memory else _REMOTE_THREADS if storage.is_remote else _THREADS
        self._workers = Workers(self._threads)
        self._open = 0
        self._objects = 0

    def run(self, prefixes: Iterable[str]) -> None:
        """List everything below some prefixes, none of which lies below another.

        Raises:
            UnavailableError: the store cannot be reached.
            RefusedError: the store does not serve us.
        """
        # Asking for a listing forgets what an earlier one could not read: all are asked for before any is read.
        self._ask([Part(prefix) for prefix in prefixes])
        self._workers.collect()

    def _ask(self, parts: Sequence[Part]) -> None:
        self._open += len(parts)
        for part, pages in [(part, self._storage.pages(part.prefix, after=part.after)) for part in parts]:
            if part == Part(part.prefix) and part.prefix in self._outer:
                self._workers.do(partial(self._divided, part), self._listed)
            else:
                work = self._list_in_order if self._storage.is_ordered else self._list_folder
                self._workers.do(partial(work, part, pages), self._listed)

    def _listed(self, result: _Listed[_C]) -> None:
        self._open -= 1
        if result.counter is not None:
            self._take(result.counter)
        self._objects += result.objects
        if self._on_progress is not None:
            self._on_progress(self._objects)
        self._ask(result.left)

    def _list_in_order(self, part: Part, pages: Iterator[Sequence[Entry]]) -> _Listed[_C]:
        """List a part until it ends, or until a worker is idle and what is left can be handed over."""
        counter: _C | None = None
        objects = full = 0
        first = ""
        enough = _PAGES[min(part.turn, len(_PAGES) - 1)]
        for number, listed in enumerate(pages, 1):
            page = listed if part.last is None or _path(listed[-1]) <= part.last else _up_to(part.last, listed)
            if counter is None:
                first = _path(listed[0])
                part = replace(part, one_node=part.one_node or _is_one_node(part.prefix, listed))
                counter = self._begin(part)
            if page:
                counter.add(page)
            objects += len(page)
            if len(page) < len(listed) or self._workers.stopping.is_set():
                break
            full = max(full, len(listed))
            if number >= enough and len(listed) == full and self._open < self._threads:
                return _Listed(counter, objects, self._left(part, first, listed, counter))
        return _Listed(counter, objects)

    def _left(self, part: Part, first: str, page: Sequence[Entry], counter: _C) -> tuple[Part, ...]:
        """Divide what comes after a page."""
        reached = _path(page[-1])
        if not (part.one_node or _is_flat(part.prefix, page)):
            level = self._storage.level(part.prefix)
            children = [
                child for child in sorted(level.prefixes) if child + "0" > reached and _begins(child, part.last)
            ]
            if len(children) <= _MOST_PARTS:
                beyond = [entry for entry in level.objects if part.holds(_path(entry)) and _path(entry) > reached]
                if beyond:
                    counter.add(beyond)
                return tuple(part.inside(child, reached) for child in children)
            bounds = children
        else:
            # Indices sort as text, so the first character in which keys differ divides them well.
            common = _common(first, reached)
            bounds = [common + character for character in (_DIGITS if part.one_node else _CHARACTERS)]
        bounds = [bound for bound in bounds if bound > reached and (part.last is None or bound < part.last)]
        bounds = bounds[:: -(-len(bounds) // _MOST_PARTS) or 1]
        return tuple(
            replace(part, after=after, last=last, turn=part.turn + 1)
            for after, last in zip([reached, *bounds], [*bounds, part.last], strict=True)
        )

    def _list_folder(self, part: Part, pages: Iterator[Sequence[Entry]]) -> _Listed[_C]:
        """List a folder whole, if it is small or holds one array, or else what lies directly in it."""
        begun = [page for page in (next(pages, None), next(pages, None)) if page is not None]
        if not begun:
            return _Listed(None)
        large = len(begun) > 1
        one_node = large and _is_one_node(part.prefix, begun[0])
        if large and not (one_node or _is_flat(part.prefix, begun[0])):
            return self._divided(part)
        counter = self._begin(Part(part.prefix, one_node=one_node))
        objects = 0
        for page in chain(begun, pages):
            if self._workers.stopping.is_set():
                break
            if one_node and _has_nodes_inside(part.prefix, page):
                return self._divided(part)
            counter.add(page)
            objects += len(page)
        return _Listed(counter, objects)

    def _divided(self, part: Part) -> _Listed[_C]:
        level = self._storage.level(part.prefix)
        if self._storage.is_remote and len(level.prefixes) > _MOST_CHILDREN:
            return _Listed(None, left=(replace(part, turn=1),))  # a request for each would be more than for all of it
        counter = self._begin(part)
        if level.objects:
            counter.add(level.objects)
        return _Listed(counter, len(level.objects), tuple(Part(child) for child in sorted(level.prefixes)))


@dataclass(frozen=True, slots=True)
class _Listed(Generic[_C]):
    """A counter of what was listed, and what is left to list."""

    counter: _C | None
    objects: int = 0
    left: tuple[Part, ...] = ()


def _up_to(last: str, page: Sequence[Entry]) -> list[Entry]:
    return [entry for entry in page if _path(entry) <= last]


def _common(one: str, other: str) -> str:
    """What two keys have in common at their beginning, character by character."""
    pairs = enumerate(zip(one, other, strict=False))
    return one[: next((at for at, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))]


def _begins(child: str, last: str | None) -> bool:
    """Whether a child has keys up to a bound."""
    return last is None or child + "/" <= last


def _is_one_node(prefix: str, page: Sequence[Entry]) -> bool:
    """Whether most keys of a page are spelled as chunks of an array at the prefix, and no node lies inside it."""
    skip = len(prefix) + 1 if prefix else 0
    chunks = sum(_CHUNK.fullmatch(key, skip) is not None for key in map(_path, page))
    return 2 * chunks > len(page) and not _has_nodes_inside(prefix, page)


def _is_flat(prefix: str, page: Sequence[Entry]) -> bool:
    """Whether most keys of a page lie directly below the prefix."""
    skip = len(prefix) + 1 if prefix else 0
    return 2 * sum("/" not in key[skip:] for key in map(_path, page)) > len(page)


def _has_nodes_inside(prefix: str, page: Sequence[Entry]) -> bool:
    """Whether a metadata document lies deeper than directly below the prefix."""
    keys = "\n".join([*map(_path, page), ""])
    if "/zarr.json\n" not in keys and "/.z" not in keys:
        return False
    return any(
        name in METADATA_NAMES and node != prefix for node, _, name in (key.rpartition("/") for key in map(_path, page))
    )
