"""Writers, manifests that change and backfills, as a game: what is told is decided for real, all else is played."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from blobmap.resolve import Trie
from consumer.backfill_steps import ended, suspected, taken
from consumer.memory import Memory
from consumer.owed import is_owed
from consumer.tasks import Task
from consumer.told_before import ToldBefore, covers, related, told_before
from tests.support import brute_force

if TYPE_CHECKING:
    from blobmap.manifest import Manifest

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Game:
    """One bucket. A step takes a day, so that clocks that differ by less change nothing.

    Attributes:
        manifests: what is in force.
        epochs: the highest epoch that each scope has had.
        objects: for each key when it was written last.
        told: key, time of the writing, scope, blob.
        memories: what is remembered of each scope.
        repeats: how many records of backfills told nothing new.
    """

    manifests: dict[str, Manifest] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    objects: dict[str, datetime] = field(default_factory=dict)
    told: set[tuple[str, datetime, str | None, str | None]] = field(default_factory=set)
    memories: dict[str, Memory] = field(default_factory=dict)
    begun: dict[str, tuple[Manifest, ToldBefore, dict[str, Manifest]]] = field(default_factory=dict)
    repeats: int = 0
    days: int = 0

    @property
    def now(self) -> datetime:
        return START + timedelta(days=self.days)

    def put(self, key: str) -> None:
        """An object is written, and an event tells of it."""
        self.days += 1
        self.objects[key] = self.now
        self._tell(key)

    def write(self, manifest: Manifest) -> None:
        """A manifest is written, and every process knows of it."""
        self.days += 1
        scope = manifest.scope
        self.epochs[scope] = self.epochs.get(scope, 0) + 1
        self.manifests[scope] = replace(manifest, epoch=self.epochs[scope])

    def remove(self, scope: str) -> None:
        """A manifest goes, and a worker sees it missing."""
        self.days += 1
        if self.manifests.pop(scope, None) is not None:
            self.memories[scope] = suspected(self._memory(scope))

    def begin(self, scope: str) -> None:
        """A worker takes the backfill of a scope, if one is owed."""
        self.days += 1
        manifest = self.manifests.get(scope)
        if manifest is None or not is_owed(self._memory(scope), manifest.epoch, self.manifests):
            return
        in_force = {name: self.manifests[name] for name in (scope, *related(scope, self.manifests))}
        task = Task(run=f"{scope} {self.days}", bucket="b", scope=scope, epoch=manifest.epoch, prefix=scope)
        memory = taken(
            self._memory(scope),
            task,
            manifest.epoch,
            scopes=self.manifests,
            around={name: held.epoch for name, held in in_force.items() if name != scope},
            now=self.now,
            alive_s=0,
        )
        self.memories[scope] = memory
        assert memory.backfilling is not None
        known = {name: self._memory(name) for name in (scope, *related(scope, self.memories))}
        epochs = {name: held.epoch for name, held in in_force.items()}
        before = ToldBefore() if memory.backfilling.whole else told_before(scope, known, epochs)
        self.begun[scope] = manifest, before, in_force

    def finish(self, scope: str) -> None:
        """That worker lists and tells, and writes down that it has."""
        self.days += 1
        if scope not in self.begun:
            return
        manifest, before, in_force = self.begun.pop(scope)
        trie = Trie()
        trie.add_all(in_force.values())
        for key, modified in self.objects.items():
            found = trie.lookup(key)
            if not covers(scope, key) or found.kind != "blob" or before.has(key, modified, found):
                continue
            record = key, modified, found.scope, found.blob_id
            self.repeats += record in self.told
            self.told.add(record)
        memory = self._memory(scope)
        assert memory.backfilling is not None
        around = {name: self.manifests[name].epoch for name in related(scope, self.manifests)}
        self.memories[scope] = ended(memory, memory.backfilling.run, manifest, around=around, is_whole_listing=True)

    def settle(self) -> None:
        """Everything that is owed is done."""
        for scope in sorted(self.begun):
            self.finish(scope)
        for _ in range(2):
            for scope in sorted(self.manifests):
                self.begin(scope)
                self.finish(scope)

    def untold(self) -> list[str]:
        """The keys that belong to a blob and were not told so, as a model of resolution has it."""
        missing = []
        for key, modified in self.objects.items():
            found = brute_force.resolve(list(self.manifests.values()), key)
            if found.kind == "blob" and (key, modified, found.scope, found.blob_id) not in self.told:
                missing.append(key)
        return missing

    def _tell(self, key: str) -> None:
        found = brute_force.resolve(list(self.manifests.values()), key)
        if found.kind == "blob":
            self.told.add((key, self.objects[key], found.scope, found.blob_id))

    def _memory(self, scope: str) -> Memory:
        return self.memories.get(scope, Memory())
