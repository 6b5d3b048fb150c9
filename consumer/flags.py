"""Which stores were flagged, and when.

Holds a bounded number of stores: one that was forgotten is flagged once more, which does no harm.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from blobmap.chunk_keys import METADATA_NAMES
from consumer.records import flag_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from consumer.records import FlagSubject, Message

_MOST_SUBJECTS = 10_000


@dataclass(slots=True)
class _Noted:
    """What is known of one subject.

    Attributes:
        first_object: key of the first object that no confirmed flag stood for; of a document only as long as there is
            no other.
        first_seen: UTC.
        last_seen: UTC.
        confirmed_s: when its flag was confirmed, None where it was not.
    """

    first_object: str
    first_seen: datetime
    last_seen: datetime
    confirmed_s: float | None = None


class FlagBook:
    """Which stores were flagged, and when.

    Args:
        queue: queue of the flags.
        reflag_s: seconds in which a flag that was confirmed stands for what comes after it.
        now: the time of day, UTC.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        queue: str,
        *,
        reflag_s: float,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue = queue
        self._reflag_s = reflag_s
        self._now = now
        self._clock = clock
        self._noted: OrderedDict[FlagSubject, _Noted] = OrderedDict()

    def note(self, subject: FlagSubject, key: str) -> bool:
        """Takes down an unclaimed object; see `ports.Flags`."""
        seen = self._now()
        noted = self._noted.get(subject)
        if noted is None:
            self._noted[subject] = _Noted(key, seen, seen)
            if len(self._noted) > _MOST_SUBJECTS:
                self._noted.popitem(last=False)
            return True
        noted.last_seen = seen
        self._noted.move_to_end(subject)
        if _is_document(noted.first_object) and not _is_document(key):
            noted.first_object = key
        if self._stands(noted):
            return False
        if noted.confirmed_s is not None:
            if subject.scope is None or not _is_document(key):
                noted.first_object = key  # the one before may have become part of a store, or claimed, by now
            noted.confirmed_s = None
        return True

    def stands(self, subject: FlagSubject) -> bool:
        """Whether its flag was confirmed lately; see `ports.Flags`."""
        noted = self._noted.get(subject)
        return noted is not None and self._stands(noted)

    def message(self, subject: FlagSubject) -> Message:
        """The flag of a subject just noted."""
        noted = self._noted[subject]
        return flag_message(
            self._queue,
            bucket=subject.bucket,
            scope=subject.scope,
            reason=subject.reason,
            prefix=subject.prefix,
            first_object=noted.first_object,
            first_seen=noted.first_seen,
            last_seen=noted.last_seen,
        )

    def confirmed(self, subject: FlagSubject) -> None:
        """The flag is safe, and stands for what comes after it for a while."""
        noted = self._noted.get(subject)
        if noted is not None:
            noted.confirmed_s = self._clock()

    def _stands(self, noted: _Noted) -> bool:
        return noted.confirmed_s is not None and self._clock() - noted.confirmed_s < self._reflag_s


def _is_document(key: str) -> bool:
    return key.rpartition("/")[2] in METADATA_NAMES
