"""Stores for tests, object by object: metadata documents as writers spell them, chunks of any size and number.

No zarr library here: what a library would not write (a missing chunk, a broken document, two formats at once) is half
of what has to be read. Stores that real libraries write come from `library_stores`.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from obstore.store import ObjectStore

Objects = dict[str, bytes]


@dataclass
class RawArray:
    """An array to write.

    `chunks` is the object's shape (of the shard, where `inner` is given), or with `edges` unused. `present` limits the
    chunks that are stored; `nbytes` is the size of an object, or a function of its indices.
    """

    path: str
    shape: Sequence[int]
    chunks: Sequence[int] = ()
    dims: Sequence[str | None] | None = None
    format: Literal[2, 3] = 3
    keys: Literal["default", "v2"] = "default"
    separator: str | None = "/"
    dtype: object = "float32"
    attributes: Mapping[str, object] = field(default_factory=dict)
    inner: Sequence[int] | None = None
    edges: Sequence[object] | None = None
    present: Iterable[tuple[int, ...]] | None = None
    nbytes: int | Callable[[tuple[int, ...]], int] = 4
    members: Mapping[str, object] = field(default_factory=dict)
    """Members that replace or join those of the array's document."""

    def grid(self) -> tuple[int, ...]:
        if self.edges is not None:
            return tuple(_edge_count(entry) for entry in self.edges)
        return tuple(-(-length // chunk) for length, chunk in zip(self.shape, self.chunks, strict=True))

    def documents(self) -> Objects:
        if self.format == 2:
            return self._documents_v2()
        return {"zarr.json": _json(self._document_v3())}

    def chunk_keys(self) -> Iterator[tuple[str, int]]:
        indices = itertools.product(*map(range, self.grid())) if self.present is None else self.present
        for index in indices:
            yield self.chunk_key(index), self.nbytes if isinstance(self.nbytes, int) else self.nbytes(index)

    def chunk_key(self, index: Sequence[int]) -> str:
        separator = self.separator or ("/" if self.format == 3 and self.keys == "default" else ".")
        parts = [str(i) for i in index]
        if self.format == 3 and self.keys == "default":
            return separator.join(["c", *parts])
        return separator.join(parts) or "0"

    def _document_v3(self) -> dict[str, object]:
        configuration = {} if self.separator is None else {"separator": self.separator}
        codecs: list[object] = [{"name": "bytes", "configuration": {"endian": "little"}}]
        if self.inner is not None:
            codecs = [
                {"name": "sharding_indexed", "configuration": {"chunk_shape": list(self.inner), "codecs": codecs}}
            ]
        grid: dict[str, object] = {"name": "regular", "configuration": {"chunk_shape": list(self.chunks)}}
        if self.edges is not None:
            grid = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": list(self.edges)}}
        document: dict[str, object] = {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(self.shape),
            "data_type": self.dtype,
            "chunk_grid": grid,
            "chunk_key_encoding": {"name": self.keys, "configuration": configuration},
            "fill_value": 0,
            "codecs": codecs,
            "attributes": dict(self.attributes),
        }
        if self.dims is not None:
            document["dimension_names"] = list(self.dims)
        return {**document, **self.members}

    def _documents_v2(self) -> Objects:
        document: dict[str, object] = {
            "zarr_format": 2,
            "shape": list(self.shape),
            "chunks": list(self.chunks),
            "dtype": {"float32": "<f4", "float64": "<f8"}.get(str(self.dtype), self.dtype),
            "compressor": None,
            "fill_value": 0,
            "order": "C",
            "filters": None,
        }
        if self.separator is not None:
            document["dimension_separator"] = self.separator
        attributes = dict(self.attributes)
        if self.dims is not None:
            attributes["_ARRAY_DIMENSIONS"] = list(self.dims)
        documents = {".zarray": _json({**document, **self.members})}
        return {**documents, ".zattrs": _json(attributes)} if attributes else documents


def group_v3(attributes: Mapping[str, object] | None = None, **members: object) -> bytes:
    return _json({"zarr_format": 3, "node_type": "group", "attributes": attributes or {}, **members})


def group_v2() -> bytes:
    return _json({"zarr_format": 2})


def store_objects(scope: str, arrays: Iterable[RawArray], *, groups: Mapping[str, object] | None = None) -> Objects:
    """Every object of a store: arrays, and a group at every level above them.

    `groups` gives attributes by group path; a group of a format that any array below it has not is not written.
    """
    arrays = list(arrays)
    attributes = dict(groups or {})
    objects: Objects = {}
    for array in arrays:
        base = _join(scope, array.path)
        objects |= {_join(base, name): data for name, data in array.documents().items()}
        objects |= {_join(base, key): bytes(size) for key, size in array.chunk_keys()}
    formats: dict[str, int] = dict.fromkeys(attributes, arrays[0].format if arrays else 3)
    for array in arrays:
        parent = array.path
        while parent:
            parent = parent.rpartition("/")[0]
            formats[parent] = array.format
    if not arrays:
        formats.setdefault("", 3)
    for path, fmt in formats.items():
        own = attributes.get(path) or {}
        if fmt == 3:
            objects[_join(scope, path, "zarr.json")] = group_v3(own)  # type: ignore[arg-type]  # attributes of a group
        else:
            objects[_join(scope, path, ".zgroup")] = group_v2()
            if own:
                objects[_join(scope, path, ".zattrs")] = _json(own)
    return objects


def put_all(store: ObjectStore, objects: Mapping[str, bytes]) -> None:
    for key, data in objects.items():
        store.put(key, data)


def write_store(
    store: ObjectStore, scope: str, arrays: Iterable[RawArray], *, groups: Mapping[str, object] | None = None
) -> Objects:
    objects = store_objects(scope, arrays, groups=groups)
    put_all(store, objects)
    return objects


def chunk_keys(scope: str, array: RawArray) -> list[str]:
    """Full keys of the array's stored objects."""
    return [_join(scope, array.path, key) for key, _ in array.chunk_keys()]


def _edge_count(entry: object) -> int:
    assert isinstance(entry, list)
    return sum(item[1] if isinstance(item, list) else 1 for item in entry)


def _join(*parts: str) -> str:
    return "/".join(part for part in parts if part)


def _json(document: object) -> bytes:
    return json.dumps(document).encode()
