"""What has to hold whatever happens: assertions with names, for property tests and integration tests alike."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING

from blobmap.chunk_keys import METADATA_NAMES
from blobmap.resolve import Trie

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from blobmap.manifest import Manifest
    from blobmap.policy import Policy


def trie_of(*manifests: Manifest) -> Trie:
    trie = Trie()
    trie.add_all(manifests)
    return trie


def assert_existing_keys_keep_their_blob(before: Trie, after: Trie, keys: Iterable[str]) -> None:
    """Whatever resolved to a blob resolves to the same one."""
    for key in keys:
        was, now = before.lookup(key), after.lookup(key)
        if was.kind == "blob":
            assert (now.kind, now.scope, now.blob_id) == ("blob", was.scope, was.blob_id), key


def assert_metadata_is_never_claimed(trie: Trie, keys: Iterable[str]) -> None:
    for key in keys:
        if key.rpartition("/")[2] in METADATA_NAMES:
            assert trie.lookup(key).kind == "hot", key


def assert_all_hot(trie: Trie, keys: Iterable[str]) -> None:
    """Coordinates: none of their objects can be archived."""
    for key in keys:
        assert trie.lookup(key).kind == "hot", key


def assert_all_claimed(trie: Trie, keys: Iterable[str]) -> None:
    """Archivable data: every object has its blob."""
    for key in keys:
        assert trie.lookup(key).kind == "blob", key


def assert_size_promise(
    trie: Trie, sizes: Mapping[str, int], policy: Policy, *, planned_bytes: int, slab_growth: Fraction, clamp: bool
) -> None:
    """No blob of several slabs holds more than the plan allows.

    Args:
        trie: resolves the keys.
        sizes: of every object of one array that has a rule of several slabs a blob.
        policy: that the rule was made with.
        planned_bytes: size of an object as it was planned.
        slab_growth: objects that have one index along the cut axis, now over then; the promise is about whole slabs as
            they were, and an array that grows across its cut axis outgrows it.
        clamp: whether objects are no larger than uncompressed, so that the absolute bound holds too.
    """
    blobs: defaultdict[str, list[int]] = defaultdict(list)
    for key, size in sizes.items():
        found = trie.lookup(key)
        if found.blob_id is not None:
            blobs[found.blob_id].append(size)
    for blob_id, members in blobs.items():
        total = sum(members)
        mean = Fraction(total, len(members))
        allowed = policy.t_max_bytes * max(Fraction(1), mean / planned_bytes) * max(Fraction(1), slab_growth)
        assert total <= allowed, (blob_id, total, float(allowed))
        if clamp:
            assert total <= policy.t_max_bytes * policy.width_clamp * max(Fraction(1), slab_growth), blob_id
