"""An object store's listing as it should be: without what is excluded, without directory markers, around odd keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from blobmap.objects import Level
from blobmap.odd_keys import Fence, OddKeyError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from blobmap.objects import Entry
    from blobmap.odd_keys import Listing


class Notes(Protocol):
    """Who remembers what could not be listed."""

    def note_unreadable(self, prefix: str) -> None:
        """Remember a prefix that could not be listed whole."""

    def note_odd(self, key: str) -> None:
        """Remember a key that cannot be addressed."""


class ObjectListing:
    """Listings over a client library that drops outer slashes of a key, and gives up at an odd one.

    Args:
        source: the library's calls.
        notes: who remembers what could not be listed.
        exclude: segments that are left out with all that is below them.
        raw_keys: the store can hold keys that the library shows under another name (`a/` as `a`, `/a` as `a`).
        from_bucket_root: the store begins at the root of a bucket, so keys that begin with `/` are in it.
    """

    def __init__(
        self, source: Listing, notes: Notes, *, exclude: Collection[str], raw_keys: bool, from_bucket_root: bool
    ) -> None:
        self._source = source
        self._notes = notes
        self._exclude = frozenset(exclude)
        self._raw_keys = raw_keys
        self._from_bucket_root = from_bucket_root
        self._fence = Fence(source, notes.note_odd, notes.note_unreadable)

    def pages(self, prefix: str, after: str | None) -> Iterator[Sequence[Entry]]:
        """Every object below `prefix` that can be listed, greater than `after`; no page is empty."""
        by_level = not prefix and self._from_bucket_root and self._has_rooted_keys()
        listed = self._fence.by_level(prefix, after) if by_level else self._fence.pages(prefix, after)
        for page in listed:
            kept = self._without_markers(self._without_excluded(page), prefix)
            if kept:
                yield kept

    def level(self, prefix: str) -> Level:
        """What lies directly below `prefix`."""
        try:
            found = self._source.one_level(prefix)
        except OddKeyError as met:
            self._notes.note_odd(met.key)
            self._notes.note_unreadable(prefix)
            return self._level_by_listing(prefix)
        if "" in found.prefixes:
            self._note_rooted_keys()
        prefixes = tuple(deeper for deeper in found.prefixes if deeper and not self._is_excluded(deeper))
        objects = self._without_excluded(found.objects)
        return Level(prefixes, tuple(entry for entry in objects if entry["path"] != prefix))

    def _level_by_listing(self, prefix: str) -> Level:
        """One level out of a flat listing, where the level itself holds an odd name."""
        base = f"{prefix}/" if prefix else ""
        children: dict[str, None] = {}
        objects: list[Entry] = []
        for page in self.pages(prefix, None):
            for entry in page:
                child, slash, _ = entry["path"][len(base) :].partition("/")
                if slash:
                    children[base + child] = None
                else:
                    objects.append(entry)
        return Level(tuple(children), tuple(objects))

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
        """Whether a key of the bucket begins with `/`: it would be listed under its neighbour's name."""
        try:
            rooted = "" in self._source.one_level("").prefixes
        except OddKeyError:
            return True  # not known: so what is odd is found level by level
        if rooted:
            self._note_rooted_keys()
        return rooted

    def _note_rooted_keys(self) -> None:
        self._notes.note_odd("/")
        self._notes.note_unreadable("/")
