"""The stores that the one contract suite runs against: memory, local files, our small S3 server, versitygw.

With `BLOBMAP_TEST_S3_URL` (and `BLOBMAP_TEST_S3_ENDPOINT`, `AWS_*`) set, a server that runs elsewhere is one too.
"""

from __future__ import annotations

import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from obstore.store import MemoryStore

from blobmap.storage import Storage, StorageOptions, open_storage

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.gateway import Gateway
    from tests.support.small_s3 import SmallS3

EXTERNAL_URL = os.environ.get("BLOBMAP_TEST_S3_URL", "")


@dataclass(frozen=True)
class Backend:
    """Something empty that keeps objects; `open` gives a Storage of its own on the same objects, in any process.

    Attributes:
        kind: which of the implementations it is.
        url: where it is; "" in memory.
        options: how to reach it.
        memory: what holds the objects in memory.
        directory: where objects are files, if they are.
    """

    kind: str
    url: str = ""
    options: StorageOptions = field(default_factory=StorageOptions)
    memory: MemoryStore | None = None
    directory: Path | None = None

    def open(self) -> Storage:
        return open_storage(self.url, self.options) if self.memory is None else Storage(self.memory)

    def fill(self, *keys: str, data: bytes = b"1") -> None:
        """Put the same bytes under many keys, fast."""
        if self.directory is not None:
            for key in keys:
                path = self.directory / key
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            return
        storage = self.open()
        with ThreadPoolExecutor(8) as writers:
            list(writers.map(lambda key: storage.put(key, data), keys))

    def clear(self) -> None:
        storage = self.open()
        for page in storage.pages():
            for entry in page:
                storage.delete(entry["path"])


def in_memory() -> Backend:
    return Backend("memory", memory=MemoryStore())


def local(directory: Path) -> Backend:
    return Backend("local", str(directory), directory=directory)


def small_server(server: SmallS3, *, timeout_s: float = 30.0) -> Backend:
    return Backend("small-s3", f"s3://{server.bucket}", small_options(server, timeout_s=timeout_s))


def small_options(server: SmallS3, *, timeout_s: float = 5.0) -> StorageOptions:
    return StorageOptions(
        endpoint=server.endpoint,
        allow_http=True,
        access_key_id="any",
        secret_access_key="any",  # noqa: S106 - the server does not look at it
        timeout_s=timeout_s,
    )


def at_gateway(gateway: Gateway, bucket: str) -> Backend:
    options = StorageOptions(
        endpoint=gateway.endpoint,
        allow_http=True,
        access_key_id=gateway.access_key,
        secret_access_key=gateway.secret_key,
    )
    return Backend("gateway", f"s3://{bucket}", options, directory=gateway.root / bucket)


def external() -> Backend:
    """A prefix of its own on the server that the environment names."""
    endpoint = os.environ.get("BLOBMAP_TEST_S3_ENDPOINT")
    options = StorageOptions(endpoint=endpoint, allow_http=True)
    return Backend("external", f"{EXTERNAL_URL.rstrip('/')}/test-{secrets.token_hex(8)}", options)
