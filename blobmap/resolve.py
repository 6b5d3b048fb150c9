"""Resolution: which blob an object belongs to, under every manifest that is held.

The rules are those of manifest format 3, in this order: a metadata document is hot wherever it lies; a key with an
empty segment, `.` or `..` is nobody's; then the pins of all covering scopes, then their hot patterns, then the longest
rule prefix, scope and prefix together, the longer scope at a tie; else the key is unmanaged. Everything is matched by
whole segments, code point for code point. The format is silent where one manifest has two rules with one prefix: the
last one holds here.

A lookup reads memory only and has an answer for every string. Scopes are kept in a trie of their segments; each scope
has a table of its own, a trie of what its manifest names, that never changes once built. Exchanging a manifest is
therefore one assignment, and whoever looks up meanwhile sees either table whole. Nothing is kept per object.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal

from blobmap.chunk_keys import METADATA_NAMES, floor_divide
from blobmap.manifest import read_hot_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from blobmap.manifest import Blob, Bucket, Manifest, Pin

Kind = Literal["blob", "hot", "pinned", "unmanaged"]

Verdict = Literal["taken", "unchanged", "older", "merged", "refused"]
"""What became of a manifest that was given.

taken: it is in force. unchanged: it says what is in force already. older: its epoch is lower than what is held, so it
was ignored. merged: only its pins differ at an equal epoch, so the pins of both are in force. refused: other things
differ at an equal epoch, so the one in force stays. The last two are faults of whoever wrote it: report them.
"""

_INDEX: Final = "(?:0|[1-9][0-9]*)"


@dataclass(frozen=True, slots=True)
class Resolution:
    """The answer for one key.

    Attributes:
        kind: `blob`, `hot` (never archivable), `pinned` (kept on disk on purpose) or `unmanaged` (nobody claims it).
        blob_id: the blob, unique within the scope; None unless `kind` is `blob`.
        scope: of the manifest that decided; for an unmanaged key or a metadata document the longest scope that covers
            it; None where there is none.
        epoch: of that manifest, or None.
    """

    kind: Kind
    blob_id: str | None
    scope: str | None
    epoch: int | None


_UNMANAGED: Final = Resolution("unmanaged", None, None, None)
_HOT: Final = Resolution("hot", None, None, None)


class _Rule:
    """One prefix of one rule, ready to answer for the keys below it."""

    __slots__ = ("epoch", "id", "index", "last", "scope", "separator", "start", "whole", "width")

    def __init__(self, blob: Blob, prefix: str, manifest: Manifest) -> None:
        self.id = blob.id
        self.scope = manifest.scope
        self.epoch = manifest.epoch
        # Where in a key the part begins that the arithmetic reads.
        self.start = sum(len(part) + 1 for part in (manifest.scope, prefix) if part)
        # A rule without arithmetic has this one answer; the others keep the one that they gave last, since keys of one
        # array mostly come one after the other.
        self.last = Resolution("blob", f"{blob.id}_0", manifest.scope, manifest.epoch)
        self.whole: re.Pattern[str] | None = None
        if blob.bucket is not None:
            self.index = blob.bucket.index
            self.width = blob.bucket.width
            self.separator, self.whole = _spelling(blob.bucket)

    def answer(self, key: str) -> Resolution | None:
        """Answer for a key at or below the prefix; None: the arithmetic does not fit it."""
        if self.whole is None:
            return self.last
        if self.whole.fullmatch(key, self.start) is None:
            return None
        parts = key[self.start :].split(self.separator, self.index + 1)
        if len(parts) <= self.index:
            return None
        blob_id = f"{self.id}_{floor_divide(parts[self.index], self.width)}"
        last = self.last
        if last.blob_id != blob_id:
            self.last = last = Resolution("blob", blob_id, self.scope, self.epoch)
        return last


def _spelling(bucket: Bucket) -> tuple[str, re.Pattern[str]]:
    """Say what separates the parts that a bucket reads, and what all of them together have to look like."""
    separator = "." if bucket.key_encoding == "v2_flat" else "/"
    # A leading `c` counts as a part where the rule says to skip at least one; the format gives it to v3 alone.
    leads = bucket.index > 0 and bucket.key_encoding != "v2_slash"
    between = re.escape(separator)
    return separator, re.compile(f"{f'(?:c{between})?' if leads else ''}{_INDEX}(?:{between}{_INDEX})*")


class _Node:
    """What one manifest says about one prefix."""

    __slots__ = ("below", "hot", "pinned", "rule")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.pinned = False
        self.hot = False
        self.rule: _Rule | None = None


class _Table:
    """What one manifest says, ready to be asked. It never changes."""

    __slots__ = ("hot", "manifest", "names", "nodes", "pinned", "root", "unmanaged")

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.hot = Resolution("hot", None, manifest.scope, manifest.epoch)
        self.pinned = Resolution("pinned", None, manifest.scope, manifest.epoch)
        self.unmanaged = Resolution("unmanaged", None, manifest.scope, manifest.epoch)
        self.root = _Node()
        named: set[str] = set()
        for blob in manifest.blobs:
            for written in blob.prefixes:
                prefix = written.removesuffix("/")
                self._node(prefix, named).rule = _Rule(blob, prefix, manifest)
        for pin in manifest.pinned:
            self._node(pin.prefix.removesuffix("/"), named).pinned = True
        patterns = [read_hot_pattern(pattern) for pattern in manifest.hot_always]
        for kind, text in patterns:
            if kind == "prefix":
                self._node(text, named).hot = True
        self.names = frozenset(text for kind, text in patterns if kind == "name") - METADATA_NAMES
        self.nodes = len(named)

    def _node(self, prefix: str, named: set[str]) -> _Node:
        named.add(prefix)
        node = self.root
        for segment in prefix.split("/") if prefix else ():
            node = node.below.setdefault(segment, _Node())
        return node


class _Place:
    """One segment of the scopes' own trie."""

    __slots__ = ("below", "table")

    def __init__(self) -> None:
        self.below: dict[str, _Place] = {}
        self.table: _Table | None = None


