"""Counting the objects of one array from the pages of its listing, and judging how their keys are spelled.

Only names and sizes come in; nothing here reads an object. A page of chunks costs one pattern over its joined keys and
one sum over its sizes; only a page that holds anything else (a metadata document, a stray file) is looked at key by
key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from blobmap.chunk_keys import METADATA_NAMES, ChunkKeyEncoding
from blobmap.policy import format_size

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import datetime

    from blobmap.arrays import ArrayLayout

_INDEX: Final = "(?:0|[1-9][0-9]*+)"
_ENCODINGS: Final = tuple(ChunkKeyEncoding(name, separator) for name in ("default", "v2") for separator in ("/", "."))
_path = itemgetter("path")
_size = itemgetter("size")
_last_modified = itemgetter("last_modified")


@dataclass(slots=True)
class Count:
    """Objects of one kind: how many, how many bytes, and the first of them in key order."""

    objects: int = 0
    stored_bytes: int = 0
    first: str | None = None

    def add(self, key: str, size: int) -> None:
        """Count one object."""
        self.objects += 1
        self.stored_bytes += size
        if self.first is None or key < self.first:
            self.first = key

    def merge(self, other: Count) -> None:
        """Count what was counted elsewhere."""
        self.objects += other.objects
        self.stored_bytes += other.stored_bytes
        self.first = min(filter(None, (self.first, other.first)), default=None)


@dataclass(frozen=True, slots=True)
class Measured:
    """An array and what the listing says about it.

    Attributes:
        layout: what its metadata declares.
        objects: stored objects that are its chunks or shards.
        stored_bytes: their size together.
        encoding: how their keys are spelled, None where `obstacle` says why no rule can be written.
        obstacle: why no rule can be written, None where one can.
        warnings: what else is to be said, one line each.
        strays: objects below the array that are neither its chunks nor metadata.
        sample: key of one of its objects below its path, where `encoding` cannot spell one.
        ends: on a rectilinear grid, per axis the mean bytes of one index in its first and in its last tenth.
        newest: UTC; when the last of its objects was written, its metadata included, None where there is none.
    """

    layout: ArrayLayout
    objects: int = 0
    stored_bytes: int = 0
    encoding: ChunkKeyEncoding | None = None
    obstacle: str | None = None
    warnings: tuple[str, ...] = ()
    strays: int = 0
    sample: str | None = None
    ends: tuple[tuple[float, float], ...] = ()
    newest: datetime | None = field(default=None, compare=False)  # the same objects, copied, measure the same


class Tally:
    """Counts the objects of one array, page by page.

    Args:
        layout: of the array.
        prefix: what its keys begin with: the key of the array and a slash, or nothing.
        apart_from: keys of other arrays or groups inside it, whose objects are not counted.

    Attributes:
        documents: names of the metadata documents directly in the array.
        inside: prefixes below the array that hold metadata documents, and so are nodes of their own.
        newest: UTC; when the last object of all pages was written, None where they hold none.
    """

    def __init__(self, layout: ArrayLayout, prefix: str, *, apart_from: Collection[str] = ()) -> None:
        self._layout = layout
        self._prefix = prefix
        self._apart_from = frozenset(apart_from)
        self._own = Count()
        self._others: dict[ChunkKeyEncoding, Count] = {}
        self._strays = Count()
        self._axis_bytes: list[dict[int, int]] = [{} for _ in layout.shape] if layout.rectilinear else []
        self.documents: set[str] = set()
        self.inside: set[str] = set()
        self.newest: datetime | None = None
        ndim = len(layout.shape)
        self._chunk = _pattern(layout.encoding, ndim) if layout.encoding else re.compile(r"[^\n]++")
        page = f"(?:{re.escape(prefix)}{self._chunk.pattern}\n)++"
        by_page = layout.encoding is not None and not layout.rectilinear and not apart_from
        self._page = re.compile(page) if by_page else None
        zero = (0,) * ndim
        spelled = {encoding.encode(zero): encoding for encoding in reversed(_ENCODINGS)}
        if layout.encoding:
            spelled.pop(layout.encoding.encode(zero), None)
        self._spellings = [(other, _pattern(other, ndim)) for other in spelled.values()] if layout.encoding else []

    def add(self, page: Sequence[Mapping[str, object]]) -> None:
        """Count one page of a listing of the array's prefix."""
        self._note(max(map(_last_modified, page), default=None))
        if self._page is not None and self._page.fullmatch("\n".join([*map(_path, page), ""])):
            self._own.objects += len(page)
            self._own.stored_bytes += sum(map(_size, page))
            return
        for entry in page:
            self._add_one(_path(entry), _size(entry))

    def merge(self, other: Tally) -> None:
        """Take in what was counted elsewhere of the same array, apart from the same prefixes."""
        self._own.merge(other._own)
        for encoding, count in other._others.items():
            self._others.setdefault(encoding, Count()).merge(count)
        self._strays.merge(other._strays)
        for sums, more in zip(self._axis_bytes, other._axis_bytes, strict=True):
            for index, size in more.items():
                sums[index] = sums.get(index, 0) + size
        self.documents |= other.documents
        self.inside |= other.inside
        self._note(other.newest)

    def _note(self, newest: datetime | None) -> None:
        if newest is not None and (self.newest is None or newest > self.newest):
            self.newest = newest

    def _add_one(self, key: str, size: int) -> None:
        if self._apart_from and not self._apart_from.isdisjoint(around(key)):
            return
        text = key.removeprefix(self._prefix)
        node, _, name = text.rpartition("/")
        if not name:
            return  # a key that ends in a slash marks a directory
        if name in METADATA_NAMES:
            if node:
                self.inside.add(self._prefix + node)
            else:
                self.documents.add(name)
        elif self._chunk.fullmatch(text):
            self._own.add(key, size)
            self._add_to_axes(text, size)
        else:
            for other, pattern in self._spellings:
                if pattern.fullmatch(text):
                    self._others.setdefault(other, Count()).add(key, size)
                    return
            self._strays.add(key, size)

    def _add_to_axes(self, text: str, size: int) -> None:
        if self._axis_bytes and self._layout.encoding:
            indices = self._layout.encoding.decode(text, len(self._layout.shape)) or ()
            for sums, index in zip(self._axis_bytes, indices, strict=True):
                sums[index] = sums.get(index, 0) + size

    def result(self) -> Measured:
        """Judge what was counted."""
        return replace(self._judged(), newest=self.newest)

    def _judged(self) -> Measured:
        layout, own = self._layout, self._own
        if layout.encoding is None or layout.obstacle is not None:
            return Measured(layout, own.objects, own.stored_bytes, None, layout.obstacle, sample=self._below(own.first))
        others = sum(count.objects for count in self._others.values())
        if own.objects == 0 and others + self._strays.objects > 0:
            return self._disagreement(layout.encoding)
        strays = [*self._others.values(), self._strays]
        return Measured(
            layout,
            own.objects,
            own.stored_bytes,
            layout.encoding,
            warnings=tuple(self._said_of_strays(strays)),
            strays=others + self._strays.objects,
            ends=tuple(_ends(sums) for sums in self._axis_bytes),
        )

    def _disagreement(self, declared: ChunkKeyEncoding) -> Measured:
        """No object is spelled as declared: at least two axes and one other spelling decide, else nothing does."""
        layout = self._layout
        zero = (0,) * len(layout.shape)
        declared_like = f"{layout.label} declares objects like {declared.encode(zero)!r}"
        if len(layout.shape) > 1 and len(self._others) == 1:
            ((found, count),) = self._others.items()
            said = f"{declared_like} and has {count.objects} like {count.first!r}: the objects decide"
            strays = self._said_of_strays([self._strays])
            return Measured(
                layout, count.objects, count.stored_bytes, found, None, (said, *strays), self._strays.objects
            )
        counts = [*self._others.values(), self._strays]
        first = min(count.first for count in counts if count.first is not None)
        why = f"{declared_like}, and none of its {sum(c.objects for c in counts)} objects is (the first is {first!r})"
        return Measured(
            layout,
            sum(count.objects for count in self._others.values()),
            sum(count.stored_bytes for count in self._others.values()),
            None,
            why,
            strays=self._strays.objects,
            sample=self._below(first),
        )

    def _below(self, key: str | None) -> str | None:
        return key and key.removeprefix(self._prefix)

    def _said_of_strays(self, counts: Sequence[Count]) -> Iterator[str]:
        objects = sum(count.objects for count in counts)
        if objects:
            size = format_size(sum(count.stored_bytes for count in counts))
            first = min(count.first for count in counts if count.first is not None)
            yield (
                f"{objects} objects ({size}) below {self._layout.label} are none of its chunks and stay unmanaged, "
                f"the first is {first!r}"
            )


def around(key: str) -> Iterator[str]:
    """The prefixes above a key, from the inside out, the root not among them."""
    while "/" in key:
        key = key.rpartition("/")[0]
        yield key


def topmost(nodes: Collection[str]) -> tuple[str, ...]:
    """Those of some keys that lie below no other of them, in order."""
    known = frozenset(nodes)
    return tuple(sorted(node for node in known if known.isdisjoint(around(node))))


def _pattern(encoding: ChunkKeyEncoding, ndim: int) -> re.Pattern[str]:
    separator = re.escape(encoding.separator)
    if ndim == 0:
        return re.compile(re.escape(encoding.encode(())))
    indices = separator.join([_INDEX] * ndim)
    return re.compile(f"c{separator}{indices}" if encoding.name == "default" else indices)


def _ends(sums: Mapping[int, int]) -> tuple[float, float]:
    """Mean bytes of one index in the first and in the last tenth of the indices that hold anything."""
    if not sums:
        return 0.0, 0.0
    ordered = [sums[index] for index in sorted(sums)]
    tenth = max(len(ordered) // 10, 1)
    return sum(ordered[:tenth]) / tenth, sum(ordered[-tenth:]) / tenth
