from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from blobmap.errors import RefusedError, UnavailableError, UsageError
from consumer.embedded import EmbeddedQueue
from consumer.event_file import EventFile
from consumer.ports import Status
from consumer.records import Message
from tests.support.port_contracts import JournalContract, SinkContract, SourceContract, take
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


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


class JournalHarness(Harness):
    async def read(self) -> list[bytes]:  # type: ignore[override]  # the other side of another port
        assert self._open is not None
        return list(await self._open.journal())


class TestJournal(JournalContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> JournalHarness:
        return JournalHarness(tmp_path / "queue.sqlite")


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
    with pytest.raises(RefusedError, match=r"embedded\.path .*: No such file or directory"):
        await EmbeddedQueue.open(tmp_path / "absent" / "queue.sqlite", prefetch=1)


async def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "queue.sqlite"
    file.write_bytes(b"not a database, but long enough to have a header" * 10)
    with pytest.raises(UsageError, match="not a database"):
        await EmbeddedQueue.open(file, prefetch=1)
    assert file.read_bytes().startswith(b"not a database")


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("PRAGMA user_version=7", "of another kind, not a file of embedded mode"),
        ("CREATE TABLE theirs (x)", "of another kind, not a file of embedded mode"),
        ("PRAGMA application_id=12", "of another kind, not a file of embedded mode"),
    ],
)
async def test_somebody_elses_database_is_refused(tmp_path: Path, statement: str, reason: str) -> None:
    file = tmp_path / "queue.sqlite"
    _execute(file, statement)
    with pytest.raises(UsageError, match=reason):
        await EmbeddedQueue.open(file, prefetch=1)


async def test_another_version_of_the_file_is_refused(harness: Harness, tmp_path: Path) -> None:
    await harness.put(b"x")
    _execute(tmp_path / "queue.sqlite", "PRAGMA user_version=77")
    with pytest.raises(UsageError, match="a file of version 77, this program reads version 3"):
        await EmbeddedQueue.open(tmp_path / "queue.sqlite", prefetch=1)


async def test_a_spool_is_no_file_of_embedded_mode(tmp_path: Path) -> None:
    spool = await EventFile.open(tmp_path / "file.sqlite", prefetch=1, name="source.spool")
    await spool.close()
    with pytest.raises(UsageError, match="of another kind"):
        await EmbeddedQueue.open(tmp_path / "file.sqlite", prefetch=1)


async def test_a_file_that_cannot_be_written_is_refused(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "queue.sqlite").mkdir()
    with pytest.raises(RefusedError, match="unable to open"):
        await harness.put(b"x")


def _execute(file: Path, statement: str) -> None:
    database = sqlite3.connect(file)
    database.execute(statement)
    database.commit()
    database.close()


# --- a file that takes nothing


async def test_a_full_disk_is_told_to_who_puts_and_the_next_put_can_work(tmp_path: Path) -> None:
    status = Status()
    queue = await EmbeddedQueue.open(tmp_path / "queue.sqlite", prefetch=1, status=status)
    await fill(queue)
    with pytest.raises(UnavailableError, match="full"):
        await queue.put(b"x" * 1_000_000)
    assert "full" in status.troubles[f"embedded.path {tmp_path / 'queue.sqlite'}"]
    await queue.put(b"small")
    assert status.troubles == {}
    await queue.close()


async def fill(queue: EmbeddedQueue, *, pages: int = 20) -> None:
    """Lets the file grow no more than this: what SQLite says then is what it says of a full disk."""
    await queue._run(queue._database.execute, f"PRAGMA max_page_count={pages}")


async def test_giving_out_and_acknowledging_wait_for_a_disk_that_can_be_written(harness: Harness) -> None:
    async with harness.open() as queue:
        await queue.put(b"one")
        await queue._run(queue._database.execute, "PRAGMA query_only=ON")
        taking = asyncio.ensure_future(queue.take())
        await eventually(lambda: _true(queue._status.troubles), what="the file cannot be written")
        await queue._run(queue._database.execute, "PRAGMA query_only=OFF")
        (delivery,) = await taking
        await queue._run(queue._database.execute, "PRAGMA query_only=ON")
        acknowledging = asyncio.ensure_future(queue.acknowledge(delivery.tag))
        await eventually(lambda: _true(queue._status.troubles), what="the file cannot be written")
        await queue._run(queue._database.execute, "PRAGMA query_only=OFF")
        await acknowledging
        assert queue._status.troubles == {}


