"""Where the rules of two scopes meet: objects that both claim, counted by listing only where they can."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from blobmap.covered import covered_objects
from blobmap.resolve import Trie

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blobmap.manifest import Manifest
    from blobmap.storage import Storage


@dataclass(frozen=True, slots=True)
class Overlap:
    """What two manifests both claim.

    Attributes:
        objects: how many objects match a rule of each.
        stored_bytes: their size together.
        first: the first of them, in the order of the listing.
    """

    objects: int
    stored_bytes: int
    first: str


def overlap(data: Storage, one: Manifest, other: Manifest) -> Overlap | None:
    """Count the objects that match rules of two manifests.

    Args:
        data: the bucket.
        one: of a scope.
        other: of a scope around or inside that.

    Returns:
        What both claim, pins left out; None where that is nothing.

    Raises:
        UnavailableError: the bucket cannot be reached.
        RefusedError: the bucket does not serve us.
    """
    tries = [Trie(), Trie()]
    for trie, manifest in zip(tries, (one, other), strict=True):
        trie.add(replace(manifest, pinned=()))
    objects = stored_bytes = 0
    first = ""
    for prefix in _common_prefixes(one, other):
        for page in covered_objects(data, prefix):
            keys = [entry["path"] for entry in page]
            mine, theirs = (trie.lookup_many(keys) for trie in tries)
            for entry, answer, their_answer in zip(page, mine, theirs, strict=True):
                if answer.kind == their_answer.kind == "blob":
                    first = first or entry["path"]
                    objects += 1
                    stored_bytes += entry["size"]
    return Overlap(objects, stored_bytes, first) if objects else None


def _common_prefixes(one: Manifest, other: Manifest) -> list[str]:
    """The prefixes that rules of both cover; none lies below another."""
    mine, theirs = set(_prefixes(one)), set(_prefixes(other))
    common = {prefix for prefix in mine if _is_covered(prefix, theirs)}
    common |= {prefix for prefix in theirs if _is_covered(prefix, mine)}
    return sorted(prefix for prefix in common if not prefix or not _is_covered(prefix.rpartition("/")[0], common))


def _prefixes(manifest: Manifest) -> Iterator[str]:
    for blob in manifest.blobs:
        for prefix in blob.prefixes:
            yield "/".join(part for part in (manifest.scope, prefix.removesuffix("/")) if part)


def _is_covered(prefix: str, by: set[str]) -> bool:
    """Whether one of some prefixes is this one, or lies above it."""
    while prefix not in by:
        if not prefix:
            return False
        prefix = prefix.rpartition("/")[0]
    return True
