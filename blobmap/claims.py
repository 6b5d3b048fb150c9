"""Which arrays are claimed already, asked of the one place that knows what a manifest means: the trie.

A claim is a rule or a hot pattern. Pins are no claims: a pinned array has, or gets, its rule below the pin, and moves
by it once the pin is gone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blobmap.chunk_keys import ChunkKeyEncoding
from blobmap.partition import Claim
from blobmap.resolve import Trie
from blobmap.tally import Measured

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blobmap.arrays import ArrayLayout
    from blobmap.manifest import Blob, Manifest
    from blobmap.resolve import Resolution

_FAR: Final = 2**62


def own_claims(manifest: Manifest, arrays: Iterable[Measured]) -> dict[str, Claim]:
    """Claims of a scope's own rules; its hot patterns are made anew at every partition, so they claim nothing.

    Args:
        manifest: of the scope.
        arrays: of the scope.

    Returns:
        Claims by array path.
    """
    return _claims(manifest.scope, [replace(manifest, hot_always=())], arrays)


def other_claims(scope: str, manifests: Iterable[Manifest], arrays: Iterable[Measured]) -> dict[str, Claim]:
    """Claims of the scopes around and inside this one.

    Args:
        scope: that is to be partitioned.
        manifests: of the other scopes.
        arrays: of this scope.

    Returns:
        Claims by array path.
    """
    return _claims(scope, list(manifests), arrays)


def resolve_layout(trie: Trie, scope: str, layout: ArrayLayout) -> Resolution:
    """Ask what an array's objects resolve to, without having listed any.

    Args:
        trie: the manifests in force.
        scope: key of the store.
        layout: of the array below it.

    Returns:
        The answer for its first object. A v2 array that leaves its separator to the default may have either.
    """
    answer = trie.lookup(_key(scope, Measured(layout, encoding=layout.encoding)))
    if answer.kind == "unmanaged" and not layout.separator_declared:
        answer = trie.lookup(_key(scope, Measured(layout, encoding=ChunkKeyEncoding("v2", "/"))))
    return answer


def is_neighbour(scope: str, other: str) -> bool:
    """Say whether one of two different scopes lies in the other."""
    return scope != other and (_holds(scope, other) or _holds(other, scope))


def _holds(outer: str, inner: str) -> bool:
    return not outer or inner.startswith(outer + "/")


def _claims(scope: str, manifests: list[Manifest], arrays: Iterable[Measured]) -> dict[str, Claim]:
    trie = Trie()
    trie.add_all(replace(manifest, pinned=()) for manifest in manifests)
    rules = {(manifest.scope, blob.id): blob for manifest in manifests for blob in manifest.blobs}
    found = {}
    for array in arrays:
        key = _key(scope, array)
        answer = trie.lookup(key)
        if answer.scope is None or answer.kind == "unmanaged":
            continue
        rule = rules[answer.scope, answer.blob_id.rpartition("_")[0]] if answer.blob_id is not None else None
        axis = _axis(rule, key.removeprefix(answer.scope).removeprefix("/"), array) if rule is not None else None
        found[array.layout.path] = Claim(answer.scope, rule, axis)
    return found


def _key(scope: str, array: Measured) -> str:
    return "/".join(part for part in (scope, array.layout.path, _sample(array)) if part)


def _sample(array: Measured) -> str:
    """A key of the array's objects, below its path; where none can be spelled, one that only a plain prefix covers.

    Its indices are far out, so that a rule for a part of the array does not speak for the whole.
    """
    if array.encoding is not None:
        return array.encoding.encode((_FAR,) * len(array.layout.shape))
    return array.sample or "-"


def _axis(rule: Blob, key: str, array: Measured) -> int | None:
    """The axis that a bucketed rule divides: what its prefix leaves of the key ends in one part per axis."""
    if rule.bucket is None:
        return None
    separator = "." if rule.bucket.key_encoding == "v2_flat" else "/"
    prefixes = [prefix.removesuffix("/") for prefix in rule.prefixes]
    longest = max(len(prefix) for prefix in prefixes if not prefix or key == prefix or key.startswith(prefix + "/"))
    parts = key[longest:].removeprefix("/").split(separator)
    axis = rule.bucket.index - (len(parts) - len(array.layout.shape))
    return axis if 0 <= axis < len(array.layout.shape) else None
