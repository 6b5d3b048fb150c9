"""Nothing is lost and nothing is made up: what went in is told, queued or set aside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.support.site import DEAD, EVENTS, JOURNAL, records
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.support.amqp import Bench

# Column of the key in an entry of the journal.
KEY = 0


async def assert_accounts_balance(at: Bench, keys: Iterable[str], *, told_before: Iterable[str] = ()) -> None:
    """Every key that a gateway announced is told, or its message is queued or a dead letter; and no other key is.

    Args:
        at: the broker, with no daemon at it; takes everything out of its queues.
        keys: what was announced, each key in one message.
        told_before: keys of records that the test has taken out of the movers' queue.
    """
    announced = set(keys)

    async def at_rest() -> bool:
        return await at.consumers(EVENTS) == 0

    await eventually(at_rest, what="the daemon's consumer is gone")
    told = {record["key"] for record in await records(at)} | set(told_before)
    queued = {_key(got.body) for got in await at.drain(EVENTS)}
    dead = {_key(got.body) for got in await at.drain(DEAD)}
    assert told | queued | dead == announced, "lost, or made up"
    assert not dead & (told | queued), "set aside, and handled nevertheless"
    journalled = announced & await journalled_keys(at)
    assert journalled <= told, "written down, and not told"
    assert announced - queued - dead <= journalled, "acknowledged, and not written down"


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
