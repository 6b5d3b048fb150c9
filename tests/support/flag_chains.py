"""A store, its writers, the processes that flag it and a worker that is killed, as a game: seconds are whole numbers.

What is decided is `flag_steps`, for real; the queues, the suppression of flags and the order in which a worker does
things are played.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from consumer.flag_steps import Known, Looked, Waits, is_overdue, next_step, remembered

START = datetime(2026, 11, 30, 12, tzinfo=UTC)
WAITS = Waits(settle_s=30, settle_max_s=400, reflag_s=10)
HASTY = Waits(settle_s=5, settle_max_s=60, reflag_s=20)  # quiet before the next flag may come
LEASE_S = 15
REDELIVERED_S = 1


def at(seconds: float) -> datetime:
    """A time of the game."""
    return START + timedelta(seconds=seconds)


@dataclass(frozen=True, order=True)
class Write:
    """Somebody writes an object of an array, and one of the processes hears of it."""

    second: int
    process: int
    array: str


@dataclass
class _Process:
    first_s: int | None = None
    confirmed_s: float = float("-inf")


@dataclass
class Game:
    """One store.

    Attributes:
        unclaimable: arrays that no rule can be written for.
        waits: what is configured.
        skew_s: how far the clock of the second process is ahead.
        kills: for each flag that is handled, in order, before which step the worker is killed; 9: not at all.
        looks: when the store was looked at.
        claimed: arrays that have a rule.
        newest: when each array was written to last.
        handled: how many flags were handled.
    """

    waits: Waits = WAITS
    skew_s: int = 0
    unclaimable: frozenset[str] = frozenset()
    kills: tuple[int, ...] = ()
    looks: list[int] = field(default_factory=list)
    claimed: set[str] = field(default_factory=set)
    newest: dict[str, int] = field(default_factory=dict)
    handled: int = 0
    _known: Known | None = None
    _queue: list[tuple[int, int, int, int]] = field(default_factory=list)
    _number: itertools.count[int] = field(default_factory=itertools.count)

    def play(self, writes: list[Write]) -> None:
        """Plays until nothing is left in any queue."""
        processes = [_Process(), _Process()]
        coming = sorted(writes)
        while coming or self._queue:
            assert self.handled < 2000, "flags go round for ever"
            if coming and (not self._queue or coming[0].second <= self._queue[0][0]):
                write = coming.pop(0)
                self._hear(write, processes[write.process])
            else:
                now, _, first_s, last_s = heapq.heappop(self._queue)
                self._handle(now, first_s, last_s)

    def _hear(self, write: Write, process: _Process) -> None:
        self.newest[write.array] = write.second
        if write.array in self.claimed:
            return
        seen_s = write.second + write.process * self.skew_s
        if process.first_s is None:
            process.first_s = seen_s
        if write.second - process.confirmed_s >= self.waits.reflag_s:
            process.confirmed_s = write.second
            self._send(write.second, process.first_s, seen_s)

    def _send(self, due_s: float, first_s: int, last_s: int) -> None:
        heapq.heappush(self._queue, (int(due_s), next(self._number), first_s, last_s))

    def _handle(self, now: int, first_s: int, last_s: int) -> None:
        kill = self.kills[self.handled] if self.handled < len(self.kills) else 9
        self.handled += 1
        try:
            self._follow(now, first_s, last_s, kill)
        except _KilledError:
            self._send(now + REDELIVERED_S, first_s, last_s)

    def _follow(self, now: int, first_s: int, last_s: int, kill: int) -> None:
        joined = self._known or Known(at(first_s), at(last_s))
        self._known = known = joined.joined(at(first_s), at(last_s))
        _step(kill, 0)
        step = next_step(at(last_s), known, at(now), self.waits)
        if step == "settle":
            self._send(now + self.waits.settle_s, first_s, last_s)
        elif step == "again":
            self._send(now + self.waits.reflag_s + LEASE_S, first_s, last_s)
        elif step == "look":
            self._look(now, first_s, last_s, known, kill)
        _step(kill, 4)

    def _look(self, now: int, first_s: int, last_s: int, known: Known, kill: int) -> None:
        self.looks.append(now)
        new = {array for array in self.newest if array not in self.claimed | self.unclaimable}
        written_s = max((self.newest[array] for array in new), default=None)
        if (
            written_s is not None
            and now - written_s < self.waits.settle_s
            and not is_overdue(known, at(now), self.waits)
        ):
            self._send(now + self.waits.settle_s, first_s, last_s)
            return
        self.claimed |= new
        _step(kill, 1)
        look = Looked(covered=known.last_seen, began=at(now))
        is_news = known.is_news(at(last_s))
        looked = remembered(look, known.looked, is_cut=bool(new), is_news=is_news, for_size=False)
        self._known = Known(known.first_seen, known.last_seen, looked)
        _step(kill, 2)
        if not looked.done:
            self._send(now + self.waits.reflag_s + LEASE_S, first_s, last_s)
        _step(kill, 3)


class _KilledError(Exception):
    pass


def _step(kill: int, here: int) -> None:
    if kill == here:
        raise _KilledError
