"""From an unclaimed key to the store that has to be partitioned, and when that store was last flagged.

Holds a bounded number of stores: one that was forgotten is flagged once more, which does no harm.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from consumer.records import FlagReason, Message, flag_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from consumer.events import ObjectEvent

_STORE_NAME = re.compile(r".*\.zarr[0-9]*", re.IGNORECASE)

_MOST_SUBJECTS = 10_000


@dataclass(slots=True)
class _Subject:
    """One store."""

    bucket: str
    prefix: str
    scope: str | None
    reason: FlagReason
    first_object: str
    first_seen: datetime
    last_seen: datetime
    confirmed_s: float | None = None


def store_root(key: str) -> str:
    """Guesses, from its key alone, which store an object belongs to.

    Args:
        key: key of an object that no scope covers.

    Returns:
        The outermost prefix that is named like a zarr store, else the first segment, else `""`: an object without a
        prefix belongs to the root of its bucket.
    """
    above = key.split("/")[:-1]
    for depth, segment in enumerate(above, start=1):
        if _STORE_NAME.fullmatch(segment):
            return "/".join(above[:depth])
    return above[0] if above else ""


def _is_store(prefix: str) -> bool:
    return _STORE_NAME.fullmatch(prefix.rpartition("/")[2]) is not None


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
        self._subjects: OrderedDict[str, _Subject] = OrderedDict()

    def note(self, event: ObjectEvent, scope: str | None) -> str | None:
        """Takes down an unclaimed event; see `ports.Flags`.

        A prefix that is named like a store is one, and what is partitioned later is that scope; of a first segment or
        a bucket's root only the worker that looks at the data can say what it is.
        """
        prefix = store_root(event.key) if scope is None else scope
        name = f"{event.bucket}/{prefix}"
        seen = self._now()
        subject = self._subjects.get(name)
        if subject is None:
            reason: FlagReason = "new-store" if scope is None else "unclaimed-array"
            known = prefix if scope is not None or _is_store(prefix) else None
            subject = _Subject(event.bucket, prefix, known, reason, event.key, seen, seen)
            self._subjects[name] = subject
            if len(self._subjects) > _MOST_SUBJECTS:
                self._subjects.popitem(last=False)
        subject.last_seen = seen
        self._subjects.move_to_end(name)
        if subject.confirmed_s is not None and self._clock() - subject.confirmed_s < self._reflag_s:
            return None
        return name

    def message(self, subject: str) -> Message:
        """The flag of a subject just noted."""
        noted = self._subjects[subject]
        return flag_message(
            self._queue,
            bucket=noted.bucket,
            scope=noted.scope,
            reason=noted.reason,
            prefix=noted.prefix,
            first_object=noted.first_object,
            first_seen=noted.first_seen,
            last_seen=noted.last_seen,
        )

    def confirmed(self, subject: str) -> None:
        """The flag is safe, and stands for what comes after it for a while."""
        noted = self._subjects.get(subject)
        if noted is not None:
            noted.confirmed_s = self._clock()
