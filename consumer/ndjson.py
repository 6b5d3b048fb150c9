"""Object records as lines of JSON, on standard output or at the end of a file."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from blobmap.errors import RefusedError, UnavailableError

if TYPE_CHECKING:
    from typing import BinaryIO

    from consumer.records import Message


class NdjsonSink:
    """A sink for `blobmap.objects.v1` messages: one line a record.

    Args:
        path: a file that is appended to, or `-` for standard output.

    Raises:
        RefusedError: the file cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self._lock = asyncio.Lock()
        self._to_file = path != "-"
        self._name = path if self._to_file else "standard output"
        if not self._to_file:
            self._stream: BinaryIO = sys.stdout.buffer
            return
        try:
            self._stream = Path(path).open("ab", buffering=0)  # noqa: SIM115  # open as long as the sink
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
            await asyncio.to_thread(self._append if self._to_file else self._hand_over, lines)

    def close(self) -> None:
        """Closes the file; standard output stays open."""
        if self._to_file:
            self._stream.close()

    def _append(self, lines: bytes) -> None:
        descriptor = self._stream.fileno()
        size = os.fstat(descriptor).st_size
        try:
            left = memoryview(lines)
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        except OSError as error:
            os.ftruncate(descriptor, size)
            raise UnavailableError(f"{self._name}: {error.strerror}") from error

    def _hand_over(self, lines: bytes) -> None:
        try:
            self._stream.write(lines)
            self._stream.flush()
        except BrokenPipeError as error:
            raise RefusedError(f"{self._name}: nobody reads it any more") from error