async def _true(value: object) -> bool:
    return bool(value)


async def test_a_wait_for_the_disk_ends_with_a_stop(harness: Harness) -> None:
    async with harness.open() as queue:
        await queue.put(b"one")
        await queue._run(queue._database.execute, "PRAGMA query_only=ON")
        taking = asyncio.ensure_future(queue.take())
        await eventually(lambda: _true(queue._status.troubles), what="the file cannot be written")
        await queue.stop()
        async with asyncio.timeout(10):
            assert await taking == []


# --- a file that does not grow for ever


async def test_the_room_of_what_is_acknowledged_is_used_again(harness: Harness, tmp_path: Path) -> None:
    async with harness.open(prefetch=50) as queue:
        for _ in range(20):
            await asyncio.gather(*(queue.put(b"x" * 4_000) for _ in range(50)))
            await queue.acknowledge((await take(queue, 50))[-1].tag)
    assert (tmp_path / "queue.sqlite").stat().st_size < 3 * 50 * 4_000


async def test_of_messages_about_one_subject_the_last_one_stays(harness: Harness) -> None:
    first, other, last = (
        Message("flags", "s", body, key=key) for body, key in ((b"1", "b/x"), (b"2", "b/y"), (b"3", "b/x"))
    )
    async with harness.open() as queue:
        for message in (first, other, last, Message("dead", None, b"4"), Message("dead", None, b"4")):
            await queue.publish(message)
        assert await queue.messages("flags") == [other, last]
        assert len(await queue.messages("dead")) == 2


async def test_the_journal_forgets(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    async with harness.open() as queue:
        await queue.append(Message("journal", "s", b"old"))
        await queue.append(Message("journal", "s", b"older"))
        assert list(await queue.journal()) == [b"old", b"older"]
        monkeypatch.setattr("consumer.embedded._JOURNAL_AGE_S", 0.0)
        await queue.append(Message("journal", "s", b"new"))
        assert list(await queue.journal()) == [b"new"]


async def test_the_journal_holds_so_many_bytes(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consumer.embedded._JOURNAL_BYTES", 8)
    for numbers in (range(3), range(3, 6)):  # what it holds is counted again when it is opened
        async with harness.open() as queue:
            for number in numbers:
                await queue.append(Message("journal", "s", b"%03d" % number))
                assert len(await queue.journal()) <= 2
    async with harness.open() as queue:
        assert list(await queue.journal()) == [b"004", b"005"]


async def test_a_spool_takes_no_more_than_it_may_hold(tmp_path: Path) -> None:
    for _ in range(2):  # what it holds is counted again when it is opened
        spool = await EventFile.open(tmp_path / "spool.sqlite", prefetch=10, most_bytes=10, name="source.spool")
        if not spool._bytes:
            await spool.put(b"12345678")
        with pytest.raises(UnavailableError, match=r"source\.spool .*: is full, it may hold 10 bytes of events"):
            await spool.put(b"123")
        await spool.close()
    spool = await EventFile.open(tmp_path / "spool.sqlite", prefetch=10, most_bytes=10, name="source.spool")
    await spool.acknowledge((await take(spool, 1))[-1].tag)
    await spool.put(b"123")
    await spool.close()


async def test_what_another_process_puts_into_the_file_is_given_out(harness: Harness, tmp_path: Path) -> None:
    async with harness.open() as queue:
        waiting = asyncio.ensure_future(queue.take())
        await asyncio.sleep(0)
        _execute(
            tmp_path / "queue.sqlite", "INSERT INTO events (body, seen) VALUES (x'61', '2026-11-30T00:00:00+00:00')"
        )
        async with asyncio.timeout(10):
            assert [delivery.body for delivery in await waiting] == [b"a"]
