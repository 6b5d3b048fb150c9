"""The manifests that can cover some keys, and no others: read when the first such key comes.

The manifest of a key's scope lies at one of the prefixes of the key. So few keys need a handful of reads and no listing
of the manifest root; a stream of keys lists the root once, and then reads what it meets.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from blobmap.errors import ListingError, MissingError, UnreadableError
from blobmap.manifest import Manifest, scope_of_key
from blobmap.resolve import Trie

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from blobmap.manifests import ManifestStore

_READERS: Final = 16
_MOST_ASKED: Final = 64  # places asked for one by one; from more on, a listing of the root is cheaper


class Covering:
    """The manifests of one root, as far as they were needed so far.

    Args:
        manifests: the root.

    Attributes:
        trie: what was read.
        problems: one line for each manifest or prefix of the root that could not be read.
    """

    def __init__(self, manifests: ManifestStore) -> None:
        self.trie = Trie()
        self.problems: list[str] = []
        self._manifests = manifests
        self._asked: set[str] = set()
        self._waiting: _Waiting | None = None

    def cover(self, keys: Sequence[str]) -> None:
        """Read every manifest that can cover one of these keys and was not read yet.

        Args:
            keys: relative to the bucket. Any string is allowed.

        Raises:
            UnavailableError: the root cannot be reached.
            RefusedError: the root does not serve us.
        """
        if self._waiting is None:
            places = {place for key in keys[: _MOST_ASKED + 1] for place in _at_or_above(key)} - self._asked
            if len(keys) <= _MOST_ASKED >= len(places) + len(self._asked):
                self._read(places)
                return
            self._waiting = self._listed()
        self._read(self._waiting.take(keys))

    def around(self, scope: str) -> None:
        """Read the manifest of a scope, and those of all scopes around and inside it. Raises as `cover`."""
        pages = self._manifests.storage.pages(scope)
        found = (scope_of_key(entry["path"]) for page in pages for entry in page)
        inside = {inner for inner in found if inner is not None}
        self._note_gaps(scope)
        self._read(inside | set(_at_or_above(scope)))

    def _listed(self) -> _Waiting:
        waiting = _Waiting()
        for scope in self._manifests.scopes():
            if scope not in self._asked:
                waiting.add(scope)
        self._note_gaps("")
        return waiting

    def _note_gaps(self, prefix: str) -> None:
        storage = self._manifests.storage
        self.problems += [
            str(ListingError(f"{storage.name}: {gap!r} could not be listed whole")) for gap in storage.gaps(prefix)
        ]

    def _read(self, scopes: Iterable[str]) -> None:
        ordered = sorted(set(scopes) - self._asked)
        self._asked.update(ordered)
        if not ordered:
            return
        with ThreadPoolExecutor(min(_READERS, len(ordered)), thread_name_prefix="manifests") as readers:
            for found in readers.map(self._try_read, ordered):
                if isinstance(found, Manifest):
                    self.trie.add(found)
                elif found is not None:
                    self.problems.append(str(found))

    def _try_read(self, scope: str) -> Manifest | UnreadableError | None:
        try:
            return self._manifests.read(scope).manifest
        except MissingError:
            return None
        except UnreadableError as error:
            return error


class _Waiting:
    """Scopes that have a manifest which nobody needed yet, as a tree of their segments."""

    def __init__(self) -> None:
        self._root = _Node()
        self._settled = "/"  # below it nothing waits; no key that anybody can cover begins so

    def add(self, scope: str) -> None:
        """Let a scope wait."""
        node = self._root
        for segment in scope.split("/") if scope else ():
            node = node.below.setdefault(segment, _Node())
        node.scope = scope

    def take(self, keys: Iterable[str]) -> set[str]:
        """Give the scopes that can cover one of these keys; they wait no more."""
        taken: set[str] = set()
        for key in keys:
            if not key.startswith(self._settled):
                taken.update(self._take(key))
        return taken

    def _take(self, key: str) -> Iterator[str]:
        node = self._root
        way = ""
        for segment in key.split("/"):
            if node.scope is not None:
                yield node.scope
                node.scope = None
            way += f"{segment}/"
            deeper = node.below.get(segment)
            if deeper is None:
                self._settled = way
                return
            node = deeper
        if node.scope is not None:
            yield node.scope
            node.scope = None


class _Node:
    __slots__ = ("below", "scope")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.scope: str | None = None


def _at_or_above(key: str) -> Iterator[str]:
    """The places where the manifest of a key's scope can be: the key itself and everything above it, to the root."""
    while True:
        if _is_place(key):
            yield key
        if not key:
            return
        key = key.rpartition("/")[0]


def _is_place(scope: str) -> bool:
    try:
        scope.encode()
    except UnicodeEncodeError:
        return False  # no store has such a name
    return scope_of_key(f"{scope}/manifest.json" if scope else "manifest.json") == scope
