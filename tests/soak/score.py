"""The score: what a listing shows, under the manifests as they are, against what movers were told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import obstore

from tests.soak.site import DATA
from tests.support.brute_force import resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.soak.forwarder import Forwarder
    from tests.soak.mover import Claim, Mover
    from tests.soak.site import SoakSite
    from tests.soak.writers import Writers

_METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")


@dataclass
class Score:
    """How it ended.

    Attributes:
        objects: in the listing.
        archivable: of them that a blob has now.
        missing: those that no mover heard of with the etag and the blob that they have now.
        unclaimed: chunks of variables that no blob has, and that nobody pinned.
        forbidden: what movers were told of, and never should have been.
        unheard: objects whose last write the gateway never announced to us: then the run proves nothing.
        by_event: archivable ones of which an event told.
        by_backfill: archivable ones of which only a backfill told.
        repeated_alerts: subjects that were alerted under more than one key, or unresolved in the end.
        other_scopes: scopes with a manifest that are no stores: whatever the order of upload, a store has one.
    """

    objects: int = 0
    archivable: int = 0
    missing: list[Claim] = field(default_factory=list)
    unclaimed: list[str] = field(default_factory=list)
    forbidden: list[Claim] = field(default_factory=list)
    unheard: list[tuple[str, str]] = field(default_factory=list)
    by_event: int = 0
    by_backfill: int = 0
    repeated_alerts: list[str] = field(default_factory=list)
    other_scopes: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is missing and nothing is wrong."""
        return not any(self.wrong)

    @property
    def wrong(self) -> tuple[Sequence[object], ...]:
        """All that is missing or wrong, by kind."""
        told = (self.missing, self.unclaimed, self.forbidden, self.unheard)
        return (*told, self.repeated_alerts, self.other_scopes)


def keep_score(site: SoakSite, writers: Writers, mover: Mover, forwarder: Forwarder) -> Score:
    """Compares, when there is peace."""
    score = Score()
    manifests = site.manifests()
    for page in obstore.list(site.gateway.store(DATA)):
        for entry in page:
            key, etag = entry["path"], str(entry["e_tag"]).strip('"')
            score.objects += 1
            if (key, etag) not in forwarder.seen:
                score.unheard.append((key, etag))
            answer = resolve(manifests, key)
            if answer.kind == "blob":
                _count(score, mover, (key, etag, str(answer.scope), str(answer.blob_id)))
            elif answer.kind == "unmanaged" and _is_variable(writers, key):
                score.unclaimed.append(key)
    score.forbidden = [claim for claim in mover.told if not _is_variable(writers, claim[0])]
    score.repeated_alerts = _repeated(mover)
    score.other_scopes = [manifest.scope for manifest in manifests if manifest.scope not in writers.stores]
    return score


def _count(score: Score, mover: Mover, claim: Claim) -> None:
    score.archivable += 1
    sources = mover.told.get(claim)
    if sources is None:
        score.missing.append(claim)
    elif "event" in sources:
        score.by_event += 1
    else:
        score.by_backfill += 1


def _is_variable(writers: Writers, key: str) -> bool:
    return key.rpartition("/")[2] not in _METADATA and any(
        key.startswith(f"{scope}/") and store.archivable(key) for scope, store in writers.stores.items()
    )


def _repeated(mover: Mover) -> list[str]:
    keys: dict[tuple[str, str, str], set[str]] = {}
    for key, alerts in mover.alerts.items():
        for alert in alerts:
            keys.setdefault((alert["kind"], alert["bucket"], alert["scope"]), set()).add(key)
    several = [f"{subject}: {sorted(found)}" for subject, found in keys.items() if len(found) > 1]
    return several + [f"{key}: not resolved" for key, alerts in mover.alerts.items() if not alerts[-1]["resolved"]]
