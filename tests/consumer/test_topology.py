from __future__ import annotations

import dataclasses

from consumer.topology import Binding, Exchange, Names, topology

QUORUM = {"x-queue-type": "quorum"}


def test_without_movers_there_is_one_queue_of_objects() -> None:
    assert topology(Names()) == topology(Names(), ())
    queues = {queue.name: queue.arguments for queue in topology(Names()).queues}
    assert queues == {
        "blobmap.dead": QUORUM,
        "blobmap.events": QUORUM
        | {
            "x-delivery-limit": 200,
            "x-dead-letter-exchange": "blobmap.dead",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        },
        "blobmap.objects": QUORUM,
        "blobmap.flags": QUORUM,
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
    assert laid_out.exchanges == (Exchange("s3.events", "topic"), Exchange("blobmap.dead", "fanout"))
    assert laid_out.bindings == (
        Binding("blobmap.dead", "blobmap.dead", ""),
        Binding("s3.events", "blobmap.events", "#"),
    )


def test_every_name_can_be_changed() -> None:
    names = Names(**{field.name: f"x.{field.name}" for field in dataclasses.fields(Names)})
    laid_out = topology(names, ("m",))
    used = {exchange.name for exchange in laid_out.exchanges} | {queue.name for queue in laid_out.queues}
    assert used == {"x.exchange", "x.events", "x.objects.m", "x.flags", "x.dead", "x.journal"}
    bound = {(binding.exchange, binding.queue) for binding in laid_out.bindings}
    assert bound == {("x.dead", "x.dead"), ("x.exchange", "x.events")}


def test_a_queue_is_found_by_its_name() -> None:
    laid_out = topology(Names())
    assert laid_out.queue("blobmap.flags") in laid_out.queues
    assert laid_out.queue("somebody.elses") is None
