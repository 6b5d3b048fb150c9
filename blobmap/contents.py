"""The contents of one blob: every object that is stored of it, found by listing nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blobmap.covering import Covering
from blobmap.errors import ListingError, MissingError, UnreadableError
from blobmap.ranges import key_ranges, members

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blobmap.manifests import ManifestStore
    from blobmap.objects import Entry
    from blobmap.storage import Storage

_NAMED: Final = 8  # rules that a message names at most


def blob_objects(data: Storage, manifests: ManifestStore, scope: str, blob_id: str) -> Iterator[Entry]:
    """List the objects of one blob.

    Args:
        data: the bucket.
        manifests: its manifest root.
        scope: of the blob.
        blob_id: as a resolution names it.

    Returns:
        Every object that resolves to the blob, once, in the order of the listing.

    Raises:
        MissingError: the scope has no manifest, or no rule of it makes such a blob.
        ManifestError: the manifest is broken.
        UnreadableError: that of a scope around or inside is, so nothing can be said about any object.
        ListingError: at the end, a part of what had to be listed could not be.
        UnavailableError: a store cannot be reached.
        RefusedError: a store does not serve us.
    """
    manifest = manifests.read(scope).manifest
    ranges = key_ranges(manifest, blob_id)
    if not ranges:
        ids = sorted({blob.id for blob in manifest.blobs})
        more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
        known = f"its rules are {', '.join(ids[:_NAMED])}{more}" if ids else "it has no rules"
        raise MissingError(
            f"no rule of {scope!r} makes a blob {blob_id!r}: {known}, and a blob is called <rule>_<number>"
        )
    covering = Covering(manifests)
    covering.around(scope)
    if covering.problems:
        raise UnreadableError(covering.problems[0])
    for part in ranges:
        data.forget(part.prefix)
    yield from members(
        manifest,
        blob_id,
        pages=lambda prefix, after: data.pages(prefix, after=after),
        objects=lambda prefix: data.level(prefix).objects,
        lookup=covering.trie.lookup,
        ordered=data.is_remote,
    )
    gaps = sorted({gap for part in ranges for gap in data.gaps(part.prefix)})
    if gaps:
        raise ListingError(
            f"{data.name}: {', '.join(map(repr, gaps))} could not be listed, so objects may be missing here"
        )
