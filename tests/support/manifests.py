"""Small manifests for tests of the daemon."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from blobmap import Trie
from blobmap.manifest import Blob, Bucket, Manifest, Pin

if TYPE_CHECKING:
    from collections.abc import Mapping


def manifest(scope: str = "s.zarr", *, epoch: int = 1, width: int = 10) -> Manifest:
    """Array `t`, cut every `width` chunks along its first axis; `lat` is hot, `kept` is pinned."""
    return Manifest(
        scope=scope,
        epoch=epoch,
        hot_always=("lat/**",),
        blobs=(Blob("b_t", ("t/c",), Bucket(0, width, "v3_slash")), Blob("b_kept", ("kept/c",), None)),
        pinned=(Pin("kept", "for a test"),),
    )


def trie(*manifests: Manifest) -> Trie:
    """A trie of these manifests."""
    result = Trie()
    result.add_all(manifests)
    return result


@dataclass(frozen=True)
class NeverFresh:
    """Manifests that nobody can compare."""

    tries: Mapping[str, Trie]
    is_fresh: bool = False

    async def fresh(self) -> None:
        """Waits without end."""
        await asyncio.Event().wait()

    def noticed(self, bucket: str, key: str) -> None:
        """Nobody writes there."""


@dataclass(frozen=True)
class AlwaysFresh:
    """Manifests that nobody changes."""

    tries: Mapping[str, Trie]
    is_fresh: bool = True

    async def fresh(self) -> None:
        """Nothing to wait for."""

    def noticed(self, bucket: str, key: str) -> None:
        """Nobody writes there."""
        raise AssertionError(f"a manifest in bucket {bucket!r}: {key!r}")
