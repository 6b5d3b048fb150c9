"""The shipped console script as a process, and what it says."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.waiting import LONG_S, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

SCRIPT = Path(sys.executable).with_name("blobmap-consumer")


class ConsumerProcess:
    """A running `blobmap-consumer`; its output is in files, so that it never waits for us."""

    def __init__(self, process: asyncio.subprocess.Process, directory: Path) -> None:
        self._process = process
        self._directory = directory

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def out(self) -> str:
        """Standard output so far."""
        return (self._directory / "out").read_text()

    @property
    def err(self) -> str:
        """Standard error so far."""
        return (self._directory / "err").read_text()

    def logged(self, event: str) -> list[dict[str, Any]]:
        """Log lines of one kind so far."""
        lines = [json.loads(line) for line in self.err.splitlines(keepends=True) if line[0] == "{" and line[-1] == "\n"]
        return [line for line in lines if line["event"] == event]

    async def until_logged(self, event: str, *, count: int = 1, within_s: float = LONG_S) -> dict[str, Any]:
        """Waits for the n-th log line of one kind."""

        async def found() -> list[dict[str, Any]]:
            if self._process.returncode is not None:
                raise AssertionError(f"ended with {self._process.returncode} before it logged {event!r}:\n{self.err}")
            lines = self.logged(event)
            return lines if len(lines) >= count else []

        try:
            return (await eventually(found, what=f"it logs {event!r}", within_s=within_s))[count - 1]
        except AssertionError as error:
            raise AssertionError(f"{error}; it said\n{self.err}") from None

    def send(self, number: signal.Signals) -> None:
        """Sends a signal."""
        self._process.send_signal(number)

    async def end(self) -> int:
        """Waits for its end; the exit code."""
        async with asyncio.timeout(LONG_S):
            return await self._process.wait()

    async def stop(self) -> int:
        """SIGTERM, and its exit code."""
        self.send(signal.SIGTERM)
        return await self.end()


def consumer(directory: Path, *words: str) -> AbstractAsyncContextManager[ConsumerProcess]:
    """Runs `blobmap-consumer` with these words as long as the context lasts; `directory` is for its output."""
    directory.mkdir(parents=True, exist_ok=True)
    return _running(directory, words)


@asynccontextmanager
async def _running(directory: Path, words: tuple[str, ...]) -> AsyncIterator[ConsumerProcess]:
    with (directory / "out").open("wb") as out, (directory / "err").open("wb") as err:
        process = await asyncio.create_subprocess_exec(str(SCRIPT), *words, stdout=out, stderr=err)
    try:
        yield ConsumerProcess(process, directory)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
