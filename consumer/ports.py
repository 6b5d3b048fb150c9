"""The ports of the pipeline: where deliveries come from, where messages go, who remembers flags, how it is going.

Whoever stands behind one of them keeps what its contract says here; one suite of tests runs against all of them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from blobmap.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from blobmap.resolve import Trie
    from consumer.records import FlagSubject, Message


class LostError(UnavailableError):
    """The session that delivered is over: what is not acknowledged will be delivered again by another one."""


class Delivery(NamedTuple):  # made for every message, at a fraction of what a frozen data class costs
    """One message from a source.

    Attributes:
        tag: its number within the session; each one is greater than the one before it.
        body: the bytes.
        exchange: exchange that it was published to, empty where there is none.
        routing_key: routing key that it was published with.
        deliveries: how often it was delivered, this time included.
        first_seen: UTC; when it was published, as far as that is known.
    """

    tag: int
    body: bytes
    exchange: str = ""
    routing_key: str = ""
    deliveries: int = 1
    first_seen: datetime | None = None


class Source(Protocol):
    """Where deliveries come from: at least once, until they are acknowledged."""

    @property
    def prefetch(self) -> int:
        """How many deliveries it gives at most before one is acknowledged."""

    async def take(self) -> Sequence[Delivery]:
        """Waits for deliveries and gives those that are there, at least one; none once it was stopped.

        Raises:
            LostError: the session is over.
        """

    async def acknowledge(self, tag: int) -> None:
        """Lets go of every delivery up to this tag, for good.

        Raises:
            LostError: the session is over, and they will come again.
        """

    async def stop(self) -> None:
        """Takes no more; what was given can still be acknowledged, all else is left to others."""


class Sink(Protocol):
    """Where messages go."""

    async def publish(self, message: Message) -> None:
        """Returns when the message is safe, whatever happens to us then.

        Raises:
            LostError: the session is over; the message may have been published.
            UnavailableError: it was not taken, trying again can help; it may have been published nevertheless.
        """


class Journal(Protocol):
    """What movers were told, and what was kept from them because of who wrote it; forgotten after some time."""

    async def append(self, message: Message) -> None:
        """Returns when the message is safe; messages are kept in the order in which they became so.

        Args:
            message: as `journal.journal_message` writes it.

        Raises:
            LostError: the session is over; the message may have been written.
            UnavailableError: it was not taken, trying again can help; it may have been written nevertheless.
        """


class Manifests(Protocol):
    """The manifests in force."""

    @property
    def tries(self) -> Mapping[str, Trie]:
        """For each bucket what decides about its keys."""

    @property
    def is_fresh(self) -> bool:
        """Whether they may decide now."""

    async def fresh(self) -> None:
        """Returns as soon as they may decide."""

    def noticed(self, bucket: str, key: str) -> None:
        """Takes down that something was written where, seen from the gateway, manifests lie."""


class Announcer(Protocol):
    """Tells other processes that a manifest has changed, as well as it can: they would find out by themselves."""

    async def announce(self, bucket: str, scope: str, epoch: int) -> None:
        """Says which epoch a scope has now; never raises where nobody can be told."""


class Flags(Protocol):
    """Remembers which stores were flagged, and when."""

    def note(self, subject: FlagSubject, key: str) -> bool:
        """Takes down an unclaimed object.

        Returns:
            Whether a flag of its subject must be confirmed before the object is done; no where one was, lately.
        """

    def stands(self, subject: FlagSubject) -> bool:
        """Whether a flag was confirmed lately; nothing is taken down."""

    def message(self, subject: FlagSubject) -> Message:
        """The flag of a subject just noted."""

    def confirmed(self, subject: FlagSubject) -> None:
        """The flag is safe."""


@dataclass(slots=True)
class Status:
    """What the daemon can say of itself; outlives sessions.

    Attributes:
        consuming: whether deliveries are being taken.
        blocked: why the broker takes nothing from anybody, None where it does.
        troubles: queue to reason, for each queue that does not take messages now.
        alerts: what is alerted and not over, by the alert's key; in one line each.
        set_aside: kind of fault to number of messages that were set aside for it.
        told_aside_s: kind of fault to when that was alerted last, as the clock tells that only grows.
        counts: outcomes and messages, by name.
        longest_stall_s: for how long the event loop was kept from running at most.
        relist: bucket to number of changes that events could not name, so that only a listing can tell.
        unmanaged: bucket and prefix of data that is no zarr store, to number of objects that came there.
        guessed: bucket to reason, for each bucket that cannot be looked at, so that names have to tell its stores.
    """

    consuming: bool = False
    blocked: str | None = None
    troubles: dict[str, str] = field(default_factory=dict)
    alerts: dict[str, str] = field(default_factory=dict)
    set_aside: Counter[str] = field(default_factory=Counter)
    told_aside_s: dict[str, float] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    longest_stall_s: float = 0.0
    relist: Counter[str] = field(default_factory=Counter)
    unmanaged: Counter[str] = field(default_factory=Counter)
    guessed: dict[str, str] = field(default_factory=dict)
