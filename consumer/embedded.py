"""A queue in one SQLite file, for a daemon without a broker: source and sink in one process.

What was posted, and what we put aside for later, is in that file before anybody is told so: write-ahead log, and a sync
for every commit (`synchronous=FULL`), so that a crash of process or machine loses nothing that was answered. One thread
does all of it; puts that come together share a commit.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from blobmap.errors import RefusedError, UnavailableError, UsageError
from consumer.ports import Delivery
from consumer.records import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

T = TypeVar("T")

# Changes with every change of the tables, so that an older program does not misread a newer file.
_VERSION = 1

_TABLES = """
CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL, seen TEXT NOT NULL,
                     deliveries INTEGER NOT NULL DEFAULT 0);
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, type TEXT, body BLOB NOT NULL,
                       headers TEXT NOT NULL);
CREATE INDEX messages_by_queue ON messages (queue, id);
"""

_TAKE = 500


class EmbeddedQueue:
    """The file. Use `open`.

    Args:
        database: connection that only `thread` uses.
        thread: the one thread.
        prefetch: how many events are given out at most before one is acknowledged.
    """

    def __init__(self, database: sqlite3.Connection, thread: ThreadPoolExecutor, prefetch: int) -> None:
        self._database = database
        self._thread = thread
        self._prefetch = prefetch
        self._puts: list[tuple[bytes, asyncio.Future[None]]] = []
        self._committing = False
        self._given = 0  # highest id given out
        self._held = 0  # how many are given out and not acknowledged
        self._more = asyncio.Event()
        self._more.set()
        self._stopped = False

    @classmethod
    async def open(cls, path: Path, *, prefetch: int) -> EmbeddedQueue:
        """Opens the file, makes it where there is none; every event in it will be delivered.

        Raises:
            UsageError: there is no such directory, or the file is of another kind or version.
            RefusedError: the file cannot be written, or another process has it.
        """
        thread = ThreadPoolExecutor(1, thread_name_prefix="embedded")
        try:
            database = await asyncio.get_running_loop().run_in_executor(thread, _open, path)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return cls(database, thread, prefetch)

    async def close(self) -> None:
        """Closes the file; what is not acknowledged stays in it."""
        await self._run(self._database.close)
        self._thread.shutdown()

    # --- events

    async def put(self, body: bytes) -> None:
        """Keeps an event. Returns once it is in the file and synced.

        Raises:
            UnavailableError: the file cannot take it now.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._puts.append((body, done))
        if not self._committing:
            self._committing = True
            try:
                while self._puts:
                    await self._commit_puts()
            finally:
                self._committing = False
        await done

    @property
    def prefetch(self) -> int:
        """How many events are given out at most before one is acknowledged."""
        return self._prefetch

    async def take(self) -> Sequence[Delivery]:
        """Waits for events and gives those that are there; none once it was stopped."""
        while not self._stopped:
            self._more.clear()
            room = min(self._prefetch - self._held, _TAKE)
            deliveries = await self._run(self._read, room) if room > 0 else []
            if deliveries and not self._stopped:
                self._given = deliveries[-1].tag
                self._held += len(deliveries)
                return deliveries
            await self._more.wait()
        return []

    async def acknowledge(self, tag: int) -> None:
        """Forgets every event up to this tag."""
        self._held -= await self._run(self._delete, tag)
        self._more.set()

    async def stop(self) -> None:
        """Gives out no more."""
        self._stopped = True
        self._more.set()

    # --- messages

    async def publish(self, message: Message) -> None:
        """Keeps a message in its queue until somebody takes it from there.

        Raises:
            UnavailableError: the file cannot take it now.
        """
        await self._run(self._insert, message)

    async def messages(self, queue: str) -> list[Message]:
        """What lies in a queue, oldest first; it stays there."""
        return await self._run(self._messages, queue)

    # --- all that runs in the thread

    async def _run(self, function: Callable[..., T], *arguments: object) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)
        except sqlite3.Error as error:
            raise UnavailableError(f"the embedded queue cannot be used now: {error}") from error

    async def _commit_puts(self) -> None:
        puts, self._puts = self._puts, []
        try:
            await self._run(self._append, [body for body, _ in puts])
        except UnavailableError as error:
            for _, done in puts:
                if not done.done():
                    done.set_exception(error)
            return
        for _, done in puts:
            if not done.done():
                done.set_result(None)
        self._more.set()

    def _append(self, bodies: list[bytes]) -> None:
        seen = datetime.now(UTC).isoformat()
        with self._database:
            self._database.executemany("INSERT INTO events (body, seen) VALUES (?, ?)", ((b, seen) for b in bodies))

    def _read(self, limit: int) -> list[Delivery]:
        with self._database:
            rows = self._database.execute(
                "SELECT id, body, seen, deliveries FROM events WHERE id > ? ORDER BY id LIMIT ?", (self._given, limit)
            ).fetchall()
            if rows:
                self._database.execute(
                    "UPDATE events SET deliveries = deliveries + 1 WHERE id BETWEEN ? AND ?", (rows[0][0], rows[-1][0])
                )
        return [
            Delivery(number, body, deliveries=deliveries + 1, first_seen=datetime.fromisoformat(seen))
            for number, body, seen, deliveries in rows
        ]

    def _delete(self, tag: int) -> int:
        with self._database:
            return self._database.execute("DELETE FROM events WHERE id <= ?", (tag,)).rowcount

    def _insert(self, message: Message) -> None:
        row = (message.queue, message.schema, message.body, json.dumps(dict(message.headers)))
        with self._database:
            self._database.execute("INSERT INTO messages (queue, type, body, headers) VALUES (?, ?, ?, ?)", row)

    def _messages(self, queue: str) -> list[Message]:
        rows = self._database.execute(
            "SELECT queue, type, body, headers FROM messages WHERE queue = ? ORDER BY id", (queue,)
        )
        return [Message(name, kind, body, json.loads(headers)) for name, kind, body, headers in rows]


def _open(path: Path) -> sqlite3.Connection:
    try:
        database = sqlite3.connect(path, timeout=1.0)
        try:
            _prepare(database, path)
        except BaseException:
            database.close()
            raise
    except sqlite3.OperationalError as error:
        raise RefusedError(
            f"embedded.path {path}: {error} (a missing directory, or another process that has it)"
        ) from error
    except sqlite3.DatabaseError as error:
        raise UsageError(f"embedded.path {path}: {error}") from error
    return database


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    # Exclusive, because two processes would both deliver what is in the file.
    for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL"):
        database.execute(f"PRAGMA {pragma}")
    ((version,),) = database.execute("PRAGMA user_version")
    ((tables,),) = database.execute("SELECT count(*) FROM sqlite_master")
    if not version and not tables:
        database.executescript(f"BEGIN IMMEDIATE;{_TABLES}PRAGMA user_version={_VERSION};COMMIT;")
    elif version != _VERSION:
        raise UsageError(f"embedded.path {path}: a file of version {version}, this program reads version {_VERSION}")
    with database:  # a write, so that the lock is taken now and not with the first event
        database.execute("DELETE FROM events WHERE id < 0")
