"""The adversary: it kills, restarts and meddles, by a seed, and at chosen steps of what workers do."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.soak.site import Process, SoakSite
    from tests.soak.writers import Writers

# What workers log: a person is told, a store is not quiet yet, its manifest is written, movers were told. What follows
# upon each takes a moment (a manifest is announced, a task is written, what was done is remembered), and the kill comes
# anywhere in it.
STEPS = ("alert", "restless", "partitioned", "backfill")

_AFTERWARDS_S = 0.3
_POLL_S = 0.02
_STEP_S = 6.0
_PAUSES_S = (0.3, 3.0)

# A stream that was declared a moment before the broker is killed stays unusable in RabbitMQ 3.10; see the decision on
# the journal.
_SETTLED_S = 15.0


class Adversary:
    """Does one thing after the other until told to stop, and mends all of it in the end.

    Args:
        site: what it attacks.
        writers: whose stores it cuts.
        seed: decides about everything.

    Attributes:
        done: how often it did what.
    """

    def __init__(self, site: SoakSite, writers: Writers, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self._site = site
        self._writers = writers
        self._random = random.Random(seed)  # noqa: S311  # nothing here is secret, and a run has to be repeatable
        self._began = asyncio.get_running_loop().time()

    async def run(self, stop: asyncio.Event) -> None:
        """Attacks until told to stop."""
        acts: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self._kill_a_daemon, 3),
            (self._kill_a_worker_at_a_step, 5),
            (self._stop_something, 2),
            (self._hurt_the_broker, 2),
            (self._cut, 2),
            (self._force, 1),
            (self._pin_and_unpin, 2),
        ]
        while not stop.is_set():
            (act,) = self._random.choices([act for act, _ in acts], [weight for _, weight in acts])
            await act()
            await asyncio.sleep(self._random.uniform(*_PAUSES_S))

    async def _kill_a_daemon(self) -> None:
        await self._end(self._random.choice(self._site.daemons), signal.SIGKILL, "daemon killed")

    async def _kill_a_worker_at_a_step(self) -> None:
        """Waits until a worker logs one of the steps, and kills it then."""
        step = self._random.choice(STEPS)
        begins = {worker.name: worker.log.stat().st_size for worker in self._site.workers}
        deadline = asyncio.get_running_loop().time() + _STEP_S
        while asyncio.get_running_loop().time() < deadline:
            for worker in self._site.workers:
                if any(line["event"] == step for line in worker.logged(begins[worker.name])):
                    await asyncio.sleep(self._random.uniform(0, _AFTERWARDS_S))
                    await self._end(worker, signal.SIGKILL, f"worker killed after: {step}")
                    return
            await asyncio.sleep(_POLL_S)
        await self._end(self._random.choice(self._site.workers), signal.SIGKILL, "worker killed anywhere")

    async def _stop_something(self) -> None:
        process = self._random.choice([*self._site.daemons, *self._site.workers])
        await self._end(process, signal.SIGTERM, f"{process.command} stopped in order")

    async def _end(self, process: Process, number: signal.Signals, what: str) -> None:
        code = await process.end(number)
        # Ended by SIGTERM itself is what had hardly begun.
        assert code in (0, -signal.SIGTERM, -signal.SIGKILL), f"{process.name} ended with {code}: {process.tail()}"
        self.done[what] += 1
        await process.start()

    async def _hurt_the_broker(self) -> None:
        if asyncio.get_running_loop().time() - self._began < _SETTLED_S:
            return
        broker = self._site.broker
        kill = self._random.random() < 0.5
        await asyncio.to_thread(broker.kill if kill else broker.stop)
        await asyncio.sleep(self._random.uniform(0, 2))
        await asyncio.to_thread(broker.start)
        self.done["broker killed" if kill else "broker restarted"] += 1

    async def _cut(self) -> None:
        scope = self._a_scope()
        if scope is not None:
            await self._by_hand("cut by hand", "partition", scope)

    async def _force(self) -> None:
        scope = self._a_scope()
        if scope is not None:
            size = self._random.choice(("2KiB", "4KiB", "8KiB"))
            await self._by_hand("cut anew by force", "partition", scope, "--force", "--yes", "--t-max", size)

    async def _pin_and_unpin(self) -> None:
        scope = self._a_scope()
        if scope is not None and await self._by_hand("pinned", "pin", "add", scope, "tas", "--reason", "soak"):
            await asyncio.sleep(self._random.uniform(0, 4))
            await self._by_hand("unpinned", "pin", "remove", scope, "tas")

    async def _by_hand(self, what: str, *words: str) -> bool:
        # Not cut yet (5), nothing to do, or somebody else was quicker (4): all of it happens, none of it is a fault.
        code = await self._site.blobmap(*words)
        assert code in (0, 4, 5), f"blobmap {' '.join(words)} ended with {code}"
        self.done[what] += code == 0
        return code == 0

    def _a_scope(self) -> str | None:
        return self._random.choice(list(self._writers.stores)) if self._writers.stores else None
