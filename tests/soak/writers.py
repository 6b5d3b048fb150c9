"""Scientists: they create stores, append to them and write chunks anew, in any order of upload."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import obstore

from tests.support.stores import RawArray, store_objects

if TYPE_CHECKING:
    from obstore.store import S3Store

KINDS = ("v3", "v2", "sharded")

_ORDERS = ("alphabetical", "reverse", "random")
_PAUSE_S = 0.01
_TRIES = 30


@dataclass
class Store:
    """One store as it grows.

    Attributes:
        scope: its key.
        kind: how it is written.
        times: how many objects it has along its first axis.
        written: key to the bytes put last.
    """

    scope: str
    kind: str
    times: int
    written: dict[str, bytes] = field(default_factory=dict)

    def arrays(self) -> list[RawArray]:
        """A variable that grows with time, another one, and their coordinate."""
        dims = ("time", "y", "x")
        shape, chunks = (self.times, 4, 4), (1, 2, 4)
        fmt: Literal[2, 3] = 2 if self.kind == "v2" else 3
        inner = (1, 1, 4) if self.kind == "sharded" else None
        return [
            RawArray("tas", shape, chunks, dims, format=fmt, inner=inner, nbytes=300),
            RawArray("flux/pr", shape, chunks, dims, format=fmt, nbytes=200),
            RawArray("time", (self.times,), (1,), ("time",), format=fmt, nbytes=2000),
        ]

    def objects(self) -> dict[str, bytes]:
        """Every object that it has now; chunks with their size only."""
        return store_objects(self.scope, self.arrays())

    def archivable(self, key: str) -> bool:
        """Whether an object belongs to a variable."""
        below = key.removeprefix(f"{self.scope}/")
        return below.startswith(("tas/", "flux/pr/")) and not below.endswith((".json", ".zarray", ".zattrs"))


class Writers:
    """All of them.

    Args:
        data: the bucket.
        seed: decides about everything.

    Attributes:
        stores: by scope.
        puts: objects put.
        last_of: when each store was last written to, by the loop's clock.
    """

    def __init__(self, data: S3Store, seed: int) -> None:
        self.stores: dict[str, Store] = {}
        self.last_of: dict[str, float] = {}
        self.puts = 0
        self._data = data
        self._random = random.Random(seed)  # noqa: S311  # nothing here is secret, and a run has to be repeatable

    async def run(self, stop: asyncio.Event) -> None:
        """Writes until told to stop; what was begun is finished."""
        while not stop.is_set():
            choice = self._random.random()
            if len(self.stores) < 3 or choice < 0.25:
                await self._create()
            elif choice < 0.75:
                await self._append()
            else:
                await self._overwrite()

    async def _create(self) -> None:
        kind = self._random.choice(KINDS)
        name = f"{self._random.choice(('nukleus/', 'old runs/', ''))}s{len(self.stores)}-{kind}.zarr"
        store = self.stores[name] = Store(name, kind, times=self._random.randint(2, 12))
        await self._put(store, store.objects())

    async def _append(self) -> None:
        store = self._random.choice(list(self.stores.values()))
        store.times += self._random.randint(1, 8)
        changed = {
            key: data
            for key, data in store.objects().items()
            if key not in store.written or (_is_document(data) and data != store.written[key])
        }
        await self._put(store, changed)

    async def _overwrite(self) -> None:
        store = self._random.choice(list(self.stores.values()))
        chunks = [key for key in store.written if store.archivable(key)]
        chosen = self._random.sample(chunks, min(len(chunks), self._random.randint(1, 6)))
        await self._put(store, {key: bytes(len(store.written[key])) for key in chosen})

    async def _put(self, store: Store, objects: dict[str, bytes]) -> None:
        """Puts objects in some order; a chunk gets bytes of its own, so that every write has another etag."""
        keys = sorted(objects)
        order = self._random.choice(_ORDERS)
        if order == "reverse":
            keys.reverse()
        elif order == "random":
            self._random.shuffle(keys)
        for key in keys:
            data = objects[key]
            if not _is_document(data):
                data = self._random.randbytes(len(data))
            store.written[key] = data
            await self._patiently(key, data)
            self.puts += 1
            self.last_of[store.scope] = asyncio.get_running_loop().time()
            await asyncio.sleep(_PAUSE_S)

    async def _patiently(self, key: str, data: bytes) -> None:
        for left in reversed(range(_TRIES)):
            try:
                await obstore.put_async(self._data, key, data)
            except obstore.exceptions.BaseError:
                if not left:
                    raise
                await asyncio.sleep(0.2)
            else:
                return


def _is_document(data: bytes) -> bool:
    return bool(data.strip(b"\0"))
