"""zarr metadata documents to frozen arrays and groups: the one door through which their text comes in.

A document is judged alone; what it says about its neighbours (coordinates, axes) is put together in `roles`. Errors
name the document. What is valid but cannot be cut is an array with an `obstacle`, not an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from blobmap.arrays import ArrayLayout, GroupLayout
from blobmap.attributes import multiscale_time_axes, references
from blobmap.chunk_keys import ChunkKeyEncoding
from blobmap.errors import DocumentError
from blobmap.layout_v2 import read_array_v2
from blobmap.layout_v3 import read_array_v3

if TYPE_CHECKING:
    from collections.abc import Callable

_NO_ATTRIBUTES: Mapping[str, object] = {}


@dataclass(frozen=True, slots=True)
class Consolidated:
    """What a consolidated `.zmetadata` repeats of the documents below its group: hints for where those are silent.

    Attributes:
        attributes: user attributes by path below the group.
        arrays: paths below the group of what it calls arrays.
    """

    attributes: Mapping[str, Mapping[str, object]]
    arrays: tuple[str, ...]


def parse_document(data: bytes, key: str) -> dict[str, object]:
    """Parse one metadata document.

    Args:
        data: its bytes. Bare `NaN`, `Infinity` and `-Infinity` are read although they are no JSON: writers put them.
        key: of the document, for the message.

    Returns:
        The JSON object.

    Raises:
        DocumentError: it is no JSON object.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"{key}: {len(data)} bytes are no JSON document ({error})") from error
    if not isinstance(document, dict):
        raise DocumentError(f"{key}: a JSON {type(document).__name__}, allowed: an object")
    return document


def read_v3(path: str, name: str, data: bytes, key: str) -> ArrayLayout | GroupLayout:
    """Read a `zarr.json`.

    Args:
        path: of its node below the root of the store.
        name: last segment of the node's key.
        data: the bytes.
        key: of the document, for the message.

    Returns:
        The array or group.

    Raises:
        DocumentError: the document is no JSON, or breaks the specification.
    """
    document = parse_document(data, key)
    if document.get("zarr_format") != 3:
        raise DocumentError(f"{key}: zarr_format is {document.get('zarr_format')!r}, allowed: 3")
    kind = document.get("node_type")
    if kind == "array":
        return _named(key, lambda: read_array_v3(path, name, document))
    if kind != "group":
        raise DocumentError(f"{key}: node_type is {kind!r}, allowed: 'array', 'group'")
    attributes = _object(document.get("attributes"))
    members = _object(_object(document.get("consolidated_metadata")).get("metadata"))
    return GroupLayout(
        path=path,
        zarr_format=3,
        references=references(attributes),
        time_axes=multiscale_time_axes(attributes),
        members=tuple(member for member, entry in members.items() if _object(entry).get("node_type") == "array"),
    )


def read_v2_array(
    path: str,
    name: str,
    zarray: bytes,
    key: str,
    *,
    zattrs: tuple[bytes, str] | None,
    consolidated: Mapping[str, object] | None = None,
) -> ArrayLayout:
    """Read a `.zarray` and its attributes.

    Args:
        path: of the array below the root of the store.
        name: last segment of the array's key.
        zarray: bytes of `.zarray`.
        key: of `.zarray`, for the message.
        zattrs: bytes and key of `.zattrs`, None if there is none.
        consolidated: the array's attributes in a consolidated `.zmetadata`, used where there is no `.zattrs`.

    Returns:
        The array.

    Raises:
        DocumentError: a document is no JSON, or breaks the specification.
    """
    attributes = parse_document(*zattrs) if zattrs is not None else consolidated or _NO_ATTRIBUTES
    document = parse_document(zarray, key)
    return _named(key, lambda: read_array_v2(path, name, document, attributes))


def read_v2_group(path: str, *, zattrs: tuple[bytes, str] | None, members: tuple[str, ...] = ()) -> GroupLayout:
    """Read what a v2 group says beyond that it is one.

    Args:
        path: of the group below the root of the store.
        zattrs: bytes and key of `.zattrs`, None if there is none.
        members: what its consolidated metadata names as arrays.

    Returns:
        The group.

    Raises:
        DocumentError: `.zattrs` is no JSON object.
    """
    attributes = parse_document(*zattrs) if zattrs is not None else _NO_ATTRIBUTES
    return GroupLayout(
        path=path,
        zarr_format=2,
        references=references(attributes),
        time_axes=multiscale_time_axes(attributes),
        members=members,
    )


def read_consolidated(data: bytes, key: str) -> Consolidated:
    """Read a `.zmetadata`.

    Args:
        data: its bytes.
        key: of the document, for the message.

    Returns:
        What it repeats.

    Raises:
        DocumentError: it is no JSON object.
    """
    metadata = _object(parse_document(data, key).get("metadata"))
    attributes: dict[str, Mapping[str, object]] = {}
    arrays: list[str] = []
    for member, entry in metadata.items():
        path, _, document = member.rpartition("/")
        if document == ".zattrs":
            attributes[path] = _object(entry)
        elif document == ".zarray":
            arrays.append(path)
    return Consolidated(attributes, tuple(arrays))


def settle_formats(v3: ArrayLayout, v2: ArrayLayout) -> ArrayLayout:
    """Settle an array that has documents of both formats, which is common after a migration of the metadata.

    Args:
        v3: what its `zarr.json` says.
        v2: what its `.zarray` says.

    Returns:
        One array: that of `zarr.json`, with axis names from `.zattrs` where only those are known.

    Raises:
        DocumentError: the two describe different objects; which of them is true cannot be told from here.
    """
    differences = [
        f"{what} {_said(mine)} and {_said(theirs)}"
        for what, mine, theirs in (
            ("shape", v3.shape, v2.shape),
            ("grid of objects", v3.grid, v2.grid),
            ("dimensions", v3.dimensions or v2.dimensions, v2.dimensions or v3.dimensions),
            ("chunk keys", v3.encoding, v2.encoding),
        )
        if mine != theirs
    ]
    if differences:
        raise DocumentError(f"zarr.json and .zarray disagree: {', '.join(differences)}")
    if v3.dimensions is not None:
        return v3
    return replace(v3, dimensions=v2.dimensions, coordinate=v2.coordinate)


def _said(value: object) -> str:
    if value is None:
        return "none"
    return f"like {value.encode((0, 0))!r}" if isinstance(value, ChunkKeyEncoding) else str(value)


def _named(key: str, read: Callable[[], ArrayLayout]) -> ArrayLayout:
    try:
        return read()
    except DocumentError as error:
        raise DocumentError(f"{key}: {error}") from error


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else _NO_ATTRIBUTES
