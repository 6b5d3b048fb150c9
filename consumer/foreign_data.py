"""What an object is that has no zarr document above it: told from names, and from one small document at most.

How each kind looks is known by `blobmap.foreign`; here is where to look for it, from the key of one object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blobmap.chunk_keys import METADATA_NAMES
from blobmap.errors import RefusedError, UnreadableError
from blobmap.foreign import is_icechunk, is_reference_json, is_reference_parquet, kind_of_file
from blobmap.nodes import join
from blobmap.store_keys import is_addressable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from blobmap.foreign import Kind
    from blobmap.storage import Storage

# Folders of an icechunk repository, of format 1 and 2: below one of them is where its objects lie.
_ICECHUNK_FOLDERS = frozenset({"chunks", "manifests", "snapshots", "refs", "transactions", "config", "overwritten"})

# Reference files in parquet form lie below a `.zmetadata`; no other objects are worth asking for one.
_PARQUET = (".parq", ".parquet")

# A longer document is not opened to see whether it holds references.
_REFERENCE_BYTES = 16 * 2**20


def identify(storage: Storage, key: str, top: str) -> tuple[str, Kind]:
    """Looks at what lies around an object.

    Args:
        storage: the bucket.
        key: of the object.
        top: prefix that it is counted under where nothing tells a better one.

    Returns:
        The prefix that all of it lies under, and what it is. What may not be read is judged by its name.

    Raises:
        UnavailableError: the bucket cannot be reached.
    """
    name = key.rpartition("/")[2]
    if is_addressable(key):
        try:
            return _looked_at(storage, key, name) or (top, _file(storage, key, name))
        except RefusedError:
            pass
    return top, kind_of_file(name)


def above(key: str) -> Iterator[str]:
    """The prefixes above an object, from the root of its bucket on, which is `""`."""
    yield ""
    end = key.find("/")
    while end >= 0:
        yield key[:end]
        end = key.find("/", end + 1)


def _looked_at(storage: Storage, key: str, name: str) -> tuple[str, Kind] | None:
    for prefix in above(key):
        inside = key[len(prefix) :].removeprefix("/")
        folder, separator, _ = inside.partition("/")
        if (separator and folder in _ICECHUNK_FOLDERS) or inside == "repo":
            level = storage.level(prefix)
            folders = [path.rpartition("/")[2] for path in level.prefixes]
            if is_icechunk(folders, [entry["path"].rpartition("/")[2] for entry in level.objects]):
                return prefix, "icechunk repository"
        if (name == ".zmetadata" or name.endswith(_PARQUET)) and _holds(
            storage, join(prefix, ".zmetadata"), is_reference_parquet
        ):
            return prefix, "kerchunk references"
    return None


def _file(storage: Storage, key: str, name: str) -> Kind:
    references = name.endswith(".json") and name not in METADATA_NAMES and _holds(storage, key, is_reference_json)
    return "kerchunk references" if references else kind_of_file(name)


def _holds(storage: Storage, key: str, what: Callable[[bytes], bool]) -> bool:
    try:
        return what(storage.get(key, limit=_REFERENCE_BYTES).data)
    except UnreadableError:  # not there, or too long to look
        return False
