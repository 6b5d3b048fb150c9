"""Which deliveries are done: up to which tag everything may be acknowledged at once.

Outputs are confirmed in any order, while one acknowledgement covers every delivery up to its tag. So the ledger keeps
the deliveries in order and gives out the highest tag below which all is done. It holds what is unacknowledged, no more.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Entry:
    """One delivery.

    Attributes:
        tag: its number; greater than that of every delivery before it.
        open_outputs: how many outputs it has caused that are not confirmed yet.
    """

    tag: int
    open_outputs: int = 0


class Ledger:
    """The deliveries that are not acknowledged yet, in order."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def enter(self, tag: int) -> Entry:
        """Takes down a delivery; each one has a greater tag than the one before it."""
        entry = Entry(tag)
        self._entries.append(entry)
        return entry

    def settled(self) -> int | None:
        """Strikes out what is done at the head, and gives the highest tag of it; None where the head is not done."""
        tag = None
        while self._entries and not self._entries[0].open_outputs:
            tag = self._entries.popleft().tag
        return tag
