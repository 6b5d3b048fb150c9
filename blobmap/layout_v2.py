"""zarr v2 documents (`.zarray` and the attributes beside it) to an array.

Source: the zarr storage specification, version 2. Dimension names come from `_ARRAY_DIMENSIONS`, as xarray writes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from blobmap.arrays import ArrayLayout
from blobmap.attributes import dimension_attribute, is_own_dimension, references, time_evidence
from blobmap.chunk_keys import ChunkKeyEncoding
from blobmap.data_types import item_bytes_v2
from blobmap.errors import DocumentError
from blobmap.grids import extents, object_bytes, regular_grid

if TYPE_CHECKING:
    from collections.abc import Mapping


def read_array_v2(
    path: str, name: str, document: Mapping[str, object], attributes: Mapping[str, object]
) -> ArrayLayout:
    """Read one zarr v2 array.

    Args:
        path: of the array below the root of the store.
        name: last segment of its key.
        document: `.zarray`, parsed.
        attributes: `.zattrs`, or what consolidated metadata has in its place.

    Returns:
        The array.

    Raises:
        DocumentError: a member is missing, or not what the specification allows.
    """
    if document.get("zarr_format") != 2:
        raise DocumentError(f"zarr_format is {document.get('zarr_format')!r}, allowed: 2")
    shape = extents(document, "shape")
    chunks = extents(document, "chunks")
    separator = document.get("dimension_separator")
    dtype = document.get("dtype")
    dimensions = dimension_attribute(attributes, len(shape))
    return ArrayLayout(
        path=path,
        name=name,
        zarr_format=2,
        shape=shape,
        grid=regular_grid(shape, chunks),
        object_bytes=object_bytes(chunks, item_bytes_v2(dtype)),
        encoding=ChunkKeyEncoding("v2", _separator(separator)),
        separator_declared=separator is not None,
        dimensions=dimensions,
        coordinate=is_own_dimension(name, dimensions),
        data_type=str(dtype),
        time=time_evidence(dtype, attributes),
        references=references(attributes),
    )


def _separator(declared: object) -> Literal[".", "/"]:
    if declared is None or declared == ".":
        return "."
    if declared == "/":
        return "/"
    raise DocumentError(f"dimension_separator is {declared!r}, allowed: '.', '/'")
