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

from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal

from blobmap.chunk_keys import METADATA_NAMES
from blobmap.manifest import read_hot_pattern
from blobmap.rules import Kind, Resolution, Rule
from blobmap.runs import INDEX_CHARACTERS, Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from blobmap.manifest import Manifest, Pin
    from blobmap.runs import Tails

__all__ = ["Kind", "Resolution", "Trie", "Verdict"]

Verdict = Literal["taken", "unchanged", "older", "merged", "refused"]
"""What became of a manifest that was given.

taken: it is in force. unchanged: it says what is in force already. older: its epoch is lower than what is held, so it
was ignored. merged: only its pins differ at an equal epoch, so the pins of both are in force. refused: other things
differ at an equal epoch, so the one in force stays. The last two are faults of whoever wrote it: report them.
"""

_NOBODYS: Final = frozenset({"", ".", ".."})
_DIGITS: Final = frozenset("0123456789")
_UNMANAGED: Final = Resolution("unmanaged", None, None, None)
_HOT: Final = Resolution("hot", None, None, None)


class _Node:
    """What one manifest says about one prefix."""

    __slots__ = ("below", "hot", "pinned", "rule", "says")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.pinned = False
        self.hot = False
        self.rule: Rule | None = None
        self.says = False


class _Table:
    """What one manifest says, ready to be asked. It never changes."""

    __slots__ = ("hot", "manifest", "names", "names_end_in_digits", "nodes", "pinned", "root", "unmanaged")

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
                self._node(prefix, named).rule = Rule(blob, prefix, manifest)
        for pin in manifest.pinned:
            self._node(pin.prefix.removesuffix("/"), named).pinned = True
        patterns = [read_hot_pattern(pattern) for pattern in manifest.hot_always]
        for kind, text in patterns:
            if kind == "prefix":
                self._node(text, named).hot = True
        self.names = frozenset(text for kind, text in patterns if kind == "name") - METADATA_NAMES
        # The last segment of a chunk's key ends in a digit: only such a name can be one.
        self.names_end_in_digits = any(name[-1:] in _DIGITS for name in self.names)
        self.nodes = len(named)

    def _node(self, prefix: str, named: set[str]) -> _Node:
        named.add(prefix)
        node = self.root
        for segment in prefix.split("/") if prefix else ():
            node = node.below.setdefault(segment, _Node())
        node.says = True
        return node

    def said(self, segments: list[str], depth: int) -> tuple[bool, bool, Rule | None, int]:
        """Go along a key from the end of the scope on.

        Returns:
            Whether a pin covers it, whether a hot prefix does, the rule with the longest prefix that does, and the
            number of segments up to the end of that prefix.
        """
        pinned = hot = False
        rule, longest = None, 0
        node, reached = self.root, depth
        while True:
            if node.says:
                pinned = pinned or node.pinned
                hot = hot or node.hot
                if node.rule is not None:
                    rule, longest = node.rule, reached
            below = node.below.get(segments[reached]) if reached < len(segments) else None
            if below is None:
                return pinned, hot, rule, longest
            node, reached = below, reached + 1


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
        self._tails: Tails = {"/": {}, ".": {}}
        # Exchanged after every change: what a lookup that began before it remembers is dropped with the old one.
        self._run = Run(self._tails, _UNMANAGED)
        self._writing = Lock()

    def __len__(self) -> int:
        """Count the nodes: one for each prefix that a manifest names, never one for an object."""
        return sum(table.nodes for table in list(self._tables.values()))

    def scopes(self) -> tuple[str, ...]:
        """Name the scopes that are held, in order."""
        return tuple(sorted(self._tables))

    def manifest(self, scope: str) -> Manifest | None:
        """Give what is held of one scope, without its provenance; None: nothing is held of it."""
        table = self._tables.get(scope)
        return table.manifest if table else None

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
                self._run = Run(self._tails, _UNMANAGED)
            pieces = _pieces(held) if held and verdict in ("taken", "merged") else []
            del held
        _free(pieces)
        return verdict

    def discard(self, scope: str) -> None:
        """Forget what is held of one scope, if anything is; a later manifest of it may have any epoch."""
        with self._writing:
            if (held := self._tables.pop(scope, None)) is None:
                return
            way = [self._root]
            segments = scope.split("/") if scope else []
            for segment in segments:
                way.append(way[-1].below[segment])
            way[-1].table = None
            for place, above, segment in zip(way[:0:-1], way[-2::-1], reversed(segments), strict=True):
                if place.table is None and not place.below:
                    del above.below[segment]
            self._run = Run(self._tails, _UNMANAGED)
            pieces = _pieces(held)
            del held
        _free(pieces)

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
        run = self._run
        head, _, tails, low, high, answer, other_low, other_high, other = run.block
        tail = key.removeprefix(head)
        code = tails.get(tail, -1)
        # A key without the head is left as it is, and may look like a tail itself.
        if low <= code < high and tail != key:
            return answer
        if other_low <= code < other_high and tail != key:
            return other
        return self._follow(key, run)

    def lookup_many(self, keys: Iterable[str]) -> Iterator[Resolution]:
        """Answer as `lookup` does, for a long stream that has many keys of one array after each other.

        One key is taken and one answer given at a time, so the keys may come from anywhere, and a manifest that is
        exchanged meanwhile decides about the keys taken from then on.
        """
        for key in keys:
            run = self._run
            head, _, tails, low, high, answer, other_low, other_high, other = run.block
            tail = key.removeprefix(head)
            code = tails.get(tail, -1)
            if low <= code < high and tail != key:
                yield answer
            elif other_low <= code < other_high and tail != key:
                yield other
            else:
                yield self._follow(key, run)

    def _follow(self, key: str, run: Run) -> Resolution:
        """Answer by a rule that answered such keys before, or else by everything that is held."""
        stem = key.rstrip(INDEX_CHARACTERS)
        rule = run.hints.get(stem)
        if rule is not None and key.startswith(rule.prefix):
            answer = run.answer(rule, key)
            if answer is not None:
                return answer
        answer, rule = self._decide(key)
        if rule is not None and rule.separator:
            if (alone := run.alone.get(rule)) is None:
                alone = run.alone[rule] = self._is_alone(rule)
            if alone:
                run.hints[stem] = rule
        return answer

    def _decide(self, key: str) -> tuple[Resolution, Rule | None]:
        """Answer by everything that is held, and name the rule that did."""
        segments = key.split("/")
        last = segments[-1]
        covering = self._covering(segments) if _NOBODYS.isdisjoint(segments) else ()
        if last in METADATA_NAMES:
            return (covering[-1][1].hot if covering else _HOT), None
        pinned = hot = rule = None
        longest = 0
        for depth, table in covering:
            is_pinned, is_hot, found, reached = table.said(segments, depth)
            if is_pinned:
                pinned = table.pinned
            if is_hot or last in table.names:
                hot = table.hot
            if found is not None and reached >= longest:
                rule, longest = found, reached
        if held := pinned or hot:
            return held, None
        if rule is not None and (answer := rule.answer(key)) is not None:
            return answer, rule
        return (covering[-1][1].unmanaged if covering else _UNMANAGED), None

    def _covering(self, segments: list[str]) -> list[tuple[int, _Table]]:
        """Find the tables of all scopes that cover a key, shortest first, each with its scope's number of segments."""
        place, depth = self._root, 0
        found = []
        while True:
            if (table := place.table) is not None:
                found.append((depth, table))
            below = place.below.get(segments[depth]) if depth < len(segments) else None
            if below is None:
                return found
            place, depth = below, depth + 1

    def _is_alone(self, rule: Rule) -> bool:
        """Say whether a rule that has just answered decides about every key below its prefix that fits it."""
        segments = rule.prefix.split("/")[:-1]
        place: _Place | None = self._root
        for segment in segments:
            place = place and place.below.get(segment)
        if place and place.below:
            return False
        for depth, table in self._covering(segments):
            node: _Node | None = table.root
            for segment in segments[depth:]:
                node = node and node.below.get(segment)
            if (node and node.below) or table.names_end_in_digits:
                return False
        return True


def _pieces(table: _Table) -> list[object]:
    """Name all that a table is made of, its root last: freed in one go, a large one would stop every thread.

    The nodes stay as they are, so that a lookup which still goes along them ends well.
    """
    nodes = [table.root]
    for node in nodes:  # grows while it is gone through
        nodes.extend(node.below.values())
    return [*table.manifest.blobs, *reversed(nodes)]


def _free(pieces: list[object]) -> None:
    """Let go of one piece after the other, from the root of what they were on: with it goes nothing else."""
    while pieces:
        pieces.pop()


def _compare(held: Manifest, given: Manifest) -> Verdict:
    if given.epoch != held.epoch:
        return "taken" if given.epoch > held.epoch else "older"
    if (given.blobs, given.hot_always, given.policy) != (held.blobs, held.hot_always, held.policy):
        return "refused"
    return "unchanged" if set(given.pinned) == set(held.pinned) else "merged"


def _union(held: tuple[Pin, ...], given: tuple[Pin, ...]) -> tuple[Pin, ...]:
    return tuple(dict.fromkeys((*held, *given)))
