"""Listing around keys that the client library refuses: an empty segment, `.`, `..` or a control character in them.

One such key makes the library give up the whole page that holds it, and the message names only the first. Such a page
is asked for again as the server has it, where that is possible; else the key and the page with it are left out and
named.

Where the rule comes from: `object_store::path::Path::parse`, as obstore 0.12.1 behaves.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, Protocol

from blobmap.objects import Level

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from blobmap.gaps import Gaps
    from blobmap.objects import Entry, RawPage

_CONTROL = re.compile("[\x00-\x1f\x7f]")
_ODD_LETTER = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")  # the last are bytes that are no UTF-8
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
                if _is_addressable(prefix[:-1]):
                    prefixes.append(prefix[:-1])
                else:
                    self._note(prefix)
            objects += [entry for entry in page.objects if self._is_good(entry)]
        return Level(tuple(prefixes), tuple(objects))

    def _is_good(self, entry: Entry) -> bool:
        key = entry["path"]
        if _is_addressable(key):
            return True
        marks_directory = key.endswith("/") and entry["size"] == 0 and _is_addressable(key[:-1])
        if key and not marks_directory:
            self._note(key)
        return False

    def _note(self, key: str) -> None:
        self._gaps.note_odd(key)
        self._gaps.note_unreadable(odd_part(key).prefix)


class OddPart(NamedTuple):
    """Where a key is odd.

    Attributes:
        prefix: the key up to its first odd segment; it ends in `/` where the key goes on.
        behind: the least valid key greater than all that begins with `prefix`.
    """

    prefix: str
    behind: str


def odd_part(key: str) -> OddPart:
    """Find the first segment of a key that cannot be addressed; the last one where all can."""
    segments = key.split("/")
    place = next((place for place, segment in enumerate(segments) if _is_odd(segment)), len(segments) - 1)
    name = segments[place]
    base = "".join(f"{segment}/" for segment in segments[:place])
    goes_on = place + 1 < len(segments)
    control = _CONTROL.search(name)
    if control is not None:
        # Every name that continues so is odd as well.
        behind = name[: control.start()] + (" " if control.group() < " " else "\x80")
    else:
        behind = name + ("0" if goes_on else " ")  # the character behind "/", and the first valid one
    return OddPart(base + name + ("/" if goes_on else ""), base + behind)


def key_in_error(text: str) -> str:
    """The key that the library's message names, from the part of it that is escaped and so unambiguous."""
    found = _NAMED.search(text)
    return _ESCAPE.sub(_unescaped, found.group(1)) if found else ""


def valid_offset(after: str) -> str | None:
    """The longest start of `after` that the library takes as an offset; None where there is none."""
    kept: list[str] = []
    for segment in after.split("/"):
        if _is_odd(segment):
            break
        kept.append(segment)
    return "/".join(kept) or None


def _unescaped(found: re.Match[str]) -> str:
    code, letter = found.groups()
    return chr(int(code, 16)) if code else _ESCAPED.get(letter, letter)


def _is_addressable(key: str) -> bool:
    return not any(_is_odd(segment) for segment in key.split("/"))


def _is_odd(segment: str) -> bool:
    return segment in {"", ".", ".."} or _ODD_LETTER.search(segment) is not None


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
