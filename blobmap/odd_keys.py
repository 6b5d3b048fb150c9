"""Listing around keys that the client library refuses: an empty segment, `.`, `..`, a control character, a leading `/`.

One such key makes the library give up the whole page that holds it, and the message names only the first. So the fence
is drawn level by level. Where a level can be listed, only the deeper prefix with the odd key is in question. Where a
level itself holds an odd name, its prefix is named as unreadable and the listing goes on behind the odd name; every
child of which one key was seen is then listed by itself, so what stays unseen are names beside the odd one only.

Where the rule comes from: `object_store::path::Path::parse`, as obstore 0.12.1 behaves.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from blobmap.objects import Entry, Level

_CONTROL = re.compile("[\x00-\x1f\x7f]")
_ESCAPE = re.compile(r"\\(?:u\{([0-9a-f]{1,6})\}|(.))", re.DOTALL)
_NAMED = re.compile(r'\bpath: "((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}
_WHOLE_PAGE = 1000
_ONE_BY_ONE = 1  # so that nothing that came before the odd key's page is lost with it


class OddKeyError(Exception):
    """A listing met a key that cannot be addressed.

    Attributes:
        key: the key, relative to the store; for a level it may be the prefix that ends at the odd name.
    """

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class Listing(Protocol):
    """What the fence asks of a store. Each raises `OddKeyError` where it meets an odd key."""

    def flat(self, prefix: str, after: str | None, page: int) -> Iterator[Sequence[Entry]]:
        """Every object below `prefix`, greater than `after`, in key order, at most `page` at a time."""

    def one_level(self, prefix: str) -> Level:
        """What lies directly below `prefix`."""

    def head(self, key: str) -> Entry | None:
        """One object, or None where there is none."""


class Fence:
    """A flat listing that goes around odd keys.

    Args:
        listing: the store.
        odd: told every odd key that was met.
        unreadable: told every prefix whose level could not be listed whole.
    """

    def __init__(self, listing: Listing, odd: Callable[[str], None], unreadable: Callable[[str], None]) -> None:
        self._listing = listing
        self._odd = odd
        self._unreadable = unreadable

    def pages(self, prefix: str, after: str | None) -> Iterator[Sequence[Entry]]:
        """Every object below `prefix` that can be listed, greater than `after`, in key order."""
        try:
            for page in self._listing.flat(prefix, after, _WHOLE_PAGE):
                yield page
                after = page[-1]["path"]
        except OddKeyError as met:
            self._odd(met.key)
        else:
            return
        yield from self.by_level(prefix, after)

    def by_level(self, prefix: str, after: str | None) -> Iterator[Sequence[Entry]]:
        """The same, by way of one level; what is deeper is listed flat, each child by itself."""
        try:
            level = self._listing.one_level(prefix)
        except OddKeyError:
            self._unreadable(prefix)
            yield from self._behind(prefix, after)
            return
        objects = {entry["path"]: entry for entry in level.objects}
        # In key order a prefix stands where its first key stands: behind a `/`.
        for place in sorted([*objects, *(f"{child}/" for child in level.prefixes if child)]):
            if place in objects:
                if after is None or place > after:
                    yield [objects[place]]
            elif after is None or after.startswith(place) or place > after:
                inside = after if after is not None and after.startswith(place) else None
                yield from self.pages(place[:-1], inside)

    def _behind(self, prefix: str, after: str | None) -> Iterator[Sequence[Entry]]:
        """What lies in a level that holds odd names: flat, from behind one odd name to the next."""
        base = f"{prefix}/" if prefix else ""
        while True:
            try:
                for page in self._listing.flat(prefix, after, _ONE_BY_ONE):
                    yield page
                    after = page[-1]["path"]
            except OddKeyError as met:
                key = met.key
            else:
                return
            if after is not None and key <= after:
                return  # the server does not heed the offset: the level is named already
            seen = _child_of(base, after)
            name, slash, _ = key[len(base) :].partition("/")
            if seen is not None and seen != name:
                yield from self.pages(base + seen, after)
            if slash and not _is_odd(name):
                inside = after if after is not None and after.startswith(f"{base}{name}/") else None
                yield from self.pages(base + name, inside)
                after = f"{base}{name}0"  # the character behind "/"
            else:
                self._odd(key)
                after = base + _behind_name(name, has_more=bool(slash))
            entry = self._listing.head(after)  # a listing begins behind its offset
            if entry is not None:
                yield [entry]


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


def _is_odd(segment: str) -> bool:
    return segment in {"", ".", ".."} or _CONTROL.search(segment) is not None


def _child_of(base: str, key: str | None) -> str | None:
    """The child of `base` that a key lies in; None where the key is no deeper than the level, or elsewhere."""
    if key is None or not key.startswith(base):
        return None
    child, slash, _ = key[len(base) :].partition("/")
    return child if slash else None


def _behind_name(name: str, *, has_more: bool) -> str:
    """The least valid name behind an odd one and, where it is a prefix, behind all that it holds."""
    control = _CONTROL.search(name)
    if control is not None:
        return name[: control.start()] + (" " if control.group() < " " else "\x80")
    return name + ("0" if has_more else " ")
