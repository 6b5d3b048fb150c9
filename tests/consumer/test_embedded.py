from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from blobmap.errors import RefusedError, UnavailableError, UsageError
from consumer.embedded import EmbeddedQueue
from tests.support.port_contracts import SinkContract, SourceContract, take

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from consumer.records import Message


class Harness:
    """Both sides of one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: EmbeddedQueue | None = None

    @asynccontextmanager
    async def open(self, prefetch: int = 100) -> AsyncIterator[EmbeddedQueue]:
        queue = self._open = await EmbeddedQueue.open(self._path, prefetch=prefetch)
        try:
            yield queue
        finally:
            self._open = None
            await queue.close()

    async def put(self, *bodies: bytes) -> None:
        if self._open is None:
            async with self.open() as queue:
                for body in bodies:
                    await queue.put(body)
        else:
            for body in bodies:
                await self._open.put(body)

    async def read(self, queue: str) -> list[Message]:
        assert self._open is not None
        return await self._open.messages(queue)


def copy_files(directory: Path) -> None:
    for file in directory.glob("queue.sqlite*"):
        (directory / file.name.replace("queue", "copy")).write_bytes(file.read_bytes())


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path / "queue.sqlite")


class TestSource(SourceContract):
    pass


class TestSink(SinkContract):
    pass


async def test_puts_that_come_together_are_all_kept(harness: Harness) -> None:
    bodies = {b"%d" % number for number in range(500)}
    async with harness.open() as queue:
        await asyncio.gather(*map(queue.put, bodies))
    async with harness.open(prefetch=1000) as queue:
        assert {delivery.body for delivery in await take(queue, 500)} == bodies


async def test_a_put_that_nobody_waits_for_is_kept_like_the_others(harness: Harness) -> None:
    async with harness.open() as queue:
        puts = [asyncio.ensure_future(queue.put(b"%d" % number)) for number in range(3)]
        await asyncio.sleep(0)
        puts[1].cancel()
        await asyncio.gather(*puts, return_exceptions=True)
        assert [delivery.body for delivery in await take(queue, 3)] == [b"0", b"1", b"2"]


async def test_what_is_put_is_in_the_file_before_it_is_answered(harness: Harness, tmp_path: Path) -> None:
    """A copy of the files, taken as a crash would leave them, has the event."""
    async with harness.open() as queue:
        await queue.put(b"event")
        copy_files(tmp_path)
    rows = sqlite3.connect(tmp_path / "copy.sqlite").execute("SELECT body FROM events").fetchall()
    assert rows == [(b"event",)]


async def test_events_say_since_when_they_are_known(harness: Harness) -> None:
    await harness.put(b"x")
    async with harness.open() as queue:
        (delivery,) = await take(queue, 1)
    assert delivery.first_seen is not None
    assert delivery.first_seen.tzinfo is not None


async def test_two_processes_cannot_share_a_file(harness: Harness, tmp_path: Path) -> None:
    async with harness.open():
        with pytest.raises(RefusedError, match="locked"):
            await EmbeddedQueue.open(tmp_path / "queue.sqlite", prefetch=1)


async def test_a_file_in_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="missing directory"):
        await EmbeddedQueue.open(tmp_path / "absent" / "queue.sqlite", prefetch=1)


async def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "queue.sqlite"
    file.write_bytes(b"not a database, but long enough to have a header" * 10)
    with pytest.raises(UsageError, match="not a database"):
        await EmbeddedQueue.open(file, prefetch=1)
    assert file.read_bytes().startswith(b"not a database")


@pytest.mark.parametrize("statement", ["PRAGMA user_version=7", "CREATE TABLE theirs (x)"])
async def test_another_version_of_the_file_is_refused(tmp_path: Path, statement: str) -> None:
    file = tmp_path / "queue.sqlite"
    database = sqlite3.connect(file)
    database.execute(statement)
    database.close()
    with pytest.raises(UsageError, match="this program reads version 1"):
        await EmbeddedQueue.open(file, prefetch=1)


async def test_a_full_disk_is_told_to_who_puts_and_the_next_put_can_work(tmp_path: Path) -> None:
    queue = await EmbeddedQueue.open(tmp_path / "queue.sqlite", prefetch=1)
    await queue._run(queue._database.execute, "PRAGMA max_page_count=20")
    with pytest.raises(UnavailableError, match="full"):
        await asyncio.gather(queue.put(b"x" * 1_000_000), queue.put(b"y"))
    await queue.put(b"small")
    await queue.close()
