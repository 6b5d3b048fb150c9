"""An object store's listing as it should be: without what is excluded, without directory markers, around odd keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blobmap.objects import Level
from blobmap.odd_keys import Fence, OddKeyError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from blobmap.gaps import Gaps
    from blobmap.objects import Entry
    from blobmap.odd_keys import Listing

_LAST_BEFORE_ROOTED = ".\U0010fffd"


class ObjectListing:
    """Listings over a client library that drops outer slashes of a key, and gives up at an odd one.

    Args:
        source: the library's calls.
        gaps: told what could not be listed.
        exclude: segments that are left out with all that is below them.
        raw_keys: the store can hold keys that the library shows under another name (`a/` as `a`, `/a` as `a`).
        from_bucket_root: the store begins at the root of a bucket, so keys that begin with `/` are in it.
    """

    def __init__(
        self, source: Listing, gaps: Gaps, *, exclude: Collection[str], raw_keys: bool, from_bucket_root: bool
    ) -> None:
        self._source = source
        self._gaps = gaps
        self._exclude = frozenset(exclude)
        self._raw_keys = raw_keys
        self._from_bucket_root = from_bucket_root
        self._fence = Fence(source, gaps)

    def pages(self, prefix: str, after: str | None) -> Iterator[Sequence[Entry]]:
        """Every object below `prefix` that can be listed, greater than `after`; no page is empty."""
        rooted = not prefix and self._from_bucket_root and self._has_rooted_keys()
        for page in self._beside_rooted_keys(after) if rooted else self._fence.pages(prefix, after):
            kept = self._without_markers(self._without_excluded(page), prefix)
            if kept:
                yield kept

    def level(self, prefix: str) -> Level:
        """What lies directly below `prefix`; nothing, where that holds an odd name and cannot be listed raw."""
        try:
            found = self._source.one_level(prefix)
        except OddKeyError as met:
            raw = self._source.raw(prefix, None, by_level=True)
            if raw is None:
                self._gaps.note_odd(met.key)
                self._gaps.note_unreadable(prefix)
                return Level((), ())
            found = self._fence.good_level(raw)
        if "" in found.prefixes:
            self._gaps.note_odd("/")
            self._gaps.note_unreadable("/")
        prefixes = tuple(deeper for deeper in found.prefixes if deeper and not self._is_excluded(deeper))
        objects = self._without_excluded(found.objects)
        return Level(prefixes, tuple(entry for entry in objects if entry["path"] != prefix))

    def _without_excluded(self, page: Sequence[Entry]) -> Sequence[Entry]:
        """The page without excluded segments: one search per segment in the joined keys, exact only on a hit."""
        if self._exclude:
            keys = "/".join([entry["path"] for entry in page])
            if any(segment in keys for segment in self._exclude):
                return [entry for entry in page if not self._is_excluded(entry["path"])]
        return page

    def _is_excluded(self, key: str) -> bool:
        return not self._exclude.isdisjoint(key.split("/"))

    def _without_markers(self, page: Sequence[Entry], prefix: str) -> Sequence[Entry]:
        """The page without directory markers: keys that end in `/`, which are listed without it.

        Such a key is empty, and mostly the next key lies below it; else the object is asked for by its listed name.
        """
        if not self._raw_keys or 0 not in [entry["size"] for entry in page]:
            return page
        kept = []
        for place, entry in enumerate(page):
            key = entry["path"]
            if entry["size"] == 0:
                following = page[place + 1]["path"] if place + 1 < len(page) else ""
                if key == prefix or following.startswith(f"{key}/") or self._source.head(key) is None:
                    continue
            kept.append(entry)
        return kept

    def _has_rooted_keys(self) -> bool:
        """Whether a key of the bucket begins with `/`: it would be listed under its neighbour's name.

        Nothing but such keys lies between those that begin with `.` or less and those that begin with `0` or more, so
        without any the first key behind the former is the first of the latter.
        """
        first = self._first_behind(_LAST_BEFORE_ROOTED)
        if isinstance(first, dict) and first["path"] == "0" and first == self._source.head("0"):
            return False  # a listing begins behind its offset, so it cannot be asked for
        return first != self._first_behind("0")

    def _first_behind(self, after: str) -> Entry | str | None:
        """The first object behind a key, or its key where it is odd."""
        try:
            for page in self._source.flat("", after):
                return page[0]
        except OddKeyError as met:
            return met.key
        return None

    def _beside_rooted_keys(self, after: str | None) -> Iterator[Sequence[Entry]]:
        """All other keys of the bucket; nothing, where it cannot be listed raw."""
        raw = self._source.raw("", after)
        if raw is not None:
            yield from self._fence.good_part(raw)
        else:
            self._gaps.note_odd("/")
            self._gaps.note_unreadable("")
