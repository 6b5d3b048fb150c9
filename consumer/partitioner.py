"""Flags worked off: wait for quiet, tell a person once, and partition what nobody has claimed.

What becomes of a flag is decided in `flag_steps`, from what is remembered of its store; here it is done, in an order in
which a kill between any two steps repeats work and loses none: first the manifest, then what is remembered, then what
waits, and the acknowledgement last.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

import structlog

from blobmap import Trie
from blobmap.chunk_keys import METADATA_NAMES
from blobmap.errors import BlobmapError, MissingError, UnreadableError
from blobmap.scan import scan_stores
from blobmap.state import read_state
from consumer.flag_steps import Known, Looked, Waits, is_overdue, next_step, remembered
from consumer.memory import Flagged, Memory, recall, remember
from consumer.outputs import StuckError
from consumer.ports import LostError
from consumer.records import FLAGS_SCHEMA, Message
from consumer.store_look import Look, Seen
from consumer.tasks import Flag, parse_flag
from consumer.topology import wait_queue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from blobmap import ManifestStore, Policy
    from blobmap.manifest import Manifest
    from blobmap.rules import Resolution
    from blobmap.storage import Storage
    from consumer.catalog import Catalog
    from consumer.finder import Finder, Found
    from consumer.ports import Announcer, Sink
    from consumer.store_alerts import StoreAlertKind, StoreAlerts

_log = structlog.get_logger(__name__)

_KINDS: Mapping[str, StoreAlertKind] = {
    "new-store": "unmanaged-store",
    "unclaimed-array": "unclaimed-array",
    "hot-outgrown": "hot-outgrown",
}


class Backfills(Protocol):
    """Who tells movers what they missed."""

    async def consider(self, bucket: str, scope: str, last_seen: datetime | None = None) -> None:
        """Sees to it that a backfill is under way where one is owed.

        Args:
            bucket: name of the bucket.
            scope: that has a manifest.
            last_seen: UTC; when something came that nobody claimed then and somebody claims now.
        """


@dataclass(frozen=True, slots=True)
class Settling:
    """What the configuration says about flags.

    Attributes:
        queue: of the flags.
        waits: how long they wait for what.
        again_s: seconds from one look at a store to the next.
        partition: whether anything is partitioned, or only told.
        policies: for each bucket the thresholds of stores that have no manifest yet.
    """

    queue: str
    waits: Waits
    again_s: float
    partition: bool
    policies: Mapping[str, Policy]


class Partitioner:
    """Handles flags; a `deliveries.Handler`.

    Args:
        settling: what the configuration says.
        data: for each bucket that may be looked at what opens it.
        catalog: the manifests in force.
        finder: finds the store of a key.
        alerts: tells a person.
        announcer: tells other processes of new manifests.
        backfills: tells movers what they missed.
        now: the time of day, UTC.
    """

    def __init__(
        self,
        settling: Settling,
        *,
        data: Mapping[str, Callable[[], Storage]],
        catalog: Catalog,
        finder: Finder,
        alerts: StoreAlerts,
        announcer: Announcer,
        backfills: Backfills,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._settling = settling
        self._data = data
        self._catalog = catalog
        self._finder = finder
        self._alerts = alerts
        self._announcer = announcer
        self._backfills = backfills
        self._now = now

    async def handle(self, body: bytes, sink: Sink) -> None:
        """Handles one flag; see `deliveries.Handler`."""
        flag = parse_flag(body)
        if flag.bucket not in self._catalog.tries:
            _log.warning("flag of a bucket that is not ours", bucket=flag.bucket, key=flag.key)
            return
        try:
            if self._catalog.is_fresh:
                await self._find(flag, sink)
                return
            reason = "the manifests were not compared lately"
        except (LostError, StuckError):
            raise
        except BlobmapError as error:
            reason = str(error)
        _log.warning("flag put off", key=flag.key, reason=reason)
        await self._send(flag, self._settling.again_s, sink)

    # --- whose flag it is

    async def _find(self, flag: Flag, sink: Sink) -> None:
        """Finds out, as of now, which store it is about: a document further out may have come since it was flagged."""
        if flag.scope is not None and (flag.reason != "new-store" or await self._has_been_looked_at(flag)):
            await self._follow(flag, flag.scope, sink)
            return
        found = await self._finder.find(flag.bucket, flag.first_object)
        if found.kind == "store" and found.awaited is not None:
            await self._await(flag, found.awaited, sink)
        elif found.kind == "store":
            await self._follow(flag.model_copy(update={"scope": found.prefix}), found.prefix, sink)
        elif flag.scope is not None:
            await self._follow(flag, flag.scope, sink)
        else:
            await self._leave(flag, found, sink)

    async def _has_been_looked_at(self, flag: Flag) -> bool:
        if flag.scope is None:
            return False
        storage = self._catalog.store(flag.bucket).storage
        memory, _ = await asyncio.to_thread(recall, storage, flag.scope)
        return memory.looked is not None

    async def _await(self, flag: Flag, root: str, sink: Sink) -> None:
        """Waits for the document of a store whose arrays have come before it; not longer than for any store to settle.

        Args:
            flag: of something inside.
            root: where the document will be, if it comes.
            sink: publishes.
        """
        memory, is_news = await self._join(flag, root, suspect=False)
        if is_news:
            await self._alerts.report(flag.bucket, root, "unmanaged-store", flag.first_object)
        known = _known(memory, flag)
        if not self._settling.partition or flag.bucket not in self._data or flag.last_seen < known.last_seen:
            return
        if not is_overdue(known, self._now(), self._settling.waits):
            await self._send(flag, self._settling.waits.settle_s, sink)
            return
        data = await asyncio.to_thread(self._data[flag.bucket])
        scan = await asyncio.to_thread(scan_stores, data, self._catalog.store(flag.bucket), root)
        for store in scan.stores:
            inside = {"key": f"{flag.bucket}/{store.scope}", "scope": store.scope, "prefix": store.scope}
            await self._follow(flag.model_copy(update=inside), store.scope, sink)
        claimed = await asyncio.to_thread(_trie, self._catalog.store(flag.bucket), [one.scope for one in scan.stores])
        await self._alerts.settle(flag.bucket, root, trie=claimed)

    async def _leave(self, flag: Flag, found: Found, sink: Sink) -> None:
        """Ends with what is no store, once it had the time to become one."""
        if self._now() - flag.last_seen < timedelta(seconds=self._settling.waits.settle_s):
            await self._send(flag, self._settling.waits.settle_s, sink)
            return
        await self._change(flag.bucket, found.prefix, lambda memory: memory.model_copy(update={"foreign": found.what}))
        await self._alerts.report(
            flag.bucket, found.prefix, "unmanaged-store", flag.first_object, {"what": found.what or found.kind}
        )

    # --- what becomes of it

    async def _follow(self, flag: Flag, scope: str, sink: Sink) -> None:
        bucket, trie = flag.bucket, self._catalog.tries[flag.bucket]
        invalid = self._catalog.invalid(bucket, scope)
        memory, is_news = await self._join(flag, scope, suspect=invalid is not None)
        if invalid is not None:
            _log.warning("flag put off", key=flag.key, reason=invalid)
            await self._send(flag, self._settling.again_s, sink)
            return
        answer = trie.lookup(flag.first_object)
        if answer.kind == "blob" and answer.scope is not None:
            await self._backfills.consider(bucket, answer.scope, last_seen=flag.last_seen)
        kind = _KINDS[flag.reason]
        if is_news and kind not in memory.alerts and _is_wrong(kind, flag.first_object, answer):
            await self._alerts.report(bucket, scope, kind, flag.first_object)
        if any(raised.resolved is None for raised in memory.alerts.values()):
            await self._alerts.settle(bucket, scope)
        if self._settling.partition and bucket in self._data:
            await self._step(flag, scope, memory, sink)

    async def _step(self, flag: Flag, scope: str, memory: Memory, sink: Sink) -> None:
        waits, now, known = self._settling.waits, self._now(), _known(memory, flag)
        for_size = flag.reason == "hot-outgrown"
        match next_step(flag.last_seen, known, now, waits, for_size=for_size):
            case "drop":
                return
            case "settle":
                await self._send(flag, waits.settle_s, sink)
            case "again":
                if known.looked is not None:
                    await self._send_again(flag, known.looked, sink, is_first=True)
            case "look":
                in_time = for_size or is_overdue(known, now, waits)
                await self._look(flag, scope, known, quiet_s=None if in_time else waits.settle_s, sink=sink)

    async def _look(self, flag: Flag, scope: str, known: Known, *, quiet_s: float | None, sink: Sink) -> None:
        look, seen = Looked(covered=known.last_seen, began=self._now()), Seen()
        log = _log.bind(bucket=flag.bucket, scope=scope)
        try:
            seen = await self._see(flag.bucket, scope, quiet_s=quiet_s, whole=flag.reason == "hot-outgrown")
        except MissingError as error:
            log.info("no store", reason=str(error))
            if not await self._is_root(flag, scope):
                await self._send(flag.model_copy(update={"scope": None}), self._settling.waits.settle_s, sink)
                return
        except BlobmapError as error:
            look = look.model_copy(update={"failed": str(error)})
            log.warning("not partitioned", reason=look.failed)
        if seen.restless:
            log.info("restless", quiet_s=quiet_s)
            await self._send(flag, self._settling.waits.settle_s, sink)
            return
        if seen.outcome is not None and seen.epoch is not None:
            difference = seen.outcome.difference
            log.info("partitioned", epoch=seen.epoch, added=difference.added, unclaimed=len(seen.unclaimed))
            await self._tell(flag.bucket, seen.outcome.manifest)
        if seen.unclaimed:
            await self._alerts.report(
                flag.bucket, scope, "unclaimed-array", _object_of(flag, scope, seen), {"arrays": len(seen.unclaimed)}
            )
        await self._end(flag, scope, look, seen, is_news=known.is_news(flag.last_seen), sink=sink)

    async def _end(self, flag: Flag, scope: str, look: Looked, seen: Seen, *, is_news: bool, sink: Sink) -> None:
        """Remembers a look, and sends the flag that leads to the next one."""
        for_size, is_cut = flag.reason == "hot-outgrown", seen.epoch is not None
        if seen.is_hot_for_size:
            look = look.model_copy(update={"hot_since": look.began})

        def change(memory: Memory) -> Memory:
            looked = remembered(look, memory.looked, is_cut=is_cut, is_news=is_news, for_size=for_size)
            return memory.model_copy(update={"looked": looked})

        looked = (await self._change(flag.bucket, scope, change)).looked
        if for_size and not is_news and not is_cut:
            if look.failed is not None:
                await self._send(flag, self._settling.again_s, sink)
        elif looked is not None and not looked.done:
            await self._send_again(flag, looked, sink, is_first=is_cut)

    async def _is_root(self, flag: Flag, scope: str) -> bool:
        """Whether a store where nothing is now belongs there nevertheless: somebody has deleted it meanwhile."""
        if scope in self._catalog.tries[flag.bucket].scopes():
            return True
        found = await self._finder.find(flag.bucket, flag.first_object)
        return (found.kind, found.prefix) == ("store", scope)

    async def _see(self, bucket: str, scope: str, *, quiet_s: float | None, whole: bool) -> Seen:
        """Looks at a store in a thread, which ends soon where nobody waits for it any more."""
        manifests = self._catalog.store(bucket)
        trie, policy = self._catalog.tries[bucket], self._settling.policies[bucket]
        data = await asyncio.to_thread(self._data[bucket])
        look = Look(data, manifests, trie, policy)
        try:
            return await asyncio.to_thread(look.at, scope, quiet_s=quiet_s, whole=whole)
        finally:
            look.give_up()

    async def _tell(self, bucket: str, manifest: Manifest) -> None:
        """Makes known that a manifest is new; whoever does not hear it finds out by itself."""
        self._catalog.ask(bucket, manifest.scope)
        await self._announcer.announce(bucket, manifest.scope, manifest.epoch)
        await self._backfills.consider(bucket, manifest.scope)
        trie = Trie()
        trie.add(manifest)
        await self._alerts.settle(bucket, manifest.scope, trie=trie)

    # --- what is remembered

    async def _join(self, flag: Flag, scope: str, *, suspect: bool) -> tuple[Memory, bool]:
        """Remembers a flag. What is remembered then, and whether the flag tells of what no look has covered."""
        if scope not in self._catalog.tries[flag.bucket].scopes():
            suspect = suspect or await asyncio.to_thread(_is_gone, self._catalog.store(flag.bucket), scope)

        def join(memory: Memory) -> Memory:
            known = _known(memory, flag)
            is_latest = memory.flagged is None or flag.last_seen > memory.flagged.last_seen
            flagged = Flagged(
                first_seen=known.first_seen,
                last_seen=known.last_seen,
                first_object=flag.first_object if is_latest or memory.flagged is None else memory.flagged.first_object,
            )
            changes = {"flagged": flagged, "foreign": None, "suspect": memory.suspect or suspect}
            return memory.model_copy(update=changes)

        memory = await self._change(flag.bucket, scope, join)
        return memory, _known(memory, flag).is_news(flag.last_seen)

    async def _change(self, bucket: str, scope: str, change: Callable[[Memory], Memory]) -> Memory:
        return await asyncio.to_thread(remember, self._catalog.store(bucket).storage, scope, change)

    # --- what waits

    async def _send_again(self, flag: Flag, looked: Looked, sink: Sink, *, is_first: bool) -> None:
        """Sends what comes after a look.

        Args:
            flag: that led to it.
            looked: the look.
            sink: publishes.
            is_first: whether a flag is to be sent, too, for arrays that it has left on disk for their size alone.
        """
        flag = flag.model_copy(update={"last_seen": looked.covered})
        reason = "unclaimed-array" if flag.reason == "hot-outgrown" else flag.reason
        await self._send(flag.model_copy(update={"reason": reason}), self._settling.again_s, sink)
        if is_first and looked.hot_since is not None:
            later = flag.model_copy(update={"reason": "hot-outgrown"})
            await self._send(later, self._settling.waits.settle_max_s, sink)

    async def _send(self, flag: Flag, wait_s: float, sink: Sink) -> None:
        queue = wait_queue(self._settling.queue, wait_s)
        body = flag.model_dump_json(by_alias=True).encode()
        await sink.publish(Message(queue, FLAGS_SCHEMA, body, key=f"{flag.key} {flag.reason}"))


def _object_of(flag: Flag, scope: str, seen: Seen) -> str:
    """What stands for the arrays that could not be claimed: the object that was flagged, if it is in one of them."""
    below = flag.first_object.removeprefix(f"{scope}/" if scope else "")
    inside = any(below.startswith(f"{path}/" if path else "") for path in seen.unclaimed)
    if inside and flag.first_object.rpartition("/")[2] not in METADATA_NAMES:
        return flag.first_object
    return "/".join(part for part in (scope, seen.unclaimed[0]) if part)


def _is_wrong(kind: StoreAlertKind, key: str, answer: Resolution) -> bool:
    """Whether a person has to know. A document is on disk whatever is claimed: only the scope around it can tell."""
    if key.rpartition("/")[2] in METADATA_NAMES:
        return kind == "unmanaged-store" and answer.scope is None
    return answer.kind == ("hot" if kind == "hot-outgrown" else "unmanaged")


def _trie(manifests: ManifestStore, scopes: list[str]) -> Trie:
    """What the manifests of some scopes claim, as they are stored."""
    trie = Trie()
    for scope in scopes:
        with suppress(MissingError):
            trie.add(manifests.read(scope).manifest)
    return trie


def _is_gone(manifests: ManifestStore, scope: str) -> bool:
    """Whether a scope had a manifest and has none: what was told meanwhile, and under what, is not known."""
    if read_state(manifests.storage, scope).highest_epoch == 0:
        return False
    try:
        manifests.read(scope)
    except MissingError:
        return True
    except UnreadableError:
        return False  # whoever keeps the manifests says so
    return False


def _known(memory: Memory, flag: Flag) -> Known:
    """What all flags of a store say, this one included."""
    flagged = memory.flagged
    if flagged is None:
        return Known(flag.first_seen, flag.last_seen, memory.looked)
    return Known(flagged.first_seen, flagged.last_seen, memory.looked).joined(flag.first_seen, flag.last_seen)
