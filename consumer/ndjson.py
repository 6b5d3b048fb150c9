"""Object records as lines of JSON, on standard output or at the end of a file."""

from __future__ import annotations

import asyncio
import os
import stat
from typing import TYPE_CHECKING

import orjson

from blobmap.errors import RefusedError, UnavailableError

if TYPE_CHECKING:
    from consumer.records import Message

_STANDARD_OUTPUT = 1


class NdjsonSink:
    """A sink for `blobmap.objects.v1` messages: one line a record.

    Args:
        path: a file that is appended to, or `-` for standard output.

    Raises:
        RefusedError: the file cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self._lock = asyncio.Lock()
        self._name = "standard output" if path == "-" else path
        self._descriptor = _STANDARD_OUTPUT
        if path != "-":
            try:
                self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            except OSError as error:
                raise RefusedError(f"sink.path {path}: {error.strerror}") from error
        self._on_disk = path != "-" and stat.S_ISREG(os.fstat(self._descriptor).st_mode)

    async def publish(self, message: Message) -> None:
        """Writes the records of a message. Returns when they are handed over; those of a file are on disk then.

        Raises:
            UnavailableError: they cannot be written now; a file is left as it was.
            RefusedError: nobody reads them any more.
        """
        lines = b"".join(orjson.dumps(record) + b"\n" for record in orjson.loads(message.body)["records"])
        async with self._lock:
            await asyncio.to_thread(self._append, lines)

    def close(self) -> None:
        """Closes the file; standard output stays open."""
        if self._descriptor != _STANDARD_OUTPUT:
            os.close(self._descriptor)

    def _append(self, lines: bytes) -> None:
        size = os.fstat(self._descriptor).st_size
        try:
            left = memoryview(lines)
            while left:
                left = left[os.write(self._descriptor, left) :]
            if self._on_disk:
                os.fsync(self._descriptor)
        except BrokenPipeError as error:
            raise RefusedError(f"{self._name}: nobody reads it any more") from error
        except OSError as error:
            if self._on_disk:
                os.ftruncate(self._descriptor, size)
            raise UnavailableError(f"{self._name}: {error.strerror}") from error
