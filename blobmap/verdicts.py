"""What becomes of each array of a scope, one after the other, with the reason in words.

Source: points 1, 2, 5, 6 and 7 of "How we cut" of the manifest format; where and how wide an array is cut is `cuts`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from blobmap.cuts import choose_cut, planned_object_bytes, slab_objects
from blobmap.decisions import BlobRange, Decision
from blobmap.identifiers import array_id, hashed_id
from blobmap.manifest import Blob, Bucket, hot_pattern
from blobmap.policy import format_size
from blobmap.provenance import Planned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blobmap.arrays import ArrayLayout
    from blobmap.decisions import Before, Claim, Verdict
    from blobmap.policy import Policy
    from blobmap.provenance import Provenance
    from blobmap.roles import Standing
    from blobmap.tally import Measured


class Judge:
    """Decides about the arrays of one scope, each in the light of what is in force and of what was decided before it.

    Args:
        policy: thresholds for what is cut now.
        before: what is in force.
        provenance: what the previous manifest knows of its arrays.
        carried: rules that are carried over.
        paths: of all arrays of the scope.

    Attributes:
        new: rules that were added.
        hot: patterns that keep arrays hot.
        planned: what each array's cut was made with, now or before.
        warnings: one line each.
    """

    def __init__(
        self,
        policy: Policy,
        before: Before,
        provenance: Provenance,
        *,
        carried: Sequence[Blob],
        paths: Sequence[str],
    ) -> None:
        self._policy = policy
        self._before = before
        self._provenance = provenance
        self._inside = _arrays_in_arrays(paths)
        self._ids = {blob.id for blob in carried}
        self._prefixes = {prefix.removesuffix("/"): blob.id for blob in carried for prefix in blob.prefixes}
        self.new: list[Blob] = []
        self.hot: list[str] = []
        self.planned: dict[str, Planned] = {}
        self.warnings: list[str] = []

    def decide(self, array: Measured, standing: Standing, own: Claim | None) -> Decision:
        """Decide about one array.

        Args:
            array: as measured.
            standing: what it is to the others.
            own: the claim of a rule that is carried over, None if none claims it.

        Returns:
            Its row; the rule, pattern and warnings that belong to it are added here.
        """
        self.warnings += array.warnings
        layout = array.layout
        verdict, reason, blobs = self._verdict(array, standing, own)
        return Decision(
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

    def _verdict(self, array: Measured, standing: Standing, own: Claim | None) -> tuple[Verdict, str, BlobRange | None]:
        label = array.layout.label
        other = self._before.others.get(array.layout.path)
        if standing.role in ("dimension coordinate", "scalar"):
            if own is not None and own.rule is not None:
                self.warnings.append(f"rule {own.rule.id!r} claims {label}, which is always hot: {standing.why}")
            return self._hot(array.layout, f"{standing.why}: always hot")
        if own is not None and own.rule is not None:
            return self._kept(array, own, own.rule)
        if other is not None:
            return self._elsewhere(array, other)
        if (reason := self._small(array, standing)) is not None:
            return self._hot(array.layout, reason)
        return self._cut(array, standing)

    def _small(self, array: Measured, standing: Standing) -> str | None:
        """Why an array without a rule is hot, None if it is to be cut."""
        label, size = array.layout.label, format_size(array.stored_bytes)
        if standing.role == "possible coordinate":
            self.warnings.append(f"{label} could be a coordinate and is kept hot: {standing.why}")
            return f"could be a coordinate, kept hot: {standing.why}"
        if standing.role == "auxiliary coordinate":
            limit = format_size(self._policy.t_aux_bytes)
            if array.stored_bytes <= self._policy.t_aux_bytes:
                return f"auxiliary coordinate, {standing.why}: hot up to {limit} without a rule"
            self.warnings.append(f"{label} is an auxiliary coordinate of {size}, more than {limit}: archivable")
        if array.stored_bytes < self._policy.t_hot_bytes:
            if array.obstacle is not None:
                self.warnings.append(f"{label} is hot while small, and no rule can be written for it: {array.obstacle}")
            limit = format_size(self._policy.t_hot_bytes)
            return f"{size} stored, less than {limit}, and no rule yet: hot"
        if array.obstacle is None and planned_object_bytes(array, self._policy) is None:
            return "nothing stored and no fixed size of its elements: hot until there is something to measure"
        return None

    def _hot(self, layout: ArrayLayout, reason: str) -> tuple[Verdict, str, None]:
        pattern = hot_pattern(layout.path)
        below = self._inside.get(layout.path)
        if pattern is None or below is not None:
            why = "no hot pattern can spell its name" if pattern is None else f"its hot pattern would cover {below!r}"
            self.warnings.append(f"{layout.label} is left without a rule: {why}")
            return "unclaimed", f"{reason}; {why}, so it is left out", None
        self.hot.append(pattern)
        return "hot", reason, None

    def _kept(self, array: Measured, claim: Claim, rule: Blob) -> tuple[Verdict, str, BlobRange]:
        blobs = _range(array, rule, claim.axis)
        said = f"kept: rule {rule.id!r}"
        if blobs.width is None:
            return "kept", f"{said} is one blob of {format_size(blobs.blob_bytes)}, whatever is added", blobs
        if blobs.axis is None:
            return "kept", f"{said} divides a part of the keys that is no axis of this array", blobs
        reason = f"{said}, {blobs.width} indices of axis {blobs.axis} make {format_size(blobs.blob_bytes)} now"
        promised = self._promised(array)
        if blobs.width > 1 and blobs.blob_bytes > promised:
            self.warnings.append(
                f"{array.layout.label}: a blob of {rule.id!r} holds {format_size(blobs.blob_bytes)} now, "
                f"more than the {format_size(promised)} that its cut promised; only force cuts it anew"
            )
        return "kept", reason, blobs

    def _promised(self, array: Measured) -> int:
        """What a blob of several slabs may hold: the plan, in proportion where objects have become larger since."""
        planned = self.planned.get(array.layout.path)
        if planned is None:
            return self._policy.t_max_bytes * self._policy.width_clamp
        now = Fraction(array.stored_bytes, max(array.objects, 1))
        return math.ceil(planned.t_max_bytes * max(Fraction(1), now / planned.object_bytes))

    def _elsewhere(self, array: Measured, claim: Claim) -> tuple[Verdict, str, BlobRange | None]:
        said = f"the manifest of scope {claim.scope!r}"
        if claim.rule is None:
            return "elsewhere", f"kept hot by {said}", None
        return "elsewhere", f"claimed by {said}", _range(array, claim.rule, claim.axis)

    def _cut(self, array: Measured, standing: Standing) -> tuple[Verdict, str, BlobRange | None]:
        path, label = array.layout.path, array.layout.label
        object_bytes = planned_object_bytes(array, self._policy)
        if array.obstacle is not None or array.encoding is None or object_bytes is None:
            why = array.obstacle or "nothing is known about its objects"
            self.warnings.append(f"{label} gets no rule: {why}")
            return "unclaimed", f"no rule can be written: {why}", None
        suffix, key_encoding, offset = array.encoding.rule()
        prefix = "/".join(part for part in (path, suffix) if part)
        name = next((name for name in (array_id(path), hashed_id(path)) if name not in self._ids), None)
        if prefix in self._prefixes or name is None:
            holder = self._prefixes.get(prefix, array_id(path))
            why = f"rule {holder!r} has its place and does not fit its objects; only force can replace it"
            self.warnings.append(f"{label} gets no rule: {why}")
            return "unclaimed", f"no rule can be added: {why}", None
        cut = choose_cut(array, (standing.time_axes, self._grown(array)), object_bytes, self._policy)
        self.warnings += cut.warnings
        rule = Blob(name, (prefix,), Bucket(cut.axis + offset, cut.width, key_encoding))
        self.new.append(rule)
        self.planned[path] = Planned(max(math.floor(object_bytes), 1), self._policy.t_max_bytes)
        reason = cut.reason
        if standing.role == "auxiliary coordinate":
            reason += "; auxiliary coordinate beyond what is kept hot"
        return "cut", reason, replace(_range(array, rule, cut.axis), blob_bytes=cut.blob_bytes)

    def _grown(self, array: Measured) -> dict[int, str]:
        """Axes that are longer than at the last partition, or that wait for their first element."""
        shape = array.layout.shape
        then = self._provenance.shapes.get(array.layout.path, ())
        grown = {axis: "it has no element yet" for axis, length in enumerate(shape) if length == 0}
        if len(then) == len(shape):
            for axis, (old, new) in enumerate(zip(then, shape, strict=True)):
                if new > old:
                    grown[axis] = f"from {old} to {new} since the last partition"
        return grown


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
