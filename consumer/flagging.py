"""From unclaimed objects to confirmed flags: whose flag each of them needs, and what has to wait for it.

Nothing here is awaited by who hands in an event. What memory cannot answer is looked up beside the stream of events,
and what came from one folder meanwhile waits for one answer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from blobmap.errors import UnavailableError
from consumer.finder import Found, is_store_name
from consumer.records import FlagSubject

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from consumer.events import ObjectEvent
    from consumer.finder import Finder
    from consumer.ledger import Entry
    from consumer.ports import Flags, Status
    from consumer.records import Message
    from consumer.route import Document, Unclaimed

_log = structlog.get_logger(__name__)

# Whoever cannot be told from where an object comes in this time is told by a worker, which may take longer.
_PATIENCE_S = 5.0

# Workers take a flag's time for that of everything that it stands for; see the decision on how flags come to their end.
_HELD_UP_S = 1.0

# Prefixes of foreign data that are counted each; what comes under further ones is counted together.
_MOST_COUNTED = 1000
_OTHERS = "other prefixes"


class Flagging:
    """What one session flags.

    Args:
        finder: finds stores.
        flags: what was flagged.
        publish: publishes until it is safe.
        release: told of deliveries one output of which is done.
        tasks: where work beside the stream is done.
        status: where to count.
    """

    def __init__(
        self,
        finder: Finder,
        flags: Flags,
        *,
        publish: Callable[[Message], Awaitable[None]],
        release: Callable[[Iterable[Entry]], None],
        tasks: asyncio.TaskGroup,
        status: Status,
    ) -> None:
        self._finder = finder
        self._flags = flags
        self._publish = publish
        self._release = release
        self._tasks = tasks
        self._status = status
        self._asked: dict[tuple[str, str], list[tuple[ObjectEvent, Entry]]] = {}
        self._waiting: dict[FlagSubject, list[Entry]] = {}

    def unclaimed(self, outcome: Unclaimed, entry: Entry) -> None:
        """Takes an object that no rule covers; its delivery waits for the flag, unless one was confirmed lately."""
        event, scope = outcome.event, outcome.scope
        if scope is not None:
            self._flag(_below(event, scope), event, entry)
            return
        found = self._finder.known(event.bucket, event.key)
        if found is not None:
            self._flag(self._subject(found, event), event, entry)
        elif not self._flags.stands(_raw(event)):
            self._ask(event, entry)

    def document(self, outcome: Document, entry: Entry) -> None:
        """Takes a zarr document that was written: it can turn what was foreign into a store."""
        event, scope = outcome.event, outcome.scope
        self._finder.void(event.bucket, event.key)
        if outcome.known:
            return
        if scope is None:
            self._ask(event, entry)
        else:
            entry.open_outputs += 1
            self._tasks.create_task(self._judge(event, scope, entry))

    # --- which store

    def _ask(self, event: ObjectEvent, entry: Entry) -> None:
        entry.open_outputs += 1
        folder = (event.bucket, _folder(event.key))
        asked = self._asked.get(folder)
        if asked is None:
            self._asked[folder] = [(event, entry)]
            self._tasks.create_task(self._find(folder, event.key))
        else:
            asked.append((event, entry))

    async def _find(self, folder: tuple[str, str], key: str) -> None:
        found: Found | None = None
        try:
            async with asyncio.timeout(_PATIENCE_S):
                found = await self._finder.find(folder[0], key)
        except (TimeoutError, UnavailableError) as error:
            self._status.counts["flagged before found"] += 1
            _log.debug("flagged before found", bucket=folder[0], key=key, reason=str(error) or "no answer in time")
        for event, entry in self._asked.pop(folder):
            self._flag(_raw(event) if found is None else self._subject(found, event), event, entry, held=True)

    async def _judge(self, event: ObjectEvent, scope: str, entry: Entry) -> None:
        """Flags a document inside a scope, unless it is that of a group: a group holds nothing to be claimed."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                is_group = await self._finder.is_group(event.bucket, _folder(event.key))
        except (TimeoutError, UnavailableError):
            is_group = False
        if is_group:
            self._release([entry])
        else:
            self._flag(_below(event, scope), event, entry, held=True)

    def _subject(self, found: Found, event: ObjectEvent) -> FlagSubject:
        if found.kind == "foreign":
            self._count(f"{event.bucket}/{found.prefix}")
        if found.awaited is not None:  # all that comes before the document of the store has one flag
            return FlagSubject(event.bucket, found.awaited, None, "new-store")
        is_scope = found.kind == "store" or (found.kind == "unknown" and is_store_name(found.prefix))
        return FlagSubject(event.bucket, found.prefix, found.prefix if is_scope else None, "new-store")

    def _count(self, prefix: str) -> None:
        unmanaged = self._status.unmanaged
        unmanaged[prefix if prefix in unmanaged or len(unmanaged) < _MOST_COUNTED else _OTHERS] += 1

    # --- its flag

    def _flag(self, subject: FlagSubject, event: ObjectEvent, entry: Entry, *, held: bool = False) -> None:
        """Lets a delivery wait for a flag.

        Args:
            subject: what is flagged.
            event: that needs the flag.
            entry: the delivery that it came with.
            held: the delivery waits already, for this.
        """
        if not self._flags.note(subject, event.key):
            if held:
                self._release([entry])
            return
        if not held:
            entry.open_outputs += 1
        waiting = self._waiting.get(subject)
        if waiting is None:
            self._waiting[subject] = [entry]
            self._tasks.create_task(self._raise(subject))
        else:
            waiting.append(entry)

    async def _raise(self, subject: FlagSubject) -> None:
        """Publishes a flag. What came while that was held up is not in it by its time: it needs another one."""
        loop = asyncio.get_running_loop()
        held_up = True
        while held_up:
            began_s = loop.time()
            await self._publish(self._flags.message(subject))
            held_up = loop.time() - began_s > _HELD_UP_S
        self._status.counts["flags"] += 1
        self._flags.confirmed(subject)
        self._release(self._waiting.pop(subject))


def _below(event: ObjectEvent, scope: str) -> FlagSubject:
    return FlagSubject(event.bucket, scope, scope, "unclaimed-array")


def _raw(event: ObjectEvent) -> FlagSubject:
    """What is flagged where it takes too long to find the store: all that has the same documents above it."""
    return FlagSubject(event.bucket, _folder(event.key), None, "new-store")


def _folder(key: str) -> str:
    return key.rpartition("/")[0]
