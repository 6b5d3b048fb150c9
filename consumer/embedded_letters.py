"""The dead letters in the file of embedded mode, beside a daemon that has it open or not."""

from __future__ import annotations

import json
import sqlite3
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from blobmap.errors import UnavailableError, UsageError
from consumer.embedded import EMBEDDED_FORMAT, put_message
from consumer.letters import Letter, read_letter
from consumer.sqlite_file import open_file

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from consumer.records import Message


class EmbeddedLetters:
    """The queue of the dead letters. Use `open_embedded_letters`."""

    def __init__(self, database: sqlite3.Connection, queue: str) -> None:
        self.database = database
        self._queue = queue

    async def count(self) -> int:
        """How many lie there now."""
        with _translated():
            ((count,),) = self.database.execute("SELECT count(*) FROM messages WHERE queue = ?", (self._queue,))
        return int(count)

    async def held(self, most: int) -> AsyncIterator[_EmbeddedLetter]:
        """Gives the letters, oldest first, at most so many."""
        last = 0
        for _ in range(most):
            with _translated():
                row = self.database.execute(
                    "SELECT id, headers, body FROM messages WHERE queue = ? AND id > ? ORDER BY id LIMIT 1",
                    (self._queue, last),
                ).fetchone()
            if row is None:
                return
            last = row[0]
            yield _EmbeddedLetter(self.database, last, read_letter(json.loads(row[1]), row[2]))

    async def tell(self, message: Message) -> None:
        """See `letters.DeadLetters`."""
        with _translated(), self.database:
            put_message(self.database, message, datetime.now(UTC))


class _EmbeddedLetter:
    """One letter. Another command may take it meanwhile; then there is nothing left to do."""

    def __init__(self, database: sqlite3.Connection, number: int, letter: Letter) -> None:
        self._database = database
        self._number = number
        self.letter = letter

    async def requeue(self) -> None:
        """See `letters.HeldLetter`: one transaction, after which it is an event and no letter."""
        seen = self.letter.first_seen or datetime.now(UTC).isoformat()
        with _translated(), self._database:
            if self._delete():
                self._database.execute("INSERT INTO events (body, seen) VALUES (?, ?)", (self.letter.body, seen))

    async def drop(self) -> None:
        """See `letters.HeldLetter`."""
        with _translated(), self._database:
            self._delete()

    def _delete(self) -> bool:
        return self._database.execute("DELETE FROM messages WHERE id = ?", (self._number,)).rowcount > 0


@contextmanager
def open_embedded_letters(path: Path, queue: str) -> Iterator[EmbeddedLetters]:
    """Opens the file as long as the context lasts.

    Args:
        path: the file.
        queue: queue of the dead letters.

    Raises:
        UsageError: there is no such file, or it is of another kind.
        RefusedError: it cannot be written.
    """
    if not path.is_file():
        raise UsageError(f"embedded.path {path}: there is no such file; `run` makes it")
    opened = open_file(path, EMBEDDED_FORMAT, name="embedded.path", hold=False)
    try:
        yield EmbeddedLetters(opened.database, queue)
    finally:
        opened.close()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise UnavailableError(f"the embedded file cannot be used now: {error}") from error
