"""What the demo needs from the world around us: a small zarr store, and the notifications that versitygw posts of it.

The store is written by hand, byte by byte as the zarr v3 specification has it, so that the demo needs no zarr.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_ITEM_BYTES = 4
_CHUNK = (1, 64, 64)


@dataclass(frozen=True, slots=True)
class Written:
    """One object of the bucket.

    Attributes:
        key: its name.
        size: bytes.
        etag: entity tag, without quotes.
    """

    key: str
    size: int
    etag: str


def write_store(bucket: Path, name: str, *, times: int, variables: tuple[str, ...]) -> list[Written]:
    """Writes a store of variables over time, y and x, as a model does: one chunk for each time step.

    Args:
        bucket: directory that is the bucket.
        name: key of the store.
        times: time steps.
        variables: names of the arrays; each has the shape (times, 64, 64) in chunks of (1, 64, 64) float32.

    Returns:
        The objects, in the order in which they were written.
    """
    return [_write(bucket, f"{name}/{key}", data) for key, data in _objects(times, variables)]


def _objects(times: int, variables: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    yield "zarr.json", _document(zarr_format=3, node_type="group", attributes={})
    yield "time/zarr.json", _array((times,), (times,), ("time",), {"units": "days since 2000-01-01"})
    yield "time/c/0", bytes(times * _ITEM_BYTES)
    for variable in variables:
        yield f"{variable}/zarr.json", _array((times, *_CHUNK[1:]), _CHUNK, ("time", "y", "x"), {})
        for step in range(times):
            yield f"{variable}/c/{step}/0/0", bytes([step % 256]) * (_CHUNK[1] * _CHUNK[2] * _ITEM_BYTES)


def _array(
    shape: tuple[int, ...], chunk: tuple[int, ...], dimensions: tuple[str, ...], attributes: Mapping[str, str]
) -> bytes:
    return _document(
        zarr_format=3,
        node_type="array",
        shape=shape,
        data_type="float32",
        chunk_grid={"name": "regular", "configuration": {"chunk_shape": chunk}},
        chunk_key_encoding={"name": "default", "configuration": {"separator": "/"}},
        fill_value=0.0,
        codecs=[{"name": "bytes", "configuration": {"endian": "little"}}],
        dimension_names=dimensions,
        attributes=attributes,
    )


def _document(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def _write(bucket: Path, key: str, data: bytes) -> Written:
    file = bucket / key
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return Written(key, len(data), hashlib.md5(data, usedforsecurity=False).hexdigest())


def notification(bucket: str, written: Written) -> bytes:
    """The body that versitygw posts to its webhook when an object was put."""
    record: dict[str, Any] = {
        "eventVersion": "2.2",
        "eventSource": "aws:s3",
        "awsRegion": "us-east-1",
        "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "eventName": "s3:ObjectCreated:Put",
        "userIdentity": {"PrincipalId": "AKDEMO"},
        "requestParameters": {"sourceIPAddress": "127.0.0.1"},
        "responseElements": {"x-amz-request-id": "", "x-amz-id-2": ""},
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "webhook-global",
            "bucket": {
                "name": bucket,
                "ownerIdentity": {"PrincipalId": "AKDEMO"},
                "arn": f"arn:aws:s3:::/{bucket}/{written.key}",
            },
            "object": {
                "key": written.key,
                "size": written.size,
                "eTag": f'"{written.etag}"',
                "versionId": None,
                "sequencer": "1",
            },
        },
        "glacierEventData": {
            "restoreEventData": {"lifecycleRestorationExpiryTime": "", "lifecycleRestoreStorageClass": ""}
        },
    }
    return json.dumps({"Records": [record]}, ensure_ascii=False).encode()
