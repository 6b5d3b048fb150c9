"""One look at a store that was flagged: what of it nobody claims, and a partition where that can change.

All of it blocks: it is meant for a thread of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import TYPE_CHECKING

from blobmap import partition_store
from blobmap.errors import MissingError, UnavailableError
from blobmap.state import read_state
from blobmap.unclaimed import find_unclaimed

if TYPE_CHECKING:
    from blobmap import ManifestStore, Policy, Trie
    from blobmap.service import Outcome
    from blobmap.storage import Storage


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look came to.

    Attributes:
        outcome: of the partition, None where there was nothing to try.
        restless: whether nothing was written because somebody still writes to what would be cut.
        unclaimed: paths of arrays that still resolve to nothing.
    """

    outcome: Outcome | None = None
    restless: bool = False
    unclaimed: tuple[str, ...] = ()

    @property
    def epoch(self) -> int | None:
        """Epoch of the manifest that was written, None where none was."""
        return self.outcome.manifest.epoch if self.outcome is not None and self.outcome.written else None

    @property
    def is_hot_for_size(self) -> bool:
        """Whether an array is on disk for its size alone."""
        rows = () if self.outcome is None else self.outcome.decisions
        return any(row.verdict == "hot" and row.role in ("data", "auxiliary coordinate") for row in rows)


class Look:
    """A look that can be given up from another thread.

    Args:
        data: the bucket.
        manifests: its manifest root.
        trie: the manifests in force.
        policy: thresholds for a store that has no manifest yet.
    """

    def __init__(self, data: Storage, manifests: ManifestStore, trie: Trie, policy: Policy) -> None:
        self._data = data
        self._manifests = manifests
        self._trie = trie
        self._policy = policy
        self._given_up = Event()

    def give_up(self) -> None:
        """Ends it soon, and leaves everything as it is."""
        self._given_up.set()

    def at(self, scope: str, *, quiet_s: float | None, whole: bool) -> Seen:
        """Looks at a store, and writes a manifest where that claims more than before.

        Args:
            scope: key of the store.
            quiet_s: seconds for which nothing may have been written to what is cut; None: it may.
            whole: whether arrays that are hot are looked at too, which takes a listing.

        Returns:
            What was seen and done.

        Raises:
            MissingError: there is no store.
            BlobmapError: it could not be looked at, or others were faster; nothing was written.
        """
        if not whole:
            unclaimed = find_unclaimed(self._data, self._trie, scope)
            if not unclaimed.worth_trying(read_state(self._manifests.storage, scope).unclaimable):
                return Seen(unclaimed=tuple(sorted(unclaimed.etags)))
        restless = False

        def confirm(outcome: Outcome) -> bool:
            nonlocal restless
            self._check()
            restless = quiet_s is not None and not _is_quiet(outcome.newest, quiet_s)
            return not restless

        outcome = partition_store(
            self._data,
            self._manifests,
            scope,
            policy=None if self._has_manifest(scope) else self._policy,
            on_progress=lambda _: self._check(),
            confirm=confirm,
        )
        left = tuple(row.path for row in outcome.decisions if row.verdict == "unclaimed")
        return Seen(outcome, restless, left)

    def _has_manifest(self, scope: str) -> bool:
        try:
            self._manifests.read(scope)
        except MissingError:
            return False
        return True

    def _check(self) -> None:
        if self._given_up.is_set():
            raise UnavailableError("given up")


def _is_quiet(newest: datetime | None, quiet_s: float) -> bool:
    return newest is None or datetime.now(UTC) - newest >= timedelta(seconds=quiet_s)
