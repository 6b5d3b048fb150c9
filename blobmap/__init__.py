"""Decide which zarr objects move to tape together, and read that back."""

from blobmap.errors import BlobmapError
from blobmap.manifests import ManifestStore
from blobmap.policy import Policy
from blobmap.resolve import Resolution, Trie
from blobmap.service import partition_store

__all__ = ["BlobmapError", "ManifestStore", "Policy", "Resolution", "Trie", "partition_store"]
__version__ = "0.6.0.dev0"
