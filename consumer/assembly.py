"""What of the configuration each part needs, in the words of that part."""

from __future__ import annotations

import math
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from blobmap.policy import Policy, parse_size
from blobmap.storage import StorageOptions, open_storage
from consumer.backfill import BackfillPlan
from consumer.flag_steps import Waits
from consumer.ndjson import NdjsonSink
from consumer.partitioner import Settling
from consumer.pipeline import Plan
from consumer.route import Rules
from consumer.scope_backfill import Pace
from consumer.telling import Addressees
from consumer.topology import Names, Topology, topology

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from blobmap.storage import Storage
    from consumer.settings import Bucket, Settings

# A manifest root that does not answer must not hold up a stop for longer than this.
_STORE_TIMEOUT_S = 15.0


def names(settings: Settings) -> Names:
    """Names at the broker."""
    return Names(
        exchange=settings.source.exchange,
        events=settings.source.queue,
        objects=settings.topology.objects,
        flags=settings.topology.flags,
        dead=settings.topology.dead,
        journal=settings.topology.journal,
        tasks=settings.topology.tasks,
        alerts=settings.topology.alerts,
        manifests=settings.topology.manifests,
    )


def again_s(settings: Settings) -> float:
    """Seconds after which a store that was looked at is looked at once more.

    By then every process has seen its new manifest, and has flagged what it had kept to itself.
    """
    return settings.flags.reflag_s + settings.manifests.lease_s


def laid_out(settings: Settings) -> Topology:
    """Everything that has to exist at the broker."""
    flags = settings.flags
    return topology(
        names(settings),
        movers(settings),
        flag_waits_s=(flags.settle_s, flags.settle_max_s, again_s(settings)),
        task_waits_s=(settings.manifests.lease_s,),
    )


def movers(settings: Settings) -> tuple[str, ...]:
    """Names of the movers."""
    return tuple(mover.name for mover in settings.mover)


def patience_s(settings: Settings) -> float:
    """How long to try with what was delivered before it is given back; without end where nobody could be given it."""
    return math.inf if settings.embedded is not None else settings.sink.patience_s


def plan(settings: Settings) -> Plan:
    """What the pipeline needs."""
    return Plan(
        dialect=settings.source.dialect,
        rules=Rules(own_principals=settings.principals.ignore, manifest_roots=_roots_in_buckets(settings)),
        movers={bucket.name: _movers(settings, bucket.name) for bucket in settings.bucket},
        events=settings.source.queue,
        alerts=settings.topology.alerts,
        dead=settings.topology.dead,
        journal=settings.topology.journal,
        batch_objects=settings.sink.batch_objects,
        batch_s=settings.sink.batch_ms / 1000,
        patience_s=patience_s(settings),
    )


def manifest_roots(settings: Settings) -> Mapping[str, tuple[str, StorageOptions]]:
    """For each bucket where its manifests lie, and how that is reached."""
    return {bucket.name: (bucket.manifests, _storage_options(settings, bucket)) for bucket in settings.bucket}


def data(settings: Settings) -> Mapping[str, Callable[[], Storage]]:
    """For each bucket whose objects may be looked at what opens it; where they are not there yet, it can be later."""
    return {
        bucket.name: partial(open_storage, bucket.data, _storage_options(settings, bucket))
        for bucket in settings.bucket
        if bucket.data is not None
    }


def backfill_plan(settings: Settings) -> BackfillPlan:
    """What backfills need."""
    return BackfillPlan(
        tasks=settings.topology.tasks,
        addressees={
            bucket.name: Addressees(
                bucket.name,
                _movers(settings, bucket.name),
                journal=settings.topology.journal,
                batch_objects=settings.sink.batch_objects,
            )
            for bucket in settings.bucket
        },
        pace=Pace(lease_s=settings.manifests.lease_s),
    )


@contextmanager
def open_lines(settings: Settings) -> Iterator[NdjsonSink | None]:
    """Opens where object records become lines, once for all that write there, as long as the context lasts.

    Yields:
        A sink for them; None where records are messages like all others.

    Raises:
        RefusedError: it cannot be opened.
    """
    kind = settings.sink.kind or ("amqp" if settings.amqp is not None else "ndjson")
    if kind == "amqp":
        yield None
        return
    lines = NdjsonSink(settings.sink.path)
    try:
        yield lines
    finally:
        lines.close()


def settling(settings: Settings) -> Settling:
    """What whoever works off flags needs."""
    flags = settings.flags
    return Settling(
        queue=settings.topology.flags,
        waits=Waits(settle_s=flags.settle_s, settle_max_s=flags.settle_max_s, reflag_s=flags.reflag_s),
        again_s=again_s(settings),
        partition=flags.partition,
        policies={bucket.name: _policy(settings, bucket) for bucket in settings.bucket},
    )


def _policy(settings: Settings, bucket: Bucket) -> Policy:
    """Thresholds of stores in a bucket that have no manifest yet."""
    own = {} if bucket.policy is None else bucket.policy.model_dump(exclude_unset=True)
    given = settings.policy.model_copy(update=own)
    return Policy(
        t_max_bytes=parse_size(given.t_max), t_hot_bytes=parse_size(given.t_hot), t_aux_bytes=parse_size(given.t_aux)
    )


def _movers(settings: Settings, bucket: str) -> dict[str, str]:
    """The movers of a bucket with their queues; one that has no name has its queue's."""
    named = names(settings)
    if not settings.mover:
        return {named.objects: named.mover_queue(None)}
    return {mover.name: named.mover_queue(mover.name) for mover in settings.mover if bucket in mover.buckets}


def _roots_in_buckets(settings: Settings) -> dict[str, tuple[str, ...]]:
    """Where, seen from the gateway, our manifests lie: writes there are not news."""
    roots: dict[str, tuple[str, ...]] = {}
    for bucket in settings.bucket:
        scheme, separator, place = bucket.manifests.partition("://")
        if separator and scheme == "s3":
            name, _, prefix = place.partition("/")
            roots[name] = (*roots.get(name, ()), prefix.strip("/"))
    return roots


def _storage_options(settings: Settings, bucket: Bucket) -> StorageOptions:
    own = {} if bucket.s3 is None else bucket.s3.model_dump(exclude_unset=True)
    s3 = settings.s3.model_copy(update=own)
    secret = s3.secret_access_key
    return StorageOptions(
        endpoint=s3.endpoint,
        region=s3.region,
        access_key_id=s3.access_key_id,
        secret_access_key=None if secret is None else secret.get_secret_value(),
        anonymous=s3.anonymous,
        allow_http=s3.allow_http,
        virtual_hosted=s3.virtual_hosted,
        timeout_s=_STORE_TIMEOUT_S,
    )
