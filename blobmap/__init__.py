"""Decide which zarr objects move to tape together, and read that back."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blobmap.errors import BlobmapError
    from blobmap.manifests import ManifestStore
    from blobmap.policy import Policy
    from blobmap.resolve import Resolution, Trie
    from blobmap.service import partition_store

__all__ = ["BlobmapError", "ManifestStore", "Policy", "Resolution", "Trie", "partition_store"]
__version__ = "0.6.0.dev0"

# A name is imported when it is asked for: whoever resolves a key need not load what cuts a store.
_HOMES = {
    "BlobmapError": "errors",
    "ManifestStore": "manifests",
    "Policy": "policy",
    "Resolution": "rules",
    "Trie": "resolve",
    "partition_store": "service",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
