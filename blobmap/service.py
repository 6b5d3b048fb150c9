"""Partition one store: survey it, plan the next manifest, write it on condition, and say what was decided."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from blobmap.claims import is_neighbour, other_claims, own_claims
from blobmap.errors import ConflictError, ListingError, MissingError, UsageError
from blobmap.partition import Before, Decision, Difference, Plan, plan_partition
from blobmap.roles import stand
from blobmap.state import ScopeState, Unclaimable, change_state, read_state
from blobmap.storage import as_storage
from blobmap.survey import Progress, Survey, survey_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from obstore.store import ObjectStore

    from blobmap.manifest import Manifest
    from blobmap.manifests import Held, ManifestStore
    from blobmap.policy import Policy
    from blobmap.storage import Storage

_ATTEMPTS: Final = 8
_VERSION: Final = version("blobmap")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a partition decided.

    Attributes:
        manifest: as it is now, or would be after a dry run.
        previous: as it was before, None if the scope had none.
        written: whether anything was written.
        decisions: one row for each array, by path.
        warnings: one line each.
        problems: one line for each metadata document that could not be understood; the rest was decided without it.
        difference: against the previous manifest.
        newest: UTC; when the last object was written of the arrays that get a rule now, None where there is none.
    """

    manifest: Manifest
    previous: Manifest | None
    written: bool
    decisions: tuple[Decision, ...]
    warnings: tuple[str, ...]
    problems: tuple[str, ...]
    difference: Difference
    newest: datetime | None = None


def partition_store(
    data: ObjectStore | Storage,
    manifests: ManifestStore,
    scope: str,
    *,
    policy: Policy | None = None,
    force: bool = False,
    dry_run: bool = False,
    confirm: Callable[[Outcome], bool] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Outcome:
    """Cut one store into blobs, and write that down.

    A first call makes the manifest. Later calls carry its rules over and only add rules for arrays that nobody claims;
    where nothing changes, nothing is written.

    Args:
        data: the bucket or directory that holds the store. It is only read.
        manifests: where the manifest is kept.
        scope: key of the store, relative to `data`; empty for a store at its root.
        policy: thresholds for what is cut now. None: those that the manifest records, else the defaults.
        force: make every rule anew. This can move objects between blobs; `Outcome.difference` says which.
        dry_run: decide, and write nothing.
        confirm: told what would be written, before anything is; if it says no, nothing is.
        on_progress: told how far the listing is, from any thread but never from two at once.

    Returns:
        What was decided and what changed.

    Raises:
        UsageError: the scope is no key, or the recorded policy cannot be used and none was given.
        MissingError: there is no zarr store at the scope.
        ListingError: the store, or the manifests around it, could not be listed whole; nothing was written.
        ManifestError: the manifest, or that of a scope around or inside this one, cannot be read; nothing was written.
        ConflictError: others kept changing the manifest meanwhile, or changed it under `force`; nothing was written.
        UnavailableError: a store cannot be reached.
        RefusedError: a store does not serve us.
    """
    scope = _checked(scope)
    survey = survey_store(as_storage(data), scope, on_progress=on_progress)
    others = _neighbours(manifests, scope)
    attempt = 0
    while True:
        attempt += 1
        held = _read(manifests, scope)
        epoch = read_state(manifests.storage, scope).highest_epoch
        plan = _plan(survey, held, epoch, others, policy=policy, force=force)
        outcome = _outcome(survey, plan, held, written=plan.changed and not dry_run)
        if dry_run:
            return outcome
        if confirm is not None and outcome.written and not confirm(outcome):
            return replace(outcome, written=False)
        _remember(manifests.storage, survey, outcome)
        if not outcome.written:
            return outcome
        try:
            manifests.write(outcome.manifest, etag=held.etag if held else None)
        except ConflictError as error:
            if force:
                raise ConflictError(
                    f"{error}: the difference that was shown is no longer the one that would be written, and nothing "
                    f"was; look at scope {scope!r} again and repeat the forced cut if it is still wanted"
                ) from error
            if attempt == _ATTEMPTS:
                raise ConflictError(f"{error}, {_ATTEMPTS} times: nothing was written for scope {scope!r}") from error
        else:
            return outcome


def _checked(scope: str) -> str:
    segments = scope.removesuffix("/").split("/") if scope else []
    if any(segment in ("", ".", "..") for segment in segments):
        raise UsageError(f"scope {scope!r} is no key: give segments with '/' between them, none empty, '.' or '..'")
    return "/".join(segments)


def _neighbours(manifests: ManifestStore, scope: str) -> list[Manifest]:
    """The manifests of the scopes around and inside this one; all of them, since one unseen could claim anything."""
    found = [manifests.read(other).manifest for other in manifests.scopes() if is_neighbour(scope, other)]
    gaps = manifests.storage.gaps(scope)
    if gaps:
        raise ListingError(
            f"{manifests.storage.name}: manifests around or inside {scope!r} cannot be listed, so nothing is decided "
            f"about it; unreadable: {', '.join(map(repr, sorted(gaps)))}"
        )
    return found


def _read(manifests: ManifestStore, scope: str) -> Held | None:
    try:
        return manifests.read(scope)
    except MissingError:
        return None


def _plan(
    survey: Survey, held: Held | None, epoch: int, others: list[Manifest], *, policy: Policy | None, force: bool
) -> Plan:
    standings, said = stand([array.layout for array in survey.arrays], survey.groups)
    before = Before(
        manifest=held.manifest if held else None,
        epoch=epoch,
        own=own_claims(held.manifest, survey.arrays) if held else {},
        others=other_claims(survey.scope, others, survey.arrays),
    )
    plan = plan_partition(
        survey.scope, survey.arrays, standings, before, policy=policy, force=force, unread=survey.unread
    )
    return replace(plan, warnings=(*survey.warnings, *said, *plan.warnings))


def _remember(root: Storage, survey: Survey, outcome: Outcome) -> None:
    """Record the epoch before it is written, so that it is never given twice, and what got no rule.

    Of several first cuts at once each plans above what the others have recorded, so the one that is written can have
    epoch 2 or 3, and the next change can leave one out. Nothing reads more into epochs than which is the higher one;
    to give back an epoch that came to nothing could give it twice.
    """
    unclaimable = {
        row.path: Unclaimable(row.reason, survey.etags.get(row.path), _VERSION)
        for row in outcome.decisions
        if row.verdict == "unclaimed"
    }

    def change(state: ScopeState) -> ScopeState:
        epoch = max(state.highest_epoch, outcome.manifest.epoch) if outcome.written else state.highest_epoch
        return replace(state, highest_epoch=epoch, unclaimable=unclaimable)

    change_state(root, survey.scope, change)


def _outcome(survey: Survey, plan: Plan, held: Held | None, *, written: bool) -> Outcome:
    manifest = plan.manifest
    if plan.changed:
        manifest = replace(
            manifest,
            generated_at=datetime.now(UTC).isoformat(timespec="seconds"),
            generated_by=f"blobmap {_VERSION}",
        )
    cut = {row.path for row in plan.decisions if row.verdict == "cut"}
    written_at = [array.newest for array in survey.arrays if array.newest is not None and array.layout.path in cut]
    return Outcome(
        manifest=manifest,
        previous=held.manifest if held else None,
        written=written,
        decisions=plan.decisions,
        warnings=plan.warnings,
        problems=survey.problems,
        difference=plan.difference,
        newest=max(written_at, default=None),
    )