class Trie:
    """Every manifest of one bucket, ready to be asked.

    Any number of threads may look up, without a lock, while others add, replace and discard.
    """

    def __init__(self) -> None:
        self._root = _Place()
        self._tables: dict[str, _Table] = {}
        self._writing = Lock()

    def __len__(self) -> int:
        """Count the nodes: one for each prefix that a manifest names, never one for an object."""
        return sum(table.nodes for table in list(self._tables.values()))

    def scopes(self) -> tuple[str, ...]:
        """Name the scopes that are held, in order."""
        return tuple(sorted(self._tables))

    def add_all(self, manifests: Iterable[Manifest]) -> tuple[tuple[Manifest, Verdict], ...]:
        """Hold many manifests.

        Returns:
            Those of them that were not simply taken, and what became of each.
        """
        verdicts = ((manifest, self.replace(manifest)) for manifest in manifests)
        return tuple((manifest, verdict) for manifest, verdict in verdicts if verdict != "taken")

    def add(self, manifest: Manifest) -> Verdict:
        """Hold one manifest; a scope has one, so this is `replace`."""
        return self.replace(manifest)

    def replace(self, manifest: Manifest) -> Verdict:
        """Exchange what is held of one scope, whole and at once.

        Returns:
            What became of it: a lower epoch never replaces a higher one, see `Verdict`.
        """
        with self._writing:
            held = self._tables.get(manifest.scope)
            verdict = _compare(held.manifest, manifest) if held else "taken"
            if held and verdict == "merged":
                manifest = replace(manifest, pinned=_union(held.manifest.pinned, manifest.pinned))
            if verdict in ("taken", "merged"):
                # Measured numbers decide nothing here, and are much longer than what does.
                table = _Table(replace(manifest, provenance=None))
                self._tables[manifest.scope] = table
                self._place(manifest.scope).table = table
            return verdict

    def discard(self, scope: str) -> None:
        """Forget what is held of one scope, if anything is; a later manifest of it may have any epoch."""
        with self._writing:
            if self._tables.pop(scope, None) is None:
                return
            way = [self._root]
            segments = scope.split("/") if scope else []
            for segment in segments:
                way.append(way[-1].below[segment])
            way[-1].table = None
            for place, above, segment in zip(way[:0:-1], way[-2::-1], reversed(segments), strict=True):
                if place.table is None and not place.below:
                    del above.below[segment]

    def _place(self, scope: str) -> _Place:
        place = self._root
        for segment in scope.split("/") if scope else ():
            place = place.below.setdefault(segment, _Place())
        return place

    def lookup(self, key: str) -> Resolution:
        """Say which blob an object belongs to.

        Args:
            key: of the object, relative to the bucket. Any string has an answer.
        """
        segments = key.split("/")
        last = segments[-1]
        nobodys = "" in segments or "." in segments or ".." in segments
        covering = () if nobodys else self._covering(segments)
        if last in METADATA_NAMES:
            return covering[-1][1].hot if covering else _HOT
        pinned = hot = rule = None
        longest = 0
        for depth, table in covering:
            if last in table.names:
                hot = table.hot
            node, reached = table.root, depth
            while True:
                if node.pinned:
                    pinned = table.pinned
                if node.hot:
                    hot = table.hot
                if node.rule is not None and reached >= longest:
                    rule, longest = node.rule, reached
                if reached == len(segments) or (below := node.below.get(segments[reached])) is None:
                    break
                node, reached = below, reached + 1
        claimed = pinned or hot or (rule and rule.answer(key))
        return claimed or (covering[-1][1].unmanaged if covering else _UNMANAGED)

    def _covering(self, segments: list[str]) -> list[tuple[int, _Table]]:
        """Find the tables of all scopes that cover a key, shortest first, each with its scope's number of segments."""
        place: _Place | None = self._root
        found = []
        depth = 0
        while place is not None:
            if (table := place.table) is not None:
                found.append((depth, table))
            place = place.below.get(segments[depth]) if depth < len(segments) else None
            depth += 1
        return found

    def lookup_many(self, keys: Iterable[str]) -> Iterator[Resolution]:
        """Answer as `lookup` does, for a long stream that has many keys of one array after each other."""
        return map(self.lookup, keys)


def _compare(held: Manifest, given: Manifest) -> Verdict:
    if given.epoch != held.epoch:
        return "taken" if given.epoch > held.epoch else "older"
    if (given.blobs, given.hot_always, given.policy) != (held.blobs, held.hot_always, held.policy):
        return "refused"
    return "unchanged" if set(given.pinned) == set(held.pinned) else "merged"


def _union(held: tuple[Pin, ...], given: tuple[Pin, ...]) -> tuple[Pin, ...]:
    return tuple(dict.fromkeys((*held, *given)))
