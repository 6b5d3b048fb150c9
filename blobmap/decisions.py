"""What a partition decides, as values: what was in force before, a row for each array, what changes, the whole plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blobmap.manifest import Blob, Manifest
    from blobmap.roles import Role

Verdict = Literal["cut", "kept", "hot", "elsewhere", "unclaimed"]
"""What becomes of an array.

cut: it gets a new rule. kept: a rule of the previous manifest claims it. hot: never archivable. elsewhere: the manifest
of another scope claims it, or keeps it hot. unclaimed: no rule can be written, so it stays on disk and is reported.
"""


@dataclass(frozen=True, slots=True)
class Claim:
    """A rule or hot pattern, in force before this partition, that an array's objects resolve to.

    Attributes:
        scope: of the manifest that claims.
        rule: the rule, None where a hot pattern claims.
        axis: of the array along which the rule cuts, None where it does not cut.
    """

    scope: str
    rule: Blob | None
    axis: int | None


@dataclass(frozen=True, slots=True)
class BlobRange:
    """The blobs that the objects of one array fall into.

    Attributes:
        id: of the rule; blobs are called `<id>_<n>`.
        first: smallest `n` of the array's present shape.
        last: largest `n` of the array's present shape.
        width: consecutive indices that make a blob, None for a rule that does not cut.
        axis: of the array along which it is cut, None for a rule that does not cut.
        blob_bytes: what a blob of fully written slabs holds, at the mean size of an object that counts for its row.
    """

    id: str
    first: int
    last: int
    width: int | None
    axis: int | None
    blob_bytes: int


@dataclass(frozen=True, slots=True)
class Decision:
    """One row of the decision table.

    Attributes:
        path: of the array relative to the scope.
        verdict: what becomes of it.
        role: what it is to the other arrays.
        objects: stored objects.
        grid_objects: objects of the whole grid, stored or not.
        stored_bytes: size of the stored objects together.
        sharded: whether an object is a shard.
        blobs: the blobs that its objects fall into, None where there are none.
        reason: why, in words for an operator.
    """

    path: str
    verdict: Verdict
    role: Role
    objects: int
    grid_objects: int
    stored_bytes: int
    sharded: bool
    blobs: BlobRange | None
    reason: str

    @property
    def mean_object_bytes(self) -> float:
        """Mean size of a stored object, 0 where none is stored."""
        return self.stored_bytes / self.objects if self.objects else 0.0


@dataclass(frozen=True, slots=True)
class Difference:
    """What changes against the previous manifest.

    Attributes:
        added: ids of new rules.
        removed: ids of rules that are gone; their blobs are orphaned.
        moved: ids of rules that claim other objects than before, or cut them differently.
        hot_added: patterns that are new in `hot_always`.
        hot_removed: patterns that are gone from it.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    hot_added: tuple[str, ...] = ()
    hot_removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What a partition would write, and why.

    Attributes:
        manifest: as it is to be in force; the previous one, unchanged, where nothing changes.
        changed: whether it says anything else than the previous one.
        decisions: one row for each array, by path.
        warnings: one line each.
        difference: against the previous manifest.
    """

    manifest: Manifest
    changed: bool
    decisions: tuple[Decision, ...]
    warnings: tuple[str, ...]
    difference: Difference


@dataclass(frozen=True, slots=True)
class Before:
    """What is in force before a partition.

    Attributes:
        manifest: of this scope, None if it has none.
        epoch: the highest that was ever written for this scope, 0 if none was.
        own: claims of this scope's rules, by array path.
        others: claims of other scopes' manifests, by array path.
    """

    manifest: Manifest | None = None
    epoch: int = 0
    own: Mapping[str, Claim] = field(default_factory=dict)
    others: Mapping[str, Claim] = field(default_factory=dict)
