"""A TCP relay between a client and a service, which a test cuts, mutes, spoils and lets go on."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.services.ports import lease_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CHUNK = 65_536


class Relay:
    """Forwards connections to a port of 127.0.0.1. Use `relay`.

    Attributes:
        port: where it listens.
        accepted: how many connections came in so far.
    """

    def __init__(self, port: int, target: int) -> None:
        self.port = port
        self.accepted = 0
        self._target = target
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._spoils = False
        self._pairs: dict[asyncio.StreamWriter, asyncio.StreamWriter] = {}
        self._stranded: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Resets every connection; new ones are forwarded."""
        for near, far in tuple(self._pairs.items()):
            near.transport.abort()
            far.transport.abort()

    def strand(self) -> None:
        """Makes every connection half-open: it stays, what either side says is lost; new ones are forwarded."""
        self._stranded |= {writer for pair in self._pairs.items() for writer in pair}

    def pause(self) -> None:
        """Forwards nothing until `resume`; nothing is lost meanwhile, connections are accepted."""
        self._flowing.clear()

    def resume(self) -> None:
        """Goes on after `pause`."""
        self._flowing.set()

    def spoil(self) -> None:
        """Changes the last byte of the next thing that anybody says."""
        self._spoils = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forwards one connection."""
        self.accepted += 1
        far_reader, far = await asyncio.open_connection("127.0.0.1", self._target)
        self._pairs[writer] = far
        for source, sink in ((reader, far), (far_reader, writer)):
            task = asyncio.create_task(self._forward(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Ends everything."""
        self.cut()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(CHUNK):
                await self._flowing.wait()
                if self._spoils:
                    self._spoils, data = False, data[:-1] + bytes((data[-1] ^ 0xFF,))
                if sink not in self._stranded:
                    sink.write(data)
                    await sink.drain()
        except OSError:
            pass
        if sink not in self._stranded:
            sink.transport.abort()


@asynccontextmanager
async def relay(target: int) -> AsyncIterator[Relay]:
    """Runs a relay to a port of 127.0.0.1 as long as the context lasts."""
    lease = lease_port()
    built = Relay(lease.number, target)
    server = await asyncio.start_server(built.serve, "127.0.0.1", lease.number)
    try:
        yield built
    finally:
        server.close()
        await built.close()
        lease.release()
