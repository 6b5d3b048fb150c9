"""Everything that a broker would keep, in one SQLite file, for a daemon without one.

Events, messages that wait for somebody, and the journal: source, sink, journal and inbox in one process. What is
acknowledged is deleted, the journal forgets, and SQLite uses the room again, so that the file does not grow for ever.
A message that was published to a queue where others wait comes out of the queue that they wait for, in time.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from consumer.embedded_source import EmbeddedSource
from consumer.event_file import EVENT_TABLES, EventFile
from consumer.ports import Delivery
from consumer.records import Message
from consumer.sqlite_file import Format

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Sequence

    from consumer.topology import Topology

# `due`: seconds since 1970, 0 for what need not wait.
_TABLES = """
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, key TEXT, type TEXT,
                       body BLOB NOT NULL, headers TEXT NOT NULL, seen TEXT NOT NULL, due REAL NOT NULL,
                       deliveries INTEGER NOT NULL DEFAULT 0);
CREATE INDEX messages_by_queue ON messages (queue, key, id);
CREATE TABLE journal (id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, body BLOB NOT NULL);
CREATE INDEX journal_by_time ON journal (at);
"""

EMBEDDED_FORMAT = Format("a file of embedded mode", 3, EVENT_TABLES + _TABLES)

# As long as a stream at a broker would keep it; and for a small site, so that the disk is left to events.
_JOURNAL_AGE_S = 7 * 86_400.0
_JOURNAL_BYTES = 2_000_000_000

_TOO_OLD = "DELETE FROM journal WHERE at < ? RETURNING length(body)"
_OLDEST = "DELETE FROM journal WHERE id = (SELECT min(id) FROM journal) RETURNING length(body)"

_INSERT = "INSERT INTO messages (queue, key, type, body, headers, seen, due) VALUES (?, ?, ?, ?, ?, ?, ?)"

# Lists are given as JSON, so that a statement is the same for any number of values.
_DUE = """
SELECT id, body, deliveries, seen FROM messages
WHERE queue IN (SELECT value FROM json_each(?)) AND due <= ? AND id NOT IN (SELECT value FROM json_each(?))
ORDER BY id LIMIT ?
"""
_NEXT = "SELECT min(due) FROM messages WHERE queue IN (SELECT value FROM json_each(?)) AND due > ?"
_GIVEN = "UPDATE messages SET deliveries = deliveries + 1 WHERE id IN (SELECT value FROM json_each(?))"
_FORGET = "DELETE FROM messages WHERE id IN (SELECT value FROM json_each(?))"


class EmbeddedQueue(EventFile):
    """The file. Use `open`."""

    FORMAT = EMBEDDED_FORMAT

    _journal_bytes: int | None = None  # counted with the first message

    def __init__(self, *arguments: Any, **options: Any) -> None:  # as those of `EventFile`
        super().__init__(*arguments, **options)
        self._waits: dict[str, tuple[str, float]] = {}
        self._sources: WeakSet[EmbeddedSource] = WeakSet()

    def lay_out(self, topology: Topology) -> None:
        """Takes down which queues of a topology are only waited in, for how long, and what comes out where."""
        for queue in topology.queues:
            wait_ms, target = (queue.arguments.get(name) for name in ("x-message-ttl", "x-dead-letter-routing-key"))
            if isinstance(wait_ms, int) and isinstance(target, str):
                self._waits[queue.name] = target, wait_ms / 1000

    def source(self, queue: str, *, prefetch: int = 1) -> EmbeddedSource:
        """What was published to a queue, and to those in which messages wait for it. One source for each queue.

        Args:
            queue: its name.
            prefetch: how many messages are given out at most before one is acknowledged.
        """
        names = (queue, *(name for name, (target, _) in self._waits.items() if target == queue))
        source = EmbeddedSource(_Shelf(self, names), prefetch=prefetch)
        self._sources.add(source)
        return source

    async def publish(self, message: Message) -> None:
        """Keeps a message in its queue until somebody takes it from there.

        Raises:
            UnavailableError: the file cannot take it now.
        """
        await self._write(self._insert, message)
        for source in self._sources:
            source.wake()

    async def due(
        self, queues: Sequence[str], limit: int, given: Collection[int], stopped: asyncio.Event
    ) -> tuple[list[Delivery], float]:
        """See `embedded_source.Shelf`."""
        return await self._patiently(stopped, self._take_due, queues, limit, given) or ([], 0.0)

    async def forget(self, numbers: Collection[int]) -> None:
        """Deletes messages; as long as the file cannot be written, it tries again."""
        await self._patiently(asyncio.Event(), self._forget_messages, numbers)

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
        now = datetime.now(UTC)
        _, wait_s = self._waits.get(message.queue, (None, None))
        due = 0.0 if wait_s is None else now.timestamp() + wait_s
        with self._database:
            put_message(self._database, message, now, due=due)

    def _take_due(self, queues: Sequence[str], limit: int, given: Collection[int]) -> tuple[list[Delivery], float]:
        names, now = json.dumps(queues), time.time()
        rows = self._database.execute(_DUE, (names, now, json.dumps(given), limit)).fetchall()
        if rows:
            with self._database:
                self._database.execute(_GIVEN, (json.dumps([number for number, *_ in rows]),))
        ((next_due,),) = self._database.execute(_NEXT, (names, now))
        deliveries = [
            Delivery(number, body, deliveries=count + 1, first_seen=datetime.fromisoformat(seen))
            for number, body, count, seen in rows
        ]
        return deliveries, math.inf if next_due is None else next_due - now

    def _forget_messages(self, numbers: Collection[int]) -> bool:
        with self._database:
            self._database.execute(_FORGET, (json.dumps(numbers),))
        return True

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


def put_message(database: sqlite3.Connection, message: Message, now: datetime, *, due: float = 0.0) -> None:
    """Puts a message into the file, in a transaction that is open.

    Args:
        database: the file.
        message: what is put; it says all that earlier ones of its queue with the same key said.
        now: UTC.
        due: seconds since 1970 before which nobody is given it.
    """
    if message.key is not None:
        database.execute("DELETE FROM messages WHERE queue = ? AND key = ?", (message.queue, message.key))
    headers = json.dumps(dict(message.headers))
    database.execute(_INSERT, (message.queue, message.key, message.schema, message.body, headers, now.isoformat(), due))


@dataclass(frozen=True, slots=True)
class _Shelf:
    """A queue, and those in which messages wait for it."""

    file: EmbeddedQueue
    queues: tuple[str, ...]

    async def due(self, limit: int, given: Collection[int], stopped: asyncio.Event) -> tuple[list[Delivery], float]:
        return await self.file.due(self.queues, limit, given, stopped)

    async def forget(self, numbers: Collection[int]) -> None:
        await self.file.forget(numbers)
