"""A Storage that does everything for real, and hands some of its answers over only when a test lets it."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

from obstore.store import MemoryStore

from blobmap.storage import Storage

if TYPE_CHECKING:
    from blobmap.objects import Body


class GatedStorage(Storage):
    """Objects in memory. An answer is that of the moment of asking, however long it is held.

    Attributes:
        asked: every key that was read, there or not.
    """

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.asked: list[str] = []
        self._held: dict[str, Event] = {}

    def hold(self, key: str) -> Event:
        """Holds answers about a key until the event is set."""
        return self._held.setdefault(key, Event())

    def get(self, key: str, *, limit: int | None = None) -> Body:
        try:
            return super().get(key, limit=limit)
        finally:
            self.asked.append(key)
            gate = self._held.get(key)
            if gate is not None:
                assert gate.wait(30)
