"""From measured arrays, the previous manifest and a policy to the next manifest, with the reason for every row of it.

Source: "How we cut" of the manifest format. Nothing is read or written here: `service` carries the plan out. Rules that
exist are carried over as they are; new ones only fill what nobody claims; only force makes anything anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Literal

from blobmap.chunk_keys import METADATA_NAMES
from blobmap.cuts import choose_cut, planned_object_bytes, slab_objects
from blobmap.errors import UsageError
from blobmap.identifiers import array_id, hashed_id
from blobmap.manifest import Blob, Bucket, Manifest, hot_pattern, read_hot_pattern
from blobmap.policy import Policy, format_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from blobmap.roles import Role, Standing
    from blobmap.tally import Measured

Verdict = Literal["cut", "kept", "hot", "elsewhere", "unclaimed"]
"""What becomes of an array.

cut: it gets a new rule. kept: a rule of the previous manifest claims it. hot: never archivable. elsewhere: the manifest
of another scope claims it, or keeps it hot. unclaimed: no rule can be written, so it stays on disk and is reported.
"""

_METADATA_PATTERNS: Final = tuple(f"**/{name}" for name in sorted(METADATA_NAMES))


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
    own: Mapping[str, Claim] | None = None
    others: Mapping[str, Claim] | None = None


def plan_partition(
    scope: str,
    arrays: Iterable[Measured],
    standings: Mapping[str, Standing],
    before: Before,
    *,
    policy: Policy | None = None,
    force: bool = False,
    unread: Sequence[str] = (),
) -> Plan:
    """Decide about every array of a scope.

    Args:
        scope: the prefix that the manifest covers.
        arrays: every array below it, measured.
        standings: what each array is to the others, by path.
        before: what is in force.
        policy: thresholds for what is cut now; None: those of the previous manifest, else the defaults.
        force: make every rule anew instead of carrying the old ones over. Pins are kept.
        unread: paths of nodes whose documents could not be read: what was hot at or below them stays hot.

    Returns:
        The plan.

    Raises:
        UsageError: the previous manifest records a policy that no cut can be made with, and none was given.
    """
    previous = before.manifest
    thresholds = policy or _recorded(previous)
    work = _Work(scope, thresholds, before, force=force, arrays=tuple(arrays), standings=standings)
    work.decide()
    hot = (*_METADATA_PATTERNS, *sorted({*work.hot, *_kept_hot(previous, unread)}))
    carried = previous.blobs if previous is not None and not force else ()
    blobs = (*carried, *work.new)
    if previous is None:
        recorded: Mapping[str, int] | None = thresholds.to_json()
    else:
        if set(hot) == set(previous.hot_always):
            hot = previous.hot_always
        same = blobs == previous.blobs and hot == previous.hot_always
        recorded = _policy_to_record(previous, thresholds, given=policy is not None, keep=same and not force)
    manifest = Manifest(
        scope=scope,
        epoch=max(before.epoch, previous.epoch if previous else 0) + 1,
        hot_always=hot,
        blobs=blobs,
        pinned=previous.pinned if previous else (),
        policy=recorded,
        provenance=work.provenance(previous, force=force),
    )
    changed = previous is None or any(
        getattr(manifest, name) != getattr(previous, name) for name in ("blobs", "hot_always", "policy")
    )
    if policy is not None and previous is not None and not changed and dict(previous.policy or {}) != policy.to_json():
        work.warnings.append(
            "the given policy changes nothing: cuts that exist keep theirs, only force makes them anew"
        )
    return Plan(
        manifest=manifest if changed or previous is None else previous,
        changed=changed,
        decisions=tuple(work.decisions),
        warnings=tuple(dict.fromkeys(work.warnings)),
        difference=_difference(previous, manifest),
    )


class _Work:
    """The state of one pass over the arrays, in the order of their paths."""

    def __init__(
        self,
        scope: str,
        policy: Policy,
        before: Before,
        *,
        force: bool,
        arrays: Sequence[Measured],
        standings: Mapping[str, Standing],
    ) -> None:
        self._policy = policy
        self._scope = scope
        self._arrays = sorted(arrays, key=lambda array: array.layout.path)
        self._standings = standings
        self._inside = _arrays_in_arrays([array.layout.path for array in self._arrays])
        self._own = {} if force else dict(before.own or {})
        self._others = before.others or {}
        carried = before.manifest.blobs if before.manifest is not None and not force else ()
        self._taken_ids = {blob.id for blob in carried}
        self._taken_prefixes = {prefix.removesuffix("/"): blob.id for blob in carried for prefix in blob.prefixes}
        self._shapes = _shapes(before.manifest)
        self._planned = _planned(before.manifest)
        self.new: list[Blob] = []
        self.hot: list[str] = []
        self.decisions: list[Decision] = []
        self.warnings: list[str] = []
        self._measured: dict[str, dict[str, object]] = {}

    def decide(self) -> None:
        for array in self._arrays:
            standing = self._standings[array.layout.path]
            self.warnings += array.warnings
            verdict, reason, blobs = self._verdict(array, standing)
            layout = array.layout
            self.decisions.append(
                Decision(
                    path=layout.path,
                    verdict=verdict,
                    role=standing.role,
                    objects=array.objects,
                    grid_objects=layout.grid_objects,
                    stored_bytes=array.stored_bytes,
                    sharded=layout.sharded,
                    blobs=blobs,
                    reason=reason,
                )
            )
            self._measured.setdefault(layout.path, {}).update(
                objects=array.objects,
                grid_objects=layout.grid_objects,
                stored_bytes=array.stored_bytes,
                uncompressed_object_bytes=layout.object_bytes,
                shape=list(layout.shape),
                sharded=layout.sharded,
            )

    def _verdict(self, array: Measured, standing: Standing) -> tuple[Verdict, str, BlobRange | None]:
        path = array.layout.path
        own, other = self._own.get(path), self._others.get(path)
        if standing.role in ("dimension coordinate", "scalar"):
            if own is not None and own.rule is not None:
                self.warnings.append(f"rule {own.rule.id!r} claims {path!r}, which is always hot: {standing.why}")
            return self._hot(path, f"{standing.why}: always hot")
        if own is not None and own.rule is not None:
            return self._kept(array, own, own.rule)
        if other is not None:
            return self._elsewhere(array, other)
        if (reason := self._small(array, standing)) is not None:
            return self._hot(path, reason)
        return self._cut(array, standing)

    def _small(self, array: Measured, standing: Standing) -> str | None:
        """Why an array without a rule is hot, None if it is to be cut."""
        path, size = array.layout.path, format_size(array.stored_bytes)
        if standing.role == "possible coordinate":
            self.warnings.append(f"{path!r} could be a coordinate and is kept hot: {standing.why}")
            return f"could be a coordinate, kept hot: {standing.why}"
        if standing.role == "auxiliary coordinate":
            limit = format_size(self._policy.t_aux_bytes)
            if array.stored_bytes <= self._policy.t_aux_bytes:
                return f"auxiliary coordinate, {standing.why}: hot up to {limit} without a rule"
            self.warnings.append(f"{path!r} is an auxiliary coordinate of {size}, more than {limit}: archivable")
        if array.stored_bytes < self._policy.t_hot_bytes:
            if array.obstacle is not None:
                self.warnings.append(
                    f"{path!r} is hot while small, and no rule can be written for it: {array.obstacle}"
                )
            limit = format_size(self._policy.t_hot_bytes)
            return f"{size} stored, less than {limit}, and no rule yet: hot"
        if array.obstacle is None and planned_object_bytes(array, self._policy) is None:
            return "nothing stored and no fixed size of its elements: hot until there is something to measure"
        return None

    def _hot(self, path: str, reason: str) -> tuple[Verdict, str, None]:
        pattern = hot_pattern(path)
        below = self._inside.get(path)
        if pattern is None or below is not None:
            why = "no hot pattern can spell its name" if pattern is None else f"its hot pattern would cover {below!r}"
            self.warnings.append(f"{path!r} is left without a rule: {why}")
            return "unclaimed", f"{reason}; {why}, so it is left out", None
        self.hot.append(pattern)
        return "hot", reason, None

    def _kept(self, array: Measured, claim: Claim, rule: Blob) -> tuple[Verdict, str, BlobRange]:
        blobs = _range(array, rule, claim.axis)
        said = f"kept: rule {rule.id!r}"
        if blobs.width is None or blobs.axis is None:
            return "kept", f"{said} is one blob of {format_size(blobs.blob_bytes)}, whatever is added", blobs
        reason = f"{said}, {blobs.width} indices of axis {blobs.axis} make {format_size(blobs.blob_bytes)} now"
        promised = self._promised(array)
        if blobs.width > 1 and blobs.blob_bytes > promised:
            self.warnings.append(
                f"{array.layout.path!r}: a blob of {rule.id!r} holds {format_size(blobs.blob_bytes)} now, "
                f"more than the {format_size(promised)} that its cut promised; only force cuts it anew"
            )
        planned = self._planned.get(array.layout.path)
        if planned is not None:
            self._measured[array.layout.path] = dict(planned)
        return "kept", reason, blobs

    def _promised(self, array: Measured) -> float:
        planned = self._planned.get(array.layout.path)
        if planned is None:
            return self._policy.t_max_bytes * self._policy.width_clamp
        now = array.stored_bytes / array.objects if array.objects else 0
        return planned["planned_t_max_bytes"] * max(1.0, now / planned["planned_object_bytes"])

    def _elsewhere(self, array: Measured, claim: Claim) -> tuple[Verdict, str, BlobRange | None]:
        said = f"the manifest of scope {claim.scope!r}"
        if claim.rule is None:
            return "elsewhere", f"kept hot by {said}", None
        return "elsewhere", f"claimed by {said}", _range(array, claim.rule, claim.axis)

    def _cut(self, array: Measured, standing: Standing) -> tuple[Verdict, str, BlobRange | None]:
        path = array.layout.path
        object_bytes = planned_object_bytes(array, self._policy)
        if array.obstacle is not None or array.encoding is None or object_bytes is None:
            why = array.obstacle or "nothing is known about its objects"
            self.warnings.append(f"{path!r} gets no rule: {why}")
            return "unclaimed", f"no rule can be written: {why}", None
        suffix, key_encoding, offset = array.encoding.rule()
        prefix = "/".join(part for part in (path, suffix) if part)
        name = next((name for name in (array_id(path), hashed_id(path)) if name not in self._taken_ids), None)
        if prefix in self._taken_prefixes or name is None:
            holder = self._taken_prefixes.get(prefix, array_id(path))
            why = f"rule {holder!r} has its place and does not fit its objects; only force can replace it"
            self.warnings.append(f"{path!r} gets no rule: {why}")
            return "unclaimed", f"no rule can be added: {why}", None
        cut = choose_cut(array, {**self._grown(array), **standing.time_axes}, object_bytes, self._policy)
        self.warnings += cut.warnings
        rule = Blob(name, (prefix,), Bucket(cut.axis + offset, cut.width, key_encoding))
        self.new.append(rule)
        self._measured[path] = {
            "planned_object_bytes": max(round(object_bytes), 1),
            "planned_t_max_bytes": self._policy.t_max_bytes,
        }
        reason = cut.reason
        if standing.role == "auxiliary coordinate":
            reason += "; auxiliary coordinate beyond what is kept hot"
        return "cut", reason, replace(_range(array, rule, cut.axis), blob_bytes=cut.blob_bytes)

    def _grown(self, array: Measured) -> dict[int, str]:
        """Axes that are longer than at the last partition, or that wait for their first element."""
        shape = array.layout.shape
        then = self._shapes.get(array.layout.path, ())
        grown = {axis: "it has no element yet" for axis, length in enumerate(shape) if length == 0}
        if len(then) == len(shape):
            for axis, (old, new) in enumerate(zip(then, shape, strict=True)):
                if new > old:
                    grown[axis] = f"from {old} to {new} since the last partition"
        return grown

    def provenance(self, previous: Manifest | None, *, force: bool) -> dict[str, object]:
        """Measured numbers by array path; what was planned for rules that are carried over stays."""
        kept = {} if force or previous is None else dict(previous.provenance or {})
        return {**{path: kept[path] for path in kept if path not in self._measured}, **self._measured}


def _range(array: Measured, rule: Blob, axis: int | None) -> BlobRange:
    mean = Fraction(array.stored_bytes, array.objects) if array.objects else Fraction(array.layout.object_bytes or 0)
    if rule.bucket is None or axis is None:
        return BlobRange(rule.id, 0, 0, rule.bucket.width if rule.bucket else None, None, array.stored_bytes)
    grid, width = array.layout.grid, rule.bucket.width
    blob_bytes = round(width * slab_objects(grid, axis) * mean)
    return BlobRange(rule.id, 0, max(grid[axis] - 1, 0) // width, width, axis, blob_bytes)


def _arrays_in_arrays(paths: Sequence[str]) -> dict[str, str]:
    """Arrays that lie inside others: the outer path to the path of one inside, for each outer one."""
    known = set(paths)
    found: dict[str, str] = {}
    for path in paths:
        outer = path
        while outer:
            outer = outer.rpartition("/")[0]
            if outer in known:
                found.setdefault(outer, path)
    return found


def _recorded(previous: Manifest | None) -> Policy:
    if previous is None or previous.policy is None:
        return Policy()
    try:
        return Policy.from_json(previous.policy)
    except UsageError as error:
        raise UsageError(
            f"the manifest of scope {previous.scope!r} records no usable policy ({error}): give one"
        ) from error


def _policy_to_record(previous: Manifest, thresholds: Policy, *, given: bool, keep: bool) -> Mapping[str, int] | None:
    """The previous record where nothing else changes or it says the same; foreign keys of it are never lost."""
    recorded = previous.policy
    if keep or (recorded is not None and not given):
        return recorded
    return {**(recorded or {}), **thresholds.to_json()}


def _kept_hot(previous: Manifest | None, unread: Sequence[str]) -> set[str]:
    """Hot patterns of the previous manifest at or below nodes that could not be read this time."""
    if previous is None:
        return set()
    places = [read_hot_pattern(pattern) for pattern in previous.hot_always]
    return {
        pattern
        for pattern, (kind, place) in zip(previous.hot_always, places, strict=True)
        if kind == "prefix" and any(not path or place == path or place.startswith(path + "/") for path in unread)
    }


def _entries(previous: Manifest | None) -> dict[str, Mapping[str, object]]:
    entries = (previous.provenance or {}) if previous is not None else {}
    return {path: entry for path, entry in entries.items() if hasattr(entry, "get")}  # type: ignore[misc]  # provenance is anybody's JSON


def _shapes(previous: Manifest | None) -> dict[str, tuple[int, ...]]:
    found = {}
    for path, entry in _entries(previous).items():
        shape = entry.get("shape")
        if isinstance(shape, (list, tuple)) and all(isinstance(length, int) for length in shape):
            found[path] = tuple(shape)
    return found


def _planned(previous: Manifest | None) -> dict[str, dict[str, int]]:
    found = {}
    for path, entry in _entries(previous).items():
        planned = {name: entry.get(name) for name in ("planned_object_bytes", "planned_t_max_bytes")}
        if all(isinstance(value, int) and value > 0 for value in planned.values()):
            found[path] = planned
    return found  # type: ignore[return-value]  # checked one by one above


def _difference(previous: Manifest | None, manifest: Manifest) -> Difference:
    then = {blob.id: blob for blob in previous.blobs} if previous else {}
    now = {blob.id: blob for blob in manifest.blobs}
    hot_then = previous.hot_always if previous else ()
    return Difference(
        added=tuple(name for name in now if name not in then),
        removed=tuple(name for name in then if name not in now),
        moved=tuple(name for name in now if name in then and now[name] != then[name]),
        hot_added=tuple(pattern for pattern in manifest.hot_always if pattern not in hot_then),
        hot_removed=tuple(pattern for pattern in hot_then if pattern not in manifest.hot_always),
    )
