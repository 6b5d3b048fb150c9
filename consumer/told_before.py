"""What movers were told when scopes were last backfilled, so that a backfill leaves out what is no news.

Pure. A key is left out only where a record proves that it was told: everything that was there when the listing of a
backfill began has been told under the rules that this backfill used, those of the scopes around and inside included.
Where scopes are nested, the rules that are remembered of each of them may never have been in force together; then
nothing is proved, and the key is told (again).

What was written after that was told by events, under the rules in force then. Where an epoch was skipped these are not
known: what is younger than the record is told as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from blobmap.resolve import Trie

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from blobmap.resolve import Resolution
    from consumer.memory import Backfilled, Memory

# By which a server that dates objects and a worker that dates listings may differ.
_CLOCKS = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class ToldBefore:
    """What was told.

    Attributes:
        trie: the rules under which it was told; None: it is not known that anything was.
        unproved: beginnings of keys of which nothing is proved.
        since: UTC; of what was written then or later nothing is proved; None: there is no such time.
    """

    trie: Trie | None = None
    unproved: tuple[str, ...] = ()
    since: datetime | None = None

    def has(self, key: str, modified: datetime, now: Resolution) -> bool:
        """Whether an object was told.

        Args:
            key: its key.
            modified: UTC; when it was written last.
            now: the blob that it belongs to now.
        """
        if self.trie is None or (self.since is not None and modified >= self.since):
            return False
        if self.unproved and f"{key}/".startswith(self.unproved):  # a scope covers the key that it is named like, too
            return False
        then = self.trie.lookup(key)
        return then.kind == "blob" and (then.scope, then.blob_id) == (now.scope, now.blob_id)


def told_before(scope: str, memories: Mapping[str, Memory], in_force: Mapping[str, int]) -> ToldBefore:
    """Puts together what is remembered.

    Args:
        scope: what is backfilled.
        memories: what is remembered of it, and of every scope around or inside that has or had a manifest.
        in_force: for each of those that has a manifest now, its epoch.

    Returns:
        What was told. Nothing, where no backfill of the scope is remembered, or where it is suspect.

    Raises:
        ManifestError: a manifest that is remembered cannot be read.
    """
    records = {name: memory.backfilled for name, memory in memories.items() if memory.backfilled is not None}
    reliable = {name for name in records if not _is_suspect(memories[name])}
    if scope not in reliable:
        return ToldBefore()
    trie = Trie()
    trie.add_all(record.manifest() for record in records.values())
    names = sorted({*records, *in_force, *(name for record in records.values() for name in record.around)})
    unproved: list[str] = []
    since: list[datetime] = []
    for inner in (name for name in names if covers(scope, name)):
        chain = [name for name in names if covers(name, inner)]
        proof = next((name for name in chain if name in reliable and _proves(name, chain, records)), None)
        if proof is None:
            unproved.append(_below(inner))
        elif _steps(chain, records, in_force) > 1:
            since.append(records[proof].began - _CLOCKS)
    return ToldBefore(trie, tuple(unproved), min(since, default=None))


def related(scope: str, names: Iterable[str]) -> Sequence[str]:
    """Those scopes that lie around or inside another one, and not itself."""
    return [name for name in names if name != scope and (covers(name, scope) or covers(scope, name))]


def covers(outer: str, inner: str) -> bool:
    """Whether a scope lies at or below another one, by whole segments."""
    return outer == inner or inner.startswith(_below(outer))


def _below(scope: str) -> str:
    """How keys inside a scope begin."""
    return f"{scope}/" if scope else ""


def _is_suspect(memory: Memory) -> bool:
    return memory.suspect or (memory.backfilling is not None and memory.backfilling.whole)


def _proves(name: str, chain: Sequence[str], records: Mapping[str, Backfilled]) -> bool:
    """Whether a backfill used, of every scope of a chain, the very manifest that is remembered of it."""
    around = records[name].around
    return all(around.get(other) == _epoch(records.get(other)) for other in chain if other != name)


def _steps(chain: Sequence[str], records: Mapping[str, Backfilled], in_force: Mapping[str, int]) -> int:
    """How many changes lie between what is remembered and what is in force; a manifest that is gone counts as two."""
    changes = (in_force.get(name, -1) - (_epoch(records.get(name)) or 0) for name in chain)
    return sum(2 if change < 0 else change for change in changes)


def _epoch(record: Backfilled | None) -> int | None:
    return None if record is None else int(record.document["epoch"])
