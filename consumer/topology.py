"""Exchanges, queues and bindings, as data.

Pure. Whether a queue is durable and what its arguments are is said here and nowhere else; `broker` declares it.
The arguments are those of RabbitMQ's guides on quorum queues and on dead lettering.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Arguments: TypeAlias = Mapping[str, str | int]

# A last resort only. The broker counts every return of a message, also those of an orderly stop, so that a low limit
# takes good messages away after a few restarts.
DELIVERY_LIMIT = 200

# A stream forgets whole segments only, so that small ones let it keep to its limits; each is a file.
_JOURNAL: Arguments = {
    "x-queue-type": "stream",
    "x-max-age": "7D",
    "x-max-length-bytes": 20_000_000_000,
    "x-stream-max-segment-size-bytes": 50_000_000,
}

# Nobody has to read alerts; the newest are worth most. Whoever raised one keeps it in mind elsewhere.
_ALERTS: Arguments = {"x-queue-type": "quorum", "x-max-length": 10_000, "x-overflow": "drop-head"}


# Of each process's own queue of announcements: what a dead one leaves goes by itself, and one that does not keep up
# misses some, which it finds out by itself.
LISTENING: Arguments = {
    "x-queue-type": "classic",
    "x-expires": 60_000,
    "x-max-length": 1_000,
    "x-overflow": "drop-head",
}


@dataclass(frozen=True, slots=True)
class Names:
    """Names of everything at the broker.

    Attributes:
        exchange: topic exchange that the gateway publishes to.
        events: queue of what it publishes.
        objects: queue of object records; with movers, the beginning of their queues' names.
        flags: queue of what is to be partitioned.
        dead: queue of what could not be handled, and the fanout exchange before it.
        journal: stream of what movers were told.
        tasks: queue of what workers have to list.
        alerts: queue of what a person should know.
        manifests: fanout exchange of what has become of manifests.
    """

    exchange: str = "s3.events"
    events: str = "blobmap.events"
    objects: str = "blobmap.objects"
    flags: str = "blobmap.flags"
    dead: str = "blobmap.dead"
    journal: str = "blobmap.journal"
    tasks: str = "blobmap.tasks"
    alerts: str = "blobmap.alerts"
    manifests: str = "blobmap.manifests"

    def mover_queue(self, mover: str | None) -> str:
        """Name of the queue of one mover; None where there are no movers."""
        return self.objects if mover is None else f"{self.objects}.{mover}"


def wait_queue(queue: str, seconds: float) -> str:
    """Name of the queue where a message waits that long before it goes (back) into a queue."""
    return f"{queue}.wait.{seconds:g}"


@dataclass(frozen=True, slots=True)
class Exchange:
    """A durable exchange."""

    name: str
    kind: Literal["topic", "fanout"]


@dataclass(frozen=True, slots=True)
class Queue:
    """A durable queue."""

    name: str
    arguments: Arguments


@dataclass(frozen=True, slots=True)
class Binding:
    """What of an exchange goes into a queue."""

    exchange: str
    queue: str
    routing_key: str


@dataclass(frozen=True, slots=True)
class Topology:
    """Everything that has to exist, in the order in which it can be declared.

    Attributes:
        exchanges: the exchanges.
        queues: the queues; those that a process has for itself are not among them.
        bindings: the bindings.
        announcements: exchange that tells every process what has become of manifests.
    """

    exchanges: tuple[Exchange, ...]
    queues: tuple[Queue, ...]
    bindings: tuple[Binding, ...]
    announcements: str

    def queue(self, name: str) -> Queue | None:
        """The queue of that name, None where it is none of ours."""
        return next((queue for queue in self.queues if queue.name == name), None)


def topology(
    names: Names,
    movers: tuple[str, ...] = (),
    *,
    flag_waits_s: Iterable[float] = (),
    task_waits_s: Iterable[float] = (),
) -> Topology:
    """Lays out everything that the daemon uses.

    Args:
        names: names, as configured.
        movers: names of the movers; without any there is one queue of object records.
        flag_waits_s: seconds that a flag can wait.
        task_waits_s: seconds that a task can wait.

    Returns:
        Exchanges, queues and bindings.
    """
    quorum: Arguments = {"x-queue-type": "quorum"}
    # At least once: without both of these the broker may lose a message on its way from one queue to the next.
    safely: Arguments = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
    ours: Arguments = {
        **quorum,
        "x-delivery-limit": DELIVERY_LIMIT,
        "x-dead-letter-exchange": names.dead,
        **safely,
    }
    waiting = sorted(
        {
            (queue, seconds)
            for queue, waits_s in ((names.flags, flag_waits_s), (names.tasks, task_waits_s))
            for seconds in waits_s
        }
    )
    return Topology(
        exchanges=(
            Exchange(names.exchange, "topic"),
            Exchange(names.dead, "fanout"),
            Exchange(names.manifests, "fanout"),
        ),
        queues=(
            Queue(names.dead, quorum),
            Queue(names.events, ours),
            *(Queue(names.mover_queue(mover), quorum) for mover in movers or (None,)),
            Queue(names.flags, ours),
            Queue(names.tasks, ours),
            *(
                Queue(
                    wait_queue(queue, seconds),
                    {
                        **quorum,
                        "x-message-ttl": round(seconds * 1000),
                        "x-dead-letter-exchange": "",
                        "x-dead-letter-routing-key": queue,
                        **safely,
                    },
                )
                for queue, seconds in waiting
            ),
            Queue(names.alerts, _ALERTS),
            Queue(names.journal, _JOURNAL),
        ),
        bindings=(Binding(names.dead, names.dead, ""), Binding(names.exchange, names.events, "#")),
        announcements=names.manifests,
    )
