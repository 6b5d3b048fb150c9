"""A SQLite file of ours: made where there is none, known by its kind and version, and held by one process.

Held by a lock beside it and not by SQLite's own, so that a command for people can look into the file of a daemon.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from blobmap.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

# For somebody else's transaction; all of ours are short.
_BUSY_S = 5.0

# The write-ahead log of a burst is cut back to this.
_LOG_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Format:
    """What is in a file.

    Attributes:
        kind: in words, for messages; files of another kind are refused.
        version: grows with every change of the tables, so that an older program does not misread a newer file.
        tables: SQL that makes them.
    """

    kind: str
    version: int
    tables: str

    @property
    def mark(self) -> int:
        """SQLite's `application_id`, which tells files of this kind from others: 31 bits."""
        return zlib.crc32(self.kind.encode()) & 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Opened:
    """A file that is open.

    Attributes:
        name: key of the configuration and path, for messages.
        database: for one thread.
        lock: descriptor of the lock, None where the file is held by nobody.
    """

    name: str
    database: sqlite3.Connection
    lock: int | None

    def close(self) -> None:
        """Closes the file and lets go of it."""
        self.database.close()
        if self.lock is not None:
            os.close(self.lock)


def open_file(path: Path, format_: Format, *, name: str, hold: bool = True) -> Opened:
    """Opens a file, makes it where there is none.

    Args:
        path: the file.
        format_: what has to be in it.
        name: key of the configuration that names it, for messages.
        hold: whether nobody else may hold it meanwhile: what delivers the events in it is one process.

    Raises:
        UsageError: the file is of another kind or version.
        RefusedError: it cannot be written (a missing directory, say), or another process holds it.
    """
    where = f"{name} {path}"
    lock = _hold(path, where) if hold else None
    try:
        return Opened(where, _connect(path, format_, where), lock)
    except BaseException:
        if lock is not None:
            os.close(lock)
        raise


def _hold(path: Path, where: str) -> int:
    try:
        lock = os.open(path.with_name(path.name + "-lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise RefusedError(f"{where}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise RefusedError(f"{where}: locked, another process has it") from error
    return lock


def _connect(path: Path, format_: Format, where: str) -> sqlite3.Connection:
    try:
        database = sqlite3.connect(path, timeout=_BUSY_S, isolation_level="IMMEDIATE", check_same_thread=True)
        try:
            _prepare(database, format_, where)
        except BaseException:
            database.close()
            raise
    except sqlite3.OperationalError as error:
        raise RefusedError(f"{where}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise UsageError(f"{where}: {error}") from error
    return database


def _prepare(database: sqlite3.Connection, format_: Format, where: str) -> None:
    for pragma in ("journal_mode=WAL", "synchronous=FULL", f"journal_size_limit={_LOG_BYTES}"):
        database.execute(f"PRAGMA {pragma}")
    ((mark,),) = database.execute("PRAGMA application_id")
    ((version,),) = database.execute("PRAGMA user_version")
    ((tables,),) = database.execute("SELECT count(*) FROM sqlite_master")
    if not mark and not version and not tables:
        database.executescript(
            f"BEGIN IMMEDIATE;{format_.tables}"
            f"PRAGMA application_id={format_.mark};PRAGMA user_version={format_.version};COMMIT;"
        )
    elif mark != format_.mark:
        raise UsageError(f"{where}: is a SQLite file of another kind, not {format_.kind}")
    elif version != format_.version:
        raise UsageError(f"{where}: a file of version {version}, this program reads version {format_.version}")
    with database:  # a write, so that a file that cannot be written is known now and not with the first event
        database.execute("DELETE FROM events WHERE id < 0")
