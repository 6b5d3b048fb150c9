"""From measured arrays, the previous manifest and a policy to the next manifest, with the reason for every row of it.

Source: "How we cut" of the manifest format. Nothing is read or written here: `service` carries the plan out. Rules that
exist are carried over as they are; new ones only fill what nobody claims; only force makes anything anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blobmap.chunk_keys import METADATA_NAMES
from blobmap.decisions import Before, BlobRange, Claim, Decision, Difference, Plan, Verdict
from blobmap.errors import UsageError
from blobmap.manifest import Manifest, read_hot_pattern
from blobmap.policy import Policy
from blobmap.provenance import provenance_entry, read_provenance
from blobmap.verdicts import Judge

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from blobmap.roles import Standing
    from blobmap.tally import Measured

__all__ = ["Before", "BlobRange", "Claim", "Decision", "Difference", "Plan", "Verdict", "plan_partition"]

_METADATA_PATTERNS: Final = tuple(f"**/{name}" for name in sorted(METADATA_NAMES))


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
    known = read_provenance(previous)
    carried = previous.blobs if previous is not None and not force else ()
    ordered = sorted(arrays, key=lambda array: array.layout.path)
    judge = Judge(thresholds, before, known, carried=carried, paths=[array.layout.path for array in ordered])
    if not force:
        judge.planned |= known.planned
    decisions = tuple(
        judge.decide(array, standings[path], None if force else before.own.get(path))
        for array in ordered
        for path in [array.layout.path]
    )
    hot = (*_METADATA_PATTERNS, *sorted({*judge.hot, *_kept_hot(previous, unread)}))
    blobs = (*carried, *judge.new)
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
        provenance={
            **({} if force else known.entries),
            **{array.layout.path: provenance_entry(array, judge.planned.get(array.layout.path)) for array in ordered},
        },
    )
    changed = previous is None or any(
        getattr(manifest, name) != getattr(previous, name) for name in ("blobs", "hot_always", "policy")
    )
    if policy is not None and previous is not None and not changed and dict(previous.policy or {}) != policy.to_json():
        judge.warnings.append(
            "the given policy changes nothing: cuts that exist keep theirs, only force makes them anew"
        )
    return Plan(
        manifest=manifest if changed or previous is None else previous,
        changed=changed,
        decisions=decisions,
        warnings=tuple(dict.fromkeys(judge.warnings)),
        difference=_difference(previous, manifest),
    )


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
