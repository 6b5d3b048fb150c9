"""Events a second, end to end in one process, beside three consumers that do nothing, on the same pre-filled queue.

    python -m tests.bench.bench_events [--events N] [--prefetch N] [--rounds N]

Ours decodes, resolves, publishes confirmed batches and the journal, and acknowledges; the others acknowledge only:
aio-pika's callback each message, a raw aiormq channel and pika's BlockingConnection every 500. One JSON line: medians
of the rounds, and our ratio to each. pika is needed for the third (`pip install pika`), which is left out without it.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import json
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aio_pika
import aiormq
import uvloop

from consumer.address import parse_address
from consumer.broker import connect, open_session
from consumer.declare import declare
from consumer.finder import Finder
from consumer.flags import FlagBook
from consumer.pipeline import Pipeline, Plan
from consumer.ports import Status
from consumer.route import Rules
from consumer.topology import Names, topology
from tests.services.rabbitmq import RabbitMQ
from tests.support.amqp import bench
from tests.support.manifests import AlwaysFresh, manifest, trie
from tests.support.notifications import created

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aiormq.abc import DeliveredMessage

    from consumer.intake import BrokerSource

QUEUE = "blobmap.events"
ACK_EVERY = 500
PLAN = Plan(
    dialect="versitygw",
    rules=Rules(),
    movers={"b": {"m": "blobmap.objects"}},
    events=QUEUE,
    alerts="blobmap.alerts",
    dead="blobmap.dead",
    journal="blobmap.journal",
    batch_objects=500,
    batch_s=0.1,
    patience_s=600,
)


async def fill(url: str, count: int) -> None:
    """Declares everything and publishes so many events."""
    async with connect(parse_address(url)) as connection:
        await declare(connection, topology(Names()))
    async with bench(url) as at:
        bodies = [created("b", f"s.zarr/t/c/{n}/0/0", etag=f"{n:032x}") for n in range(count)]
        for first in range(0, count, 1000):
            await asyncio.gather(*(at.publish([body], routing_key=QUEUE) for body in bodies[first : first + 1000]))


class Counted:
    """A source that says when everything is acknowledged; tags count from 1."""

    def __init__(self, source: BrokerSource, count: int) -> None:
        self.done = asyncio.Event()
        self.prefetch = source.prefetch
        self.take = source.take
        self.stop = source.stop
        self._source = source
        self._count = count

    async def acknowledge(self, tag: int) -> None:
        await self._source.acknowledge(tag)
        if tag >= self._count:
            self.done.set()


async def ours(url: str, count: int, prefetch: int) -> float:
    """Seconds until every event is acknowledged."""
    stop, status = asyncio.Event(), Status()
    async with open_session(
        parse_address(url), topology(Names()), queue=QUEUE, prefetch=prefetch, status=status
    ) as session:
        source = Counted(session.source, count)
        pipeline = Pipeline(
            PLAN,
            source=source,
            objects=session.sink,
            others=session.sink,
            journal=session.sink,
            manifests=AlwaysFresh({"b": trie(manifest("s.zarr"))}),
            flags=FlagBook("blobmap.flags", reflag_s=60),
            finder=Finder({}),
            status=status,
        )
        began = time.perf_counter()
        run = asyncio.ensure_future(pipeline.run(stop))
        await source.done.wait()
        seconds = time.perf_counter() - began
        stop.set()
        await run
    return seconds


async def aio_pika_each(url: str, count: int, prefetch: int) -> float:
    """aio-pika as its documentation shows it: a callback, and an acknowledgement for each message."""
    done, seen = asyncio.Event(), 0

    async def handle(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        nonlocal seen
        await message.ack()
        seen += 1
        if seen == count:
            done.set()

    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=prefetch)
        queue = await channel.get_queue(QUEUE)
        began = time.perf_counter()
        await queue.consume(handle)
        await done.wait()
        return time.perf_counter() - began


async def aiormq_every_500(url: str, count: int, prefetch: int) -> float:
    """A raw channel: a callback, and an acknowledgement for every 500 messages."""
    done, seen = asyncio.Event(), 0
    connection = await aiormq.connect(url)
    channel = await connection.channel()

    async def handle(message: DeliveredMessage) -> None:
        nonlocal seen
        seen += 1
        if seen % ACK_EVERY == 0 or seen == count:
            await channel.basic_ack(message.delivery_tag or 0, multiple=True, wait=False)
        if seen == count:
            done.set()

    await channel.basic_qos(prefetch_count=prefetch)
    began = time.perf_counter()
    await channel.basic_consume(QUEUE, handle)
    await done.wait()
    seconds = time.perf_counter() - began
    await connection.close()
    return seconds


def pika_every_500(url: str, count: int, prefetch: int) -> float:
    """pika's BlockingConnection, an acknowledgement for every 500 messages."""
    pika: Any = importlib.import_module("pika")
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=prefetch)
    began = time.perf_counter()
    for seen, (method, _, _) in enumerate(channel.consume(QUEUE), start=1):
        if seen % ACK_EVERY == 0 or seen == count:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if seen == count:
            break
    seconds = time.perf_counter() - began
    connection.close()
    return seconds


def run_async(
    work: Callable[[str, int, int], Coroutine[Any, Any, float]], url: str, count: int, prefetch: int
) -> float:
    """One consumer on a loop of its own, uvloop as the daemon uses it."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work(url, count, prefetch))


def main() -> None:
    """Measures all of them in turn, as often as there are rounds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--prefetch", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    consumers: dict[str, Callable[[str], float]] = {
        name: partial(run_async, work, count=given.events, prefetch=given.prefetch)
        for name, work in (("ours", ours), ("aio_pika_each", aio_pika_each), ("aiormq_every_500", aiormq_every_500))
    }
    if importlib.util.find_spec("pika") is not None:
        consumers["pika_every_500"] = lambda url: pika_every_500(url, given.events, given.prefetch)
    rates: dict[str, list[float]] = {name: [] for name in consumers}
    with tempfile.TemporaryDirectory() as directory, RabbitMQ(Path(directory)) as broker:
        for round_number in range(given.rounds):
            for name, consume in consumers.items():
                vhost = f"{name}-{round_number}"
                broker.add_vhosts([vhost])
                asyncio.run(fill(broker.url_of(vhost), given.events))
                rates[name].append(given.events / consume(broker.url_of(vhost)))
    medians = {name: statistics.median(found) for name, found in rates.items()}
    ratios = {name: round(medians["ours"] / rate, 2) for name, rate in medians.items() if name != "ours"}
    print(  # noqa: T201  # the line is the result
        json.dumps(
            {
                "bench": "events",
                "events": given.events,
                "prefetch": given.prefetch,
                "rounds": given.rounds,
                "per_second": {name: round(rate) for name, rate in medians.items()},
                "ours_to": ratios,
            }
        )
    )


if __name__ == "__main__":
    main()
