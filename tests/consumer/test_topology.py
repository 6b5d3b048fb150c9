from __future__ import annotations

import dataclasses

from consumer.topology import Binding, Exchange, Names, topology

QUORUM = {"x-queue-type": "quorum"}
SAFELY = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
OURS = QUORUM | {"x-delivery-limit": 200, "x-dead-letter-exchange": "blobmap.dead"} | SAFELY


def test_without_movers_there_is_one_queue_of_objects() -> None:
    assert topology(Names()) == topology(Names(), ())
    queues = {queue.name: queue.arguments for queue in topology(Names()).queues}
    assert queues == {
        "blobmap.dead": QUORUM,
        "blobmap.events": OURS,
        "blobmap.objects": QUORUM,
        "blobmap.flags": OURS,
        "blobmap.tasks": OURS,
        "blobmap.alerts": QUORUM | {"x-max-length": 10_000, "x-overflow": "drop-head"},
        "blobmap.journal": {
            "x-queue-type": "stream",
            "x-max-age": "7D",
            "x-max-length-bytes": 20_000_000_000,
            "x-stream-max-segment-size-bytes": 50_000_000,
        },
    }


def test_every_mover_has_its_queue() -> None:
    laid_out = topology(Names(), ("tape-a", "tape-b"))
    assert [queue.name for queue in laid_out.queues if "objects" in queue.name] == [
        "blobmap.objects.tape-a",
        "blobmap.objects.tape-b",
    ]


def test_exchanges_and_bindings() -> None:
    laid_out = topology(Names())
    assert laid_out.exchanges == (
        Exchange("s3.events", "topic"),
        Exchange("blobmap.dead", "fanout"),
        Exchange("blobmap.manifests", "fanout"),
    )
    assert laid_out.bindings == (
        Binding("blobmap.dead", "blobmap.dead", ""),
        Binding("s3.events", "blobmap.events", "#"),
    )


def test_every_name_can_be_changed() -> None:
    names = Names(**{field.name: f"x.{field.name}" for field in dataclasses.fields(Names)})
    laid_out = topology(names, ("m",), flag_waits_s=(1,), task_waits_s=(2,))
    used = {exchange.name for exchange in laid_out.exchanges} | {queue.name for queue in laid_out.queues}
    assert used == {
        *("x.exchange", "x.events", "x.objects.m", "x.flags", "x.flags.wait.1", "x.tasks", "x.tasks.wait.2"),
        *("x.alerts", "x.manifests", "x.dead", "x.journal"),
    }
    bound = {(binding.exchange, binding.queue) for binding in laid_out.bindings}
    assert bound == {("x.dead", "x.dead"), ("x.exchange", "x.events")}


def test_what_waits_goes_back_after_the_time_in_the_name() -> None:
    laid_out = topology(Names(), flag_waits_s=(600, 0.5, 600), task_waits_s=(120,))
    waiting = {queue.name: queue.arguments for queue in laid_out.queues if ".wait." in queue.name}
    back = QUORUM | {"x-dead-letter-exchange": ""} | SAFELY
    assert waiting == {
        "blobmap.flags.wait.600": back | {"x-message-ttl": 600_000, "x-dead-letter-routing-key": "blobmap.flags"},
        "blobmap.flags.wait.0.5": back | {"x-message-ttl": 500, "x-dead-letter-routing-key": "blobmap.flags"},
        "blobmap.tasks.wait.120": back | {"x-message-ttl": 120_000, "x-dead-letter-routing-key": "blobmap.tasks"},
    }


def test_a_queue_is_found_by_its_name() -> None:
    laid_out = topology(Names())
    assert laid_out.queue("blobmap.flags") in laid_out.queues
    assert laid_out.queue("somebody.elses") is None
