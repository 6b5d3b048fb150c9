"""Events in one SQLite file: what is put into it outlives us, and comes out again until it is acknowledged.

Write-ahead log, and a sync for every commit (`synchronous=FULL`), so that a crash of process or machine loses nothing
that was answered. One thread does all of it; puts that come together share a commit.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import structlog

from blobmap.errors import UnavailableError
from consumer.ports import Delivery, Status
from consumer.retry import growing_delays
from consumer.sqlite_file import Format, Opened, open_file
from consumer.until import set_within

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Self

T = TypeVar("T")

_log = structlog.get_logger(__name__)

EVENT_TABLES = """
CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL, seen TEXT NOT NULL,
                     deliveries INTEGER NOT NULL DEFAULT 0);
"""

_TAKE = 500

# Another process may put something into the file too (a dead letter that is tried again), and wakes nobody here.
_LOOK_S = 1.0


class EventFile:
    """The file. Use `open`.

    Args:
        opened: the file, which only `thread` uses.
        thread: the one thread.
        prefetch: how many events are given out at most before one is acknowledged.
        most_bytes: bytes that all bodies in it may have together, None for as many as the disk takes.
        status: where to say that the file cannot be used.

    Attributes:
        stopped: set where it was stopped, and gives out no more.
    """

    FORMAT = Format("a spool of events", 1, EVENT_TABLES)

    def __init__(
        self, opened: Opened, thread: ThreadPoolExecutor, *, prefetch: int, most_bytes: int | None, status: Status
    ) -> None:
        self._opened = opened
        self._database = opened.database
        self._thread = thread
        self._prefetch = prefetch
        self._most_bytes = most_bytes
        self._status = status
        self._bytes = 0
        self._puts: list[tuple[bytes, asyncio.Future[None]]] = []
        self._committing = False
        self._given: deque[tuple[int, int]] = deque()  # number and bytes of what is given out and not acknowledged
        self._last = 0  # highest number given out
        self._more = asyncio.Event()
        self.stopped = asyncio.Event()

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        prefetch: int,
        most_bytes: int | None = None,
        name: str = "embedded.path",
        status: Status | None = None,
    ) -> Self:
        """Opens the file, makes it where there is none; every event in it will be delivered.

        Args:
            path: the file.
            prefetch: how many events are given out at most before one is acknowledged.
            most_bytes: bytes that all bodies in it may have together, None for as many as the disk takes.
            name: key of the configuration that names the file, for messages.
            status: where to say that the file cannot be used.

        Raises:
            UsageError: there is no such directory, or the file is of another kind or version.
            RefusedError: the file cannot be written, or another process has it.
        """
        thread = ThreadPoolExecutor(1, thread_name_prefix="events")
        try:
            run = asyncio.get_running_loop().run_in_executor
            opened = await run(thread, lambda: open_file(path, cls.FORMAT, name=name))
            file = cls(opened, thread, prefetch=prefetch, most_bytes=most_bytes, status=status or Status())
            file._bytes = await run(thread, file._sum)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return file

    async def close(self) -> None:
        """Closes the file; what is not acknowledged stays in it."""
        await self._run(self._opened.close)
        self._thread.shutdown()

    # --- what comes in

    async def put(self, body: bytes) -> None:
        """Keeps an event. Returns once it is in the file and synced.

        Raises:
            UnavailableError: the file is full, or cannot take it now.
        """
        if self._most_bytes is not None and self._bytes + len(body) > self._most_bytes:
            reason = f"is full, it may hold {self._most_bytes} bytes of events"
            self._trouble(reason)
            raise UnavailableError(f"{self._opened.name}: {reason}")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._bytes += len(body)
        self._puts.append((body, done))
        if not self._committing:
            self._committing = True
            try:
                while self._puts:
                    await self._commit_puts()
            finally:
                self._committing = False
        await done

    async def _commit_puts(self) -> None:
        puts, self._puts = self._puts, []
        try:
            await self._write(self._append_events, [body for body, _ in puts])
        except UnavailableError as error:
            self._bytes -= sum(len(body) for body, _ in puts)
            for _, done in puts:
                if not done.done():
                    done.set_exception(error)
            return
        for _, done in puts:
            if not done.done():
                done.set_result(None)
        self._more.set()

    # --- what goes out

    @property
    def prefetch(self) -> int:
        """How many events are given out at most before one is acknowledged."""
        return self._prefetch

    async def take(self) -> Sequence[Delivery]:
        """Waits for events and gives those that are there; none once it was stopped."""
        while not self.stopped.is_set():
            self._more.clear()
            room = min(self._prefetch - len(self._given), _TAKE)
            deliveries = await self._patiently(self.stopped, self._read, room) if room > 0 else None
            if deliveries and not self.stopped.is_set():
                self._last = deliveries[-1].tag
                self._given.extend((delivery.tag, len(delivery.body)) for delivery in deliveries)
                return deliveries
            await set_within(self._more, _LOOK_S)
        return []

    async def acknowledge(self, tag: int) -> None:
        """Forgets every event up to this tag; as long as the file cannot be written, it tries again."""
        await self._patiently(asyncio.Event(), self._delete, tag)
        while self._given and self._given[0][0] <= tag:
            self._bytes -= self._given.popleft()[1]
        self._more.set()

    async def stop(self) -> None:
        """Gives out no more."""
        self.stopped.set()
        self._more.set()

    # --- all that runs in the thread

    async def _run(self, function: Callable[..., T], *arguments: object) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)
        except sqlite3.Error as error:
            self._trouble(str(error))
            raise UnavailableError(f"{self._opened.name}: the file cannot be used now: {error}") from error

    async def _write(self, function: Callable[..., T], *arguments: object) -> T:
        """Runs what writes; only that shows that the file can be used again."""
        result = await self._run(function, *arguments)
        self._trouble(None)
        return result

    async def _patiently(self, unless: asyncio.Event, function: Callable[..., T], *arguments: object) -> T | None:
        """Runs in the thread until it works; None where `unless` is set before that."""
        for delay in growing_delays():
            try:
                result = await self._run(function, *arguments)
            except UnavailableError:
                if await set_within(unless, delay):
                    break
            else:
                if result:
                    self._trouble(None)
                return result
        return None

    def _trouble(self, reason: str | None) -> None:
        """Keeps what is wrong with the file, and says it when that changes."""
        name = self._opened.name
        before = self._status.troubles.pop(name, None)
        if reason is not None:
            self._status.troubles[name] = reason
        if (before is None) != (reason is None):
            _log.warning("file", name=name, works=reason is None, reason=reason or before)

    def _sum(self) -> int:
        ((total,),) = self._database.execute("SELECT coalesce(sum(length(body)), 0) FROM events")
        return int(total)

    def _append_events(self, bodies: list[bytes]) -> None:
        seen = datetime.now(UTC).isoformat()
        with self._database:
            self._database.executemany("INSERT INTO events (body, seen) VALUES (?, ?)", ((b, seen) for b in bodies))

    def _read(self, limit: int) -> list[Delivery]:
        rows = self._database.execute(
            "SELECT id, body, seen, deliveries FROM events WHERE id > ? ORDER BY id LIMIT ?", (self._last, limit)
        ).fetchall()
        if rows:
            with self._database:
                self._database.execute(
                    "UPDATE events SET deliveries = deliveries + 1 WHERE id BETWEEN ? AND ?", (rows[0][0], rows[-1][0])
                )
        return [
            Delivery(number, body, deliveries=deliveries + 1, first_seen=datetime.fromisoformat(seen))
            for number, body, seen, deliveries in rows
        ]

    def _delete(self, tag: int) -> bool:
        with self._database:
            self._database.execute("DELETE FROM events WHERE id <= ?", (tag,))
        return True
