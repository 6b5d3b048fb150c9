"""One node of a zarr hierarchy: what the documents at one key say it is. Only documents are read, each once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from blobmap.arrays import ArrayLayout, GroupLayout
from blobmap.errors import DocumentError, MissingError, UnreadableError
from blobmap.layout import parse_document, read_v2_array, read_v3, settle_formats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blobmap.objects import Body
    from blobmap.storage import Storage

_MAX_BYTES: Final = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Node:
    """What lies at one key.

    Attributes:
        path: below the root of the store, without outer slashes.
        layout: the array or group, None if there is no document or a broken one.
        etag: of the document that says so.
        problem: what is wrong with the document, None if nothing is.
    """

    path: str
    layout: ArrayLayout | GroupLayout | None = None
    etag: str | None = None
    problem: str | None = None


def join(*parts: str) -> str:
    """Join parts of a key; empty ones leave no trace."""
    return "/".join(part for part in parts if part)


def read_node(
    storage: Storage,
    scope: str,
    path: str,
    *,
    first: Literal[2, 3] = 3,
    consolidated: Mapping[str, object] | None = None,
) -> Node:
    """Find out what lies at a key.

    Args:
        storage: where the store is.
        scope: key of the store.
        path: of the node below it.
        first: the format that is looked for first, since most stores have only one.
        consolidated: attributes of this node in consolidated v2 metadata.

    Returns:
        The node; without layout and problem where there is no document.

    Raises:
        UnavailableError: the store cannot be reached.
        RefusedError: the store does not serve us.
    """
    key = join(scope, path)
    readers = [_read_v3, _read_v2]
    for read in readers if first == 3 else reversed(readers):
        try:
            node = read(storage, key, path, consolidated)
        except DocumentError as error:
            return Node(path, problem=str(error))
        if node is not None:
            return node
    return Node(path)


def settle_node(storage: Storage, scope: str, array: ArrayLayout, documents: set[str]) -> ArrayLayout:
    """Settle an array beside whose document the listing has those of the other format.

    Args:
        storage: where the store is.
        scope: key of the store.
        array: as read from one format.
        documents: names of all metadata documents directly at the array.

    Returns:
        The one array that both formats describe.

    Raises:
        DocumentError: they describe different things.
    """
    key = join(scope, array.path)
    if array.zarr_format == 3 and ".zgroup" in documents:
        raise DocumentError(f"{key}: zarr.json says array and .zgroup says group")
    if ("zarr.json" not in documents) or (".zarray" not in documents):
        return array
    read = _read_v2 if array.zarr_format == 3 else _read_v3
    node = read(storage, key, array.path, None)
    if node is None:  # deleted since the listing
        return array
    if not isinstance(node.layout, ArrayLayout):
        raise DocumentError(f"{key}: zarr.json says group and .zarray says array")
    pair = (array, node.layout) if array.zarr_format == 3 else (node.layout, array)
    try:
        return settle_formats(*pair)
    except DocumentError as error:
        raise DocumentError(f"{key}: {error}") from error


def read_body(storage: Storage, key: str) -> Body | None:
    """Read a document that may not be there.

    Raises:
        DocumentError: it is too long to be one.
    """
    try:
        return storage.get(key, limit=_MAX_BYTES)
    except MissingError:
        return None
    except UnreadableError as error:
        raise DocumentError(str(error)) from error


def read_named(storage: Storage, key: str) -> tuple[bytes, str] | None:
    """Read a document that may not be there: its bytes, and its key for messages."""
    body = read_body(storage, key)
    return None if body is None else (body.data, key)


def _read_v3(storage: Storage, key: str, path: str, _: Mapping[str, object] | None) -> Node | None:
    where = join(key, "zarr.json")
    body = read_body(storage, where)
    if body is None:
        return None
    return Node(path, read_v3(path, _name(key), body.data, where), body.etag)


def _read_v2(storage: Storage, key: str, path: str, consolidated: Mapping[str, object] | None) -> Node | None:
    where = join(key, ".zarray")
    body = read_body(storage, where)
    if body is not None:
        zattrs = read_named(storage, join(key, ".zattrs"))
        array = read_v2_array(path, _name(key), body.data, where, zattrs=zattrs, consolidated=consolidated)
        return Node(path, array, body.etag)
    where = join(key, ".zgroup")
    body = read_body(storage, where)
    if body is None:
        return None
    version = parse_document(body.data, where).get("zarr_format")
    if version != 2:
        raise DocumentError(f"{where}: zarr_format is {version!r}, allowed: 2")
    return Node(path, GroupLayout(path, 2), body.etag)


def _name(key: str) -> str:
    return key.rpartition("/")[2]
