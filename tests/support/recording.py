"""A Storage that does everything for real and remembers what it was asked for; a fault can be put in its way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blobmap.errors import UnavailableError
from blobmap.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from obstore.store import ObjectStore

    from blobmap.objects import Body, Entry, Level


class RecordingStorage(Storage):
    """Remembers calls; the listing of `fail_at` breaks after its first page, as if the server went away."""

    def __init__(self, store: ObjectStore, *, fail_at: str | None = None) -> None:
        super().__init__(store)
        self.got: list[str] = []
        self.levels: list[str] = []
        self.listed: list[str] = []
        self._fail_at = fail_at

    def pages(self, prefix: str = "", *, after: str | None = None) -> Iterator[Sequence[Entry]]:
        return self._recorded(prefix, super().pages(prefix, after=after))

    def _recorded(self, prefix: str, pages: Iterator[Sequence[Entry]]) -> Iterator[Sequence[Entry]]:
        self.listed.append(prefix)
        for page in pages:
            yield page
            if prefix == self._fail_at:
                raise UnavailableError(f"{prefix} went away")

    def level(self, prefix: str = "") -> Level:
        self.levels.append(prefix)
        return super().level(prefix)

    def get(self, key: str, *, limit: int | None = None) -> Body:
        body = super().get(key, limit=limit)
        self.got.append(key)
        return body
