"""zarr v3 documents (`zarr.json` of an array) to an array.

Sources: the zarr core specification, version 3 (regular grid, chunk key encodings, extension points as a name or an
object with a name), its sharding codec, and the extensions registry for rectilinear grids, `suffix` and `fanout`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Literal

from blobmap.arrays import ArrayLayout
from blobmap.attributes import axis_names, dimension_attribute, is_own_dimension, references, time_evidence
from blobmap.chunk_keys import ChunkKeyEncoding
from blobmap.data_types import item_bytes_v3
from blobmap.errors import DocumentError
from blobmap.grids import extents, object_bytes, rectilinear_grid, regular_grid

_SHARDING: Final = "sharding_indexed"
# Chunk key encodings that are understood, but that no rule of manifest format 3 can express.
_BEYOND_RULES: Final = {
    "suffix": "its keys end in a suffix",
    "zarrs.default_suffix": "its keys end in a suffix",
    "fanout": "its keys split one index into several segments",
}


def read_array_v3(path: str, name: str, document: Mapping[str, object]) -> ArrayLayout:
    """Read one zarr v3 array.

    Args:
        path: of the array below the root of the store.
        name: last segment of its key.
        document: `zarr.json`, parsed.

    Returns:
        The array. What is well formed but beyond us (another grid, encoding or storage transformer) is an `obstacle`,
        so that an array which needs no rule is still read.

    Raises:
        DocumentError: a member is missing, or not what the specification allows.
    """
    shape = extents(document, "shape")
    grid, extent, rectilinear, obstacle = _grid(shape, document)
    encoding, unspeakable = _encoding(document)
    attributes = document.get("attributes")
    attributes = attributes if isinstance(attributes, Mapping) else {}
    declared = axis_names(document.get("dimension_names"), len(shape))
    attributed = dimension_attribute(attributes, len(shape))
    data_type = document.get("data_type")
    size = item_bytes_v3(data_type)
    if rectilinear:
        uncompressed = None if size is None else -(-math.prod(shape) * size // max(math.prod(grid), 1))
    else:
        uncompressed = object_bytes(extent, size)
    return ArrayLayout(
        path=path,
        name=name,
        zarr_format=3,
        shape=shape,
        grid=grid,
        object_bytes=uncompressed,
        encoding=encoding,
        obstacle=obstacle or unspeakable or _transformed(document),
        dimensions=_merged(declared, attributed),
        coordinate=is_own_dimension(name, declared, attributed),
        data_type=data_type if isinstance(data_type, str) else str(_name(data_type)),
        time=time_evidence(data_type, attributes),
        sharded=_SHARDING in _codecs(document),
        rectilinear=rectilinear,
        references=references(attributes),
    )


def _grid(
    shape: tuple[int, ...], document: Mapping[str, object]
) -> tuple[tuple[int, ...], tuple[int, ...], bool, str | None]:
    """Objects along each axis, extent of a regular object, whether rectilinear, and what stands in the way."""
    declared = document.get("chunk_grid")
    name, configuration = _name(declared), _configuration(declared)
    if name == "regular":
        extent = extents(configuration, "chunk_shape")
        return regular_grid(shape, extent), extent, False, None
    if name == "rectilinear" and configuration.get("kind") == "inline":
        return rectilinear_grid(shape, configuration.get("chunk_shapes")), (), True, None
    if not isinstance(name, str):
        raise DocumentError(f"chunk_grid is {declared!r}, allowed: an object with a name")
    kind = f" of kind {configuration.get('kind')!r}" if name == "rectilinear" else ""
    return (1,) * len(shape), shape, False, f"chunk grid {name!r}{kind} is unknown"


def _encoding(document: Mapping[str, object]) -> tuple[ChunkKeyEncoding | None, str | None]:
    """The chunk-key encoding, or why there is none that a rule can express."""
    declared = document.get("chunk_key_encoding")
    name, configuration = _name(declared), _configuration(declared)
    if name == "default":
        return ChunkKeyEncoding("default", _separator(configuration, "/")), None
    if name == "v2":
        return ChunkKeyEncoding("v2", _separator(configuration, ".")), None
    if not isinstance(name, str):
        raise DocumentError(f"chunk_key_encoding is {declared!r}, allowed: an object with a name")
    why = _BEYOND_RULES.get(name, "it is unknown")
    return None, f"chunk key encoding {name!r} cannot be written as a rule: {why}"


def _separator(configuration: Mapping[str, object], default: Literal["/", "."]) -> Literal["/", "."]:
    declared = configuration.get("separator", default)
    if declared == "/":
        return "/"
    if declared == ".":
        return "."
    raise DocumentError(f"chunk_key_encoding has separator {declared!r}, allowed: '/', '.'")


def _transformed(document: Mapping[str, object]) -> str | None:
    transformers = document.get("storage_transformers")
    if not transformers:
        return None
    names = [_name(item) for item in transformers] if isinstance(transformers, list) else transformers
    return f"storage transformers {names!r} are unknown, and may change keys"


def _codecs(document: Mapping[str, object]) -> list[object]:
    codecs = document.get("codecs")
    return [_name(codec) for codec in codecs] if isinstance(codecs, list) else []


def _merged(
    declared: tuple[str | None, ...] | None, attributed: tuple[str | None, ...] | None
) -> tuple[str | None, ...] | None:
    if declared is None or attributed is None:
        return declared or attributed
    return tuple(first or second for first, second in zip(declared, attributed, strict=True))


def _name(extension: object) -> object:
    return extension.get("name") if isinstance(extension, Mapping) else extension


def _configuration(extension: object) -> Mapping[str, object]:
    configuration = extension.get("configuration") if isinstance(extension, Mapping) else None
    return configuration if isinstance(configuration, Mapping) else {}
