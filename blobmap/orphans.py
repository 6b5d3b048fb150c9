"""What a new manifest orphans: blobs of the old one whose members are not what they were, counted over what is stored.

A tape copy is found by the id of its blob. Where an object goes to another blob, the copy of the blob that it leaves
has too much in it, and that of the blob that it joins too little.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from blobmap.covered import covered_objects
from blobmap.resolve import Trie

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blobmap.manifest import Blob, Manifest
    from blobmap.storage import Storage


@dataclass(frozen=True, slots=True)
class Orphaned:
    """The blobs of one rule whose members change.

    Attributes:
        rule: its id.
        blob_ids: the blobs, by number.
        objects: how many objects leave their blob.
        stored_bytes: their size together.
    """

    rule: str
    blob_ids: tuple[str, ...]
    objects: int
    stored_bytes: int


def orphaned(data: Storage, before: Manifest, after: Manifest, rules: Iterable[str]) -> tuple[Orphaned, ...]:
    """Compare what two manifests of one scope make of the objects that are stored.

    Args:
        data: the bucket.
        before: the manifest that tape copies were made under.
        after: the one that follows it.
        rules: ids of the rules of `before` to look at.

    Returns:
        A row for each rule that has such blobs, in the order of the ids.

    Raises:
        UnavailableError: the bucket cannot be reached.
        RefusedError: the bucket does not serve us.
    """
    tries = (_trie(before), _trie(after))
    ids = set(rules)
    return tuple(
        found
        for blob in sorted(before.blobs, key=_id)
        if blob.id in ids
        for found in _of_rule(data, before, blob, tries)
    )


def _of_rule(data: Storage, before: Manifest, blob: Blob, tries: tuple[Trie, Trie]) -> list[Orphaned]:
    then, now = tries
    changed: set[str] = set()
    existing: set[str] = set()
    leaving: defaultdict[str, int] = defaultdict(int)
    for prefix in blob.prefixes:
        place = "/".join(part for part in (before.scope, prefix.removesuffix("/")) if part)
        for page in covered_objects(data, place):
            keys = [entry["path"] for entry in page]
            for entry, old, new in zip(page, then.lookup_many(keys), now.lookup_many(keys), strict=True):
                if old.blob_id is not None:
                    existing.add(old.blob_id)
                if old.blob_id == new.blob_id:
                    continue
                changed.update(blob_id for blob_id in (old.blob_id, new.blob_id) if blob_id is not None)
                if old.blob_id is not None and old.blob_id.rpartition("_")[0] == blob.id:
                    leaving["objects"] += 1
                    leaving["bytes"] += entry["size"]
    blobs = [blob_id for blob_id in changed & existing if blob_id.rpartition("_")[0] == blob.id]
    if not blobs:
        return []
    return [Orphaned(blob.id, tuple(sorted(blobs, key=_by_number)), leaving["objects"], leaving["bytes"])]


def _trie(manifest: Manifest) -> Trie:
    """What a manifest makes of its own keys, pins left out: they hold copies back and move nothing."""
    trie = Trie()
    trie.add(replace(manifest, pinned=()))
    return trie


def _id(blob: Blob) -> str:
    return blob.id


def _by_number(blob_id: str) -> tuple[int, str]:
    return len(blob_id), blob_id
