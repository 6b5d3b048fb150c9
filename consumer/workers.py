"""Several processes on one queue: a parent that starts them, passes signals on, and starts again what crashed.

Each worker is the daemon itself. It ends in order when its standard input ends, so that none outlives the parent.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

import structlog

from consumer.retry import growing_delays
from consumer.until import until

if TYPE_CHECKING:
    from collections.abc import Sequence

_log = structlog.get_logger(__name__)


class Workers:
    """The workers of one parent.

    Args:
        words: the command line of a worker, without the program.
        http_port: port of the first worker's HTTP server, each further one has the next; None where there is none, 0:
            any free one.
        crashed: exit codes that mean a crash; any other one but 0 ends all workers, as it would end each of them.
    """

    def __init__(self, words: Sequence[str], *, http_port: int | None, crashed: frozenset[int]) -> None:
        self._words = tuple(words)
        self._http_port = http_port
        self._crashed = crashed
        self._stop = asyncio.Event()
        self._running: set[asyncio.subprocess.Process] = set()

    def stop(self) -> None:
        """Passes on that it is to stop, also a second time."""
        self._stop.set()
        self.send(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to every worker."""
        for process in self._running:
            if process.returncode is None:
                process.send_signal(number)

    async def run(self, count: int) -> int:
        """Runs so many workers until told to stop.

        Returns:
            The exit code: 0, or that of the first worker that could not go on.
        """
        codes = await asyncio.gather(*(self._keep(index) for index in range(count)))
        return next((code for code in codes if code), 0)

    async def _keep(self, index: int) -> int:
        for delay in growing_delays():
            code = await self._run_one(index)
            if code >= 0 and code not in self._crashed:
                self.stop()
                return code
            if self._stop.is_set():
                return 0
            _log.error("worker crashed", worker=index, code=code)
            await until(self._stop, asyncio.sleep(delay))
            if self._stop.is_set():
                return 0
        raise AssertionError  # the delays have no end

    async def _run_one(self, index: int) -> int:
        environment = dict(os.environ)
        if self._http_port:
            environment["BLOBMAP_HTTP__PORT"] = str(self._http_port + index)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "consumer",
            *self._words,
            stdin=asyncio.subprocess.PIPE,
            env=environment,
        )
        self._running.add(process)
        if self._stop.is_set():
            process.terminate()
        _log.info("worker", worker=index, pid=process.pid)
        try:
            return await process.wait()
        finally:
            self._running.discard(process)
