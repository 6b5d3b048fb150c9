"""Listing around keys that the client library refuses: an empty segment, `.`, `..` or a control character in them.

One such key makes the library give up the whole page that holds it, and the message names only the first. Such a page
is asked for again as the server has it, where that is possible; else the key and the page with it are left out and
named.

What makes a key odd is in `store_keys`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from blobmap.objects import Level
from blobmap.store_keys import is_addressable, odd_part

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from blobmap.gaps import Gaps
    from blobmap.objects import Entry, RawPage

_ESCAPE = re.compile(r"\\(?:u\{([0-9a-f]{1,6})\}|(.))", re.DOTALL)
_NAMED = re.compile(r'\bpath: "((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}


class OddKeyError(Exception):
    """A listing met a key that cannot be addressed.

    Attributes:
        key: the key, relative to the store; for a level it may be the prefix that ends at the odd name.
    """

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class Listing(Protocol):
    """What is asked of a store. `flat` and `one_level` raise `OddKeyError` where they meet an odd key."""

    def flat(self, prefix: str, after: str | None) -> Iterator[Sequence[Entry]]:
        """Every object below `prefix`, greater than `after`, in key order; no page is empty."""

    def one_level(self, prefix: str) -> Level:
        """What lies directly below `prefix`."""

    def raw(self, prefix: str, after: str | None, *, by_level: bool = False) -> Iterator[RawPage] | None:
        """The same with the keys as the server has them, odd ones too; None where that cannot be asked for."""

    def head(self, key: str) -> Entry | None:
        """One object, or None where there is none."""


class Fence:
    """A flat listing that goes around odd keys.

    Args:
        listing: the store.
        gaps: told every odd key, and the prefix that could not be listed for it: the least that ends with the odd
            segment or, where the rest of the page could not be read either, the least that holds all that is missing.
    """

    def __init__(self, listing: Listing, gaps: Gaps) -> None:
        self._listing = listing
        self._gaps = gaps

    def pages(self, prefix: str, after: str | None) -> Iterator[Sequence[Entry]]:
        """Every object below `prefix` that can be listed, greater than `after`, in key order."""
        while True:
            try:
                for page in self._listing.flat(prefix, after):
                    yield page
                    after = page[-1]["path"]
            except OddKeyError as met:
                key = met.key
            else:
                return
            raw = self._listing.raw(prefix, after)
            if raw is not None:
                yield from self.good_part(raw)
                return
            behind = odd_part(key).behind
            self._gaps.note_odd(key)
            self._gaps.note_unreadable(_common_prefix(prefix, after, key))
            if after is not None and behind <= after:
                return  # the server does not heed the offset: what it would give is not known
            after = behind
            entry = self._listing.head(after)  # a listing begins behind its offset
            if entry is not None:
                yield [entry]

    def good_part(self, raw: Iterator[RawPage]) -> Iterator[Sequence[Entry]]:
        """What can be addressed of a raw listing; the rest is noted."""
        for page in raw:
            good = [entry for entry in page.objects if self._is_good(entry)]
            if good:
                yield good

    def good_level(self, raw: Iterator[RawPage]) -> Level:
        """What can be addressed of a raw level; the rest is noted."""
        prefixes: list[str] = []
        objects: list[Entry] = []
        for page in raw:
            for prefix in page.prefixes:
                if is_addressable(prefix[:-1]):
                    prefixes.append(prefix[:-1])
                else:
                    self._note(prefix)
            objects += [entry for entry in page.objects if self._is_good(entry)]
        return Level(tuple(prefixes), tuple(objects))

    def _is_good(self, entry: Entry) -> bool:
        key = entry["path"]
        if is_addressable(key):
            return True
        marks_directory = key.endswith("/") and entry["size"] == 0 and is_addressable(key[:-1])
        if key and not marks_directory:
            self._note(key)
        return False

    def _note(self, key: str) -> None:
        self._gaps.note_odd(key)
        self._gaps.note_unreadable(odd_part(key).prefix)


def key_in_error(text: str) -> str:
    """The key that the library's message names, from the part of it that is escaped and so unambiguous."""
    found = _NAMED.search(text)
    return _ESCAPE.sub(_unescaped, found.group(1)) if found else ""


def _unescaped(found: re.Match[str]) -> str:
    code, letter = found.groups()
    return chr(int(code, 16)) if code else _ESCAPED.get(letter, letter)


def _common_prefix(prefix: str, after: str | None, key: str) -> str:
    """The least prefix that holds both the last key that was listed and the odd one, and all between them."""
    if after is None:
        return prefix
    common: list[str] = []
    for one, other in zip(after.split("/")[:-1], key.split("/")[:-1], strict=False):
        if one != other:
            break
        common.append(one)
    return "/".join(common)
