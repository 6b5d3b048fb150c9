"""Everything that a broker would keep, in one SQLite file, for a daemon without one.

Events, messages that wait for somebody, and the journal: source, sink, journal and inbox in one process. What is
acknowledged is deleted, the journal forgets, and SQLite uses the room again, so that the file does not grow for ever.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from consumer.event_file import EVENT_TABLES, EventFile
from consumer.records import Message
from consumer.sqlite_file import Format

if TYPE_CHECKING:
    from collections.abc import Sequence

_TABLES = """
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, key TEXT, type TEXT,
                       body BLOB NOT NULL, headers TEXT NOT NULL);
CREATE INDEX messages_by_queue ON messages (queue, key, id);
CREATE TABLE journal (id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, body BLOB NOT NULL);
CREATE INDEX journal_by_time ON journal (at);
"""

EMBEDDED_FORMAT = Format("a file of embedded mode", 2, EVENT_TABLES + _TABLES)

# As long as a stream at a broker would keep it; and for a small site, so that the disk is left to events.
_JOURNAL_AGE_S = 7 * 86_400.0
_JOURNAL_BYTES = 2_000_000_000

_TOO_OLD = "DELETE FROM journal WHERE at < ? RETURNING length(body)"
_OLDEST = "DELETE FROM journal WHERE id = (SELECT min(id) FROM journal) RETURNING length(body)"


class EmbeddedQueue(EventFile):
    """The file. Use `open`."""

    FORMAT = EMBEDDED_FORMAT

    _journal_bytes: int | None = None  # counted with the first message

    async def publish(self, message: Message) -> None:
        """Keeps a message in its queue until somebody takes it from there.

        Raises:
            UnavailableError: the file cannot take it now.
        """
        await self._write(self._insert, message)

    async def messages(self, queue: str) -> list[Message]:
        """What lies in a queue, oldest first; it stays there."""
        return await self._run(self._messages, queue)

    async def append(self, message: Message) -> None:
        """Writes a message into the journal, and forgets what is too old, or too much.

        Raises:
            UnavailableError: the file cannot take it now.
        """
        await self._write(self._append_to_journal, message.body)

    async def journal(self) -> Sequence[bytes]:
        """The bodies in the journal, oldest first."""
        return await self._run(
            lambda: [body for (body,) in self._database.execute("SELECT body FROM journal ORDER BY id")]
        )

    # --- all that runs in the thread

    def _insert(self, message: Message) -> None:
        row = (message.queue, message.key, message.schema, message.body, json.dumps(dict(message.headers)))
        with self._database:
            if message.key is not None:  # it says all that earlier ones with this key said
                self._database.execute("DELETE FROM messages WHERE queue = ? AND key = ?", row[:2])
            self._database.execute("INSERT INTO messages (queue, key, type, body, headers) VALUES (?, ?, ?, ?, ?)", row)

    def _messages(self, queue: str) -> list[Message]:
        rows = self._database.execute(
            "SELECT queue, type, body, headers, key FROM messages WHERE queue = ? ORDER BY id", (queue,)
        )
        return [Message(name, kind, body, json.loads(headers), key) for name, kind, body, headers, key in rows]

    def _append_to_journal(self, body: bytes) -> None:
        now = time.time()
        with self._database:
            if self._journal_bytes is None:
                ((self._journal_bytes,),) = self._database.execute("SELECT coalesce(sum(length(body)), 0) FROM journal")
            self._database.execute("INSERT INTO journal (at, body) VALUES (?, ?)", (now, body))
            total = self._journal_bytes + len(body) - self._forget(_TOO_OLD, now - _JOURNAL_AGE_S)
            while total > _JOURNAL_BYTES:
                total -= self._forget(_OLDEST)
        self._journal_bytes = total

    def _forget(self, statement: str, *values: float) -> int:
        """Deletes from the journal; the bytes that it had there."""
        return sum(size for (size,) in self._database.execute(statement, values))
