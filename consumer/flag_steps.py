"""What becomes of a flag: it waits, its store is partitioned, or it has nothing more to say.

Pure. Flags of one store come from several processes, again and again; these are the rules that keep them apart:

- Only the flag with the latest `last_seen` carries on. A message is acknowledged after what follows from it is
  confirmed, so that flag is in some queue for as long as its store has not been looked at since.
- A look covers what was flagged before it began, by `last_seen` as the flags have it: only clocks of `run` processes
  are compared with each other.
- An unclaimed event is not flagged where a flag of its store was confirmed less than `reflag_s` ago. So after each look
  there is one more, later than that. Where it finds nothing new, there is nothing that nobody knows of.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import AwareDatetime, BaseModel, ConfigDict

if TYPE_CHECKING:
    from datetime import datetime

Step: TypeAlias = Literal["drop", "settle", "again", "look"]
"""What comes next.

drop: the flag is done with, or another one stands for it. settle: it waits for quiet. again: it waits for what may not
have been flagged. look: the store is looked at now, and partitioned where there is anything to partition.
"""


@dataclass(frozen=True, slots=True)
class Waits:
    """What the configuration says.

    Attributes:
        settle_s: seconds without an unclaimed event after which a store is quiet.
        settle_max_s: seconds after which it is looked at whether it is quiet or not.
        reflag_s: seconds in which a confirmed flag stands for what comes after it.
    """

    settle_s: float
    settle_max_s: float
    reflag_s: float


class Looked(BaseModel):
    """The last look at a store.

    Attributes:
        covered: UTC; the latest `last_seen` that was known when it began.
        began: UTC; when it began.
        done: whether it was the one that found nothing new.
        hot_since: UTC; when a cut left an array on disk for its size alone, None where there is no such array to look
            at again.
        failed: why nothing was seen, None where it did not fail.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    covered: AwareDatetime
    began: AwareDatetime
    done: bool = False
    hot_since: AwareDatetime | None = None
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """What all flags of a store say together, the one that is looked at included.

    Attributes:
        first_seen: UTC; when the first unclaimed object was seen that no look has covered.
        last_seen: UTC; when the latest one was seen.
        looked: the last look, None where there was none.
    """

    first_seen: datetime
    last_seen: datetime
    looked: Looked | None = None

    def joined(self, first_seen: datetime, last_seen: datetime) -> Known:
        """What is known with one more flag.

        A process names the same `first_seen` in all its flags: where a look has covered that, what is new began with
        this flag.
        """
        if not self.is_news(last_seen):
            return self
        if self.looked is not None and first_seen <= self.looked.covered:
            first_seen = last_seen
        if self.is_news(self.last_seen):
            first_seen = min(first_seen, self.first_seen)
        return Known(first_seen, max(last_seen, self.last_seen), self.looked)

    def is_news(self, last_seen: datetime) -> bool:
        """Whether a flag tells of what no look has covered."""
        return self.looked is None or last_seen > self.looked.covered


def next_step(last_seen: datetime, known: Known, now: datetime, waits: Waits, *, for_size: bool = False) -> Step:
    """Decides what becomes of a flag.

    Args:
        last_seen: UTC; of the flag.
        known: what all flags of its store say, this one joined.
        now: UTC.
        waits: what the configuration says.
        for_size: whether it asks for a look at arrays that are on disk for their size alone.

    Returns:
        The step.
    """
    looked = known.looked
    if for_size and looked is not None and not known.is_news(last_seen):
        return "look" if _is_grown_up(looked, now, waits) else "drop"
    if last_seen < known.last_seen:
        return "drop"
    if looked is None or known.is_news(last_seen):
        quiet = now - known.last_seen >= timedelta(seconds=waits.settle_s)
        return "look" if quiet or is_overdue(known, now, waits) else "settle"
    if looked.done:
        return "drop"
    return "look" if now - looked.began >= timedelta(seconds=waits.reflag_s) else "again"


def is_overdue(known: Known, now: datetime, waits: Waits) -> bool:
    """Whether a store is cut though it may still be written to: rules are arithmetic, and hold for what is to come."""
    looked = known.looked
    began = known.first_seen if looked is None or known.is_news(known.last_seen) else looked.began
    return now - began >= timedelta(seconds=waits.settle_max_s)


def _is_grown_up(looked: Looked, now: datetime, waits: Waits) -> bool:
    """Whether arrays that were left on disk for their size have had their time.

    Their flag waits for `settle_max_s` by the broker's clock; half of that tells it from one that an earlier cut sent.
    """
    return looked.hot_since is not None and now - looked.hot_since >= timedelta(seconds=waits.settle_max_s / 2)


def remembered(look: Looked, before: Looked | None, *, is_cut: bool, is_news: bool, for_size: bool) -> Looked:
    """Puts together what is remembered of a look that is over, and of those before it.

    Args:
        look: when it began and what it covers; `failed` where it failed, `hot_since` where it has left an array on disk
            for its size.
        before: what was remembered until now.
        is_cut: whether it has written a manifest.
        is_news: whether the flag that led to it told of what no earlier look had covered.
        for_size: whether it was for arrays that are on disk for their size alone.

    Returns:
        The one to remember: that of another worker where it began later.
    """
    if before is not None and before.began > look.began:
        return before
    if before is not None and not is_cut:
        if for_size and not is_news:  # beside the chain of flags, which goes on or has ended
            return before.model_copy(update={"hot_since": before.hot_since if look.failed else None})
        look = look.model_copy(update={"hot_since": before.hot_since})
    return look.model_copy(update={"done": look.failed is None and not is_cut and not is_news})
