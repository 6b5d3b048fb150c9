"""Nothing is lost and nothing is made up: what went in is told, queued, set aside or spooled."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from tests.support.site import DEAD, EVENTS, JOURNAL, records
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.support.amqp import Bench

# Column of the key in an entry of the journal.
KEY = 0


async def assert_accounts_balance(
    at: Bench,
    keys: Iterable[str],
    *,
    told_before: Iterable[str] = (),
    spool: Path | None = None,
    unanswered: Iterable[str] = (),
) -> None:
    """Every key that a gateway announced is told, or its message is queued, a dead letter or spooled; no other key is.

    Args:
        at: the broker, with no daemon at it; takes everything out of its queues.
        keys: what was announced, each key in one message.
        told_before: keys of records that the test has taken out of the movers' queue.
        spool: file of a bridge that is not running, None where there is no bridge.
        unanswered: what was posted to a bridge that did not answer any more: it may have it or not.
    """
    announced = set(keys)

    async def at_rest() -> bool:
        return await at.consumers(EVENTS) == 0

    await eventually(at_rest, what="the daemon's consumer is gone")
    told = {record["key"] for record in await records(at)} | set(told_before)
    queued = {_key(got.body) for got in await at.drain(EVENTS)}
    dead = {_key(got.body) for got in await at.drain(DEAD)}
    spooled = set() if spool is None else spooled_keys(spool)
    found = told | queued | dead | spooled
    assert found >= announced, "lost"
    announced |= found & set(unanswered)
    assert found == announced, "made up"
    assert not dead & (told | queued), "set aside, and handled nevertheless"
    journalled = announced & await journalled_keys(at)
    assert journalled <= told, "written down, and not told"
    assert announced - queued - dead - spooled <= journalled, "acknowledged, and not written down"


def spooled_keys(spool: Path) -> set[str]:
    """Keys of the events in the file of a bridge."""
    with closing(sqlite3.connect(spool)) as database:
        return {_key(body) for (body,) in database.execute("SELECT body FROM events")}


async def journalled_keys(at: Bench) -> set[str]:
    """Keys of the entries in the journal."""
    return {
        entry[KEY]
        for body in await at.read_stream(JOURNAL)
        for group in json.loads(body)["told"]
        for entry in group["entries"]
    }


def _key(body: bytes) -> str:
    (record,) = json.loads(body)["Records"]
    key: str = record["s3"]["object"]["key"]
    return key
