"""What a prefix of a manifest covers: everything below it by whole segments, and an object that is called just so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blobmap.manifest import is_addressable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from blobmap.objects import Entry
    from blobmap.storage import Storage


def covered_objects(data: Storage, prefix: str) -> Iterator[Sequence[Entry]]:
    """List the objects that a prefix covers.

    Args:
        data: the bucket.
        prefix: relative to the bucket, without a slash at its end. One that no key can begin with covers nothing.

    Yields:
        Pages. An object of that very name is only looked for where nothing lies below the prefix.

    Raises:
        UnavailableError: the bucket cannot be reached.
        RefusedError: the bucket does not serve us.
    """
    if prefix and not is_addressable(prefix):
        return
    is_empty = True
    for page in data.pages(prefix):
        is_empty = False
        yield page
    if is_empty and prefix:
        found = [entry for entry in data.level(prefix.rpartition("/")[0]).objects if entry["path"] == prefix]
        if found:
            yield found
