"""One run: war for some time, then peace, then the score."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.services.gateway import Gateway, WebhookEvents
from tests.services.rabbitmq import RabbitMQ
from tests.services.webhook import WebhookListener
from tests.soak.adversary import Adversary
from tests.soak.forwarder import Forwarder
from tests.soak.mover import Mover
from tests.soak.score import Score, keep_score
from tests.soak.site import DATA, MOVER, SoakSite
from tests.soak.writers import Writers

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

_PEACE_S = 180.0
_QUIET_S = 6.0
_LOOK_S = 1.0


@dataclass
class Report:
    """What a run gave.

    Attributes:
        score: how it ended.
        puts: objects put, overwritten ones counted each time.
        stores: how many there are.
        attacks: what the adversary did.
        records: what movers were told, by source, repetitions counted.
        alerts: how many subjects a person was told of.
        delays_s: for each store the seconds from its last write to its last record, in growing order.
        waiting: messages that were left in our queues.
    """

    score: Score
    puts: int
    stores: int
    attacks: Counter[str]
    records: Counter[str]
    alerts: int
    delays_s: list[float]
    waiting: dict[str, int]


async def soak(directory: Path, gateway_binary: Path, *, seed: int, war_s: float) -> Report:
    """Runs the site under attack, lets it come to rest, and keeps the score.

    Args:
        directory: where everything goes.
        gateway_binary: the gateway's program.
        seed: decides about writers and adversary.
        war_s: seconds of writing under attack.
    """
    with (
        RabbitMQ(directory / "broker") as broker,
        WebhookListener() as listener,
        Gateway(gateway_binary, directory / "gateway", events=WebhookEvents(listener.url)) as gateway,
    ):
        site = SoakSite(directory, gateway, broker)
        forwarder = Forwarder(listener, broker.url, "s3.events")
        mover = Mover(broker.url, f"blobmap.objects.{MOVER}", "blobmap.alerts")
        async with site.running(), forwarder.running(), mover.running():
            writers = Writers(gateway.store(DATA), seed)
            adversary = Adversary(site, writers, seed)
            await _war(writers, adversary, war_s)
            waiting = await _peace(broker, forwarder, mover)
            return Report(
                score=keep_score(site, writers, mover, forwarder),
                puts=writers.puts,
                stores=len(writers.stores),
                attacks=adversary.done,
                records=mover.records,
                alerts=len(mover.alerts),
                delays_s=sorted(
                    max(0.0, mover.last_of.get(scope, last) - last) for scope, last in writers.last_of.items()
                ),
                waiting=waiting,
            )


async def _war(writers: Writers, adversary: Adversary, war_s: float) -> None:
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as fighting:
        fighting.create_task(writers.run(stop))
        fighting.create_task(adversary.run(stop))
        await asyncio.sleep(war_s)
        stop.set()


async def _peace(broker: RabbitMQ, forwarder: Forwarder, mover: Mover) -> dict[str, int]:
    """Waits until nothing moves any more; says what lies in our queues then."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PEACE_S
    quiet_since = loop.time()
    counted = -1
    waiting: dict[str, int] = {}
    while loop.time() < deadline:
        waiting = await asyncio.to_thread(_depths, broker)
        moved = sum(mover.records.values())
        if waiting or forwarder.waiting or moved != counted:
            quiet_since, counted = loop.time(), moved
        elif loop.time() - quiet_since > _QUIET_S:
            return {}
        await asyncio.sleep(_LOOK_S)
    return waiting


def _depths(broker: RabbitMQ) -> dict[str, int]:
    """Messages in each queue that has any, those that somebody has taken too; a journal is not there to be emptied."""
    lines = broker.ctl("list_queues", "--no-table-headers", "name", "messages").splitlines()
    depths = {name: int(count) for name, count in (line.split("\t") for line in lines)}
    return {name: count for name, count in depths.items() if count and not name.endswith(".journal")}
