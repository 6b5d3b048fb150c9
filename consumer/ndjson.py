"""Object records as lines of JSON, on standard output or at the end of a file."""

from __future__ import annotations

import asyncio
import os
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
        self._is_file = path != "-"
        self._name = path if self._is_file else "standard output"
        self._descriptor = _STANDARD_OUTPUT
        if self._is_file:
            try:
                self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            except OSError as error:
                raise RefusedError(f"sink.path {path}: {error.strerror}") from error

    async def publish(self, message: Message) -> None:
        """Writes the records of a message. Returns when they are handed over; those of a file are on disk then.

        Raises:
            UnavailableError: the file cannot take them now; it is left as it was.
            RefusedError: nobody reads standard output any more.
        """
        lines = b"".join(orjson.dumps(record) + b"\n" for record in orjson.loads(message.body)["records"])
        async with self._lock:
            await asyncio.to_thread(self._append if self._is_file else self._hand_over, lines)

    def close(self) -> None:
        """Closes the file; standard output stays open."""
        if self._is_file:
            os.close(self._descriptor)

    def _append(self, lines: bytes) -> None:
        size = os.fstat(self._descriptor).st_size
        try:
            self._write(lines)
            os.fsync(self._descriptor)
        except OSError as error:
            os.ftruncate(self._descriptor, size)
            raise UnavailableError(f"{self._name}: {error.strerror}") from error

    def _hand_over(self, lines: bytes) -> None:
        try:
            self._write(lines)
        except BrokenPipeError as error:
            raise RefusedError(f"{self._name}: nobody reads it any more") from error

    def _write(self, lines: bytes) -> None:
        left = memoryview(lines)
        while left:
            left = left[os.write(self._descriptor, left) :]
