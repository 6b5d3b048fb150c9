"""The dumb resolver: for every key it goes through every rule of every manifest, as the format page reads.

It shares no code with `blobmap.resolve` and remembers nothing, so that the two can be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blobmap.resolve import Resolution

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blobmap.manifest import Blob, Bucket, Manifest

METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")


def resolve(manifests: Sequence[Manifest], key: str) -> Resolution:
    """Answer for a key under manifests of different scopes, given in any order."""
    segments = key.split("/")
    nobodys = any(segment in ("", ".", "..") for segment in segments)
    covering = [one for one in manifests if covers(one.scope, segments)] if not nobodys else []
    covering.sort(key=lambda one: len(split(one.scope)))
    longest = covering[-1] if covering else None
    if segments[-1] in METADATA:
        return answer("hot", None, longest)
    for one in reversed(covering):
        if any(covers(join(one.scope, pin.prefix), segments) for pin in one.pinned):
            return answer("pinned", None, one)
    for one in reversed(covering):
        if any(is_hot(one.scope, pattern, segments) for pattern in one.hot_always):
            return answer("hot", None, one)
    claims = [
        (len(split(join(one.scope, prefix))), len(split(one.scope)), order, one, blob, prefix)
        for one in covering
        for order, (blob, prefix) in enumerate((blob, prefix) for blob in one.blobs for prefix in blob.prefixes)
        if covers(join(one.scope, prefix), segments)
    ]
    if not claims:
        return answer("unmanaged", None, longest)
    length, _, _, one, blob, _ = max(claims, key=lambda claim: claim[:3])
    number = number_of(blob, segments[length:])
    if number is None:
        return answer("unmanaged", None, longest)
    return answer("blob", f"{blob.id}_{number}", one)


def answer(kind: str, blob_id: str | None, manifest: Manifest | None) -> Resolution:
    scope, epoch = (manifest.scope, manifest.epoch) if manifest else (None, None)
    return Resolution(kind, blob_id, scope, epoch)  # type: ignore[arg-type]  # one of the four kinds


def split(path: str) -> list[str]:
    return path.split("/") if path else []


def join(scope: str, prefix: str) -> str:
    prefix = prefix.removesuffix("/")
    return "/".join(split(scope) + split(prefix))


def covers(prefix: str, segments: list[str]) -> bool:
    return segments[: len(split(prefix))] == split(prefix)


def is_hot(scope: str, pattern: str, segments: list[str]) -> bool:
    if pattern[:3] == "**/" and pattern.count("/") == 1:
        return segments[-1] == pattern[3:]
    for ending in ("/**", "/*", "**", "*"):
        if pattern.endswith(ending):
            pattern = pattern[: -len(ending)]
            break
    return covers(join(scope, pattern), segments)


def number_of(blob: Blob, below: list[str]) -> int | None:
    """Give the number of the blob, from the segments below the prefix."""
    bucket = blob.bucket
    if bucket is None:
        return 0
    parts = parts_of(bucket, below)
    if bucket.index >= 1 and parts[:1] == ["c"] and bucket.key_encoding != "v2_slash":
        parts = ["0", *parts[1:]]
    if len(parts) <= bucket.index or not all(is_canonical(part) for part in parts):
        return None
    return int(parts[bucket.index]) // bucket.width


def parts_of(bucket: Bucket, below: list[str]) -> list[str]:
    if bucket.key_encoding != "v2_flat":
        return below
    return below[0].split(".") if len(below) == 1 else []


def is_canonical(part: str) -> bool:
    return part != "" and all(character in "0123456789" for character in part) and (part == "0" or part[0] != "0")
