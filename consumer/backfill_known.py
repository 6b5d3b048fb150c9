"""What is stored of a scope, its manifest and what is remembered of it, read and changed in threads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from blobmap.errors import UnreadableError
from consumer.backfill_steps import suspected
from consumer.memory import recall, remember
from consumer.told_before import told_before

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from blobmap.manifest import Manifest
    from consumer.catalog import Catalog
    from consumer.memory import Memory
    from consumer.told_before import ToldBefore

_log = structlog.get_logger(__name__)

_READERS = 8


class BackfillKnown:
    """What backfills read and write at the manifest roots.

    Every method may raise UnavailableError or RefusedError where a root cannot be reached or does not serve us, and
    ManifestError where what is remembered there cannot be read.

    Args:
        catalog: the manifests in force.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def manifest(self, bucket: str, scope: str) -> Manifest | None:
        """The manifest that is stored; where none can be used, what was told is not to be relied on from then on."""
        try:
            held = await asyncio.to_thread(self._catalog.store(bucket).read, scope)
        except UnreadableError as error:
            _log.warning("manifest cannot be used", bucket=bucket, scope=scope, reason=str(error))
            await self.remember(bucket, scope, suspected)
            return None
        return held.manifest

    async def recall(self, bucket: str, scope: str) -> Memory:
        """What is remembered of a scope."""
        memory, _ = await asyncio.to_thread(recall, self._catalog.store(bucket).storage, scope)
        return memory

    async def remember(self, bucket: str, scope: str, change: Callable[[Memory], Memory]) -> Memory:
        """Changes what is remembered of a scope; `change` may be called again after a conflict."""
        return await asyncio.to_thread(remember, self._catalog.store(bucket).storage, scope, change)

    def scopes(self, bucket: str, memory: Memory) -> set[str]:
        """The scopes that have a manifest, and of those whose manifest is broken the ones that a memory names."""
        broken = (name for name in around(memory) if self._catalog.invalid(bucket, name) is not None)
        return {*self._catalog.tries[bucket].scopes(), *broken}

    async def told_before(self, bucket: str, scope: str, in_force: Mapping[str, Manifest]) -> ToldBefore:
        """What was told of a scope.

        Args:
            bucket: name of the bucket.
            scope: the scope.
            in_force: its manifest, and those around and inside.
        """
        names = sorted({*in_force, *around(await self.recall(bucket, scope))})
        limit = asyncio.Semaphore(_READERS)

        async def one(name: str) -> Memory:
            async with limit:
                return await self.recall(bucket, name)

        memories = dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))
        epochs = {name: held.epoch for name, held in in_force.items()}
        return await asyncio.to_thread(told_before, scope, memories, epochs)


def around(memory: Memory) -> set[str]:
    """The scopes that are remembered as around or inside."""
    return {
        *(memory.backfilled.around if memory.backfilled is not None else ()),
        *(memory.backfilling.around if memory.backfilling is not None else ()),
    }
