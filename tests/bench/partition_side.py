"""One side of the partition benchmark: a process that lists and partitions one store whenever it is told to.

Runs under any interpreter that has a blobmap and obstore, so nothing of this checkout is imported. A line on stdin
names what to do (`list` or `partition`), a line on stdout answers with seconds and the memory that it took at its peak,
and with the peak of the largest process that it had started and ended until then.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from obstore.store import LocalStore, MemoryStore, S3Store

from blobmap import ManifestStore, partition_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from obstore.store import ObjectStore

SCOPE = "st.zarr"
ARRAYS = 10
CHUNK = b"abcd"


def store_keys(objects: int) -> dict[str, bytes]:
    """Documents of a v3 store of ten arrays over time; the chunks are `chunk_keys`."""
    length = objects // ARRAYS
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [length, 8, 8],
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 8, 8]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {},
        "dimension_names": ["time", "lat", "lon"],
    }
    group = {"zarr_format": 3, "node_type": "group", "attributes": {}}
    documents = {f"{SCOPE}/zarr.json": json.dumps(group).encode()}
    for number in range(ARRAYS):
        documents[f"{SCOPE}/v{number}/zarr.json"] = json.dumps(document).encode()
    return documents


def chunk_keys(objects: int) -> Iterator[str]:
    """Keys of all chunks."""
    for number in range(ARRAYS):
        for index in range(objects // ARRAYS):
            yield f"{SCOPE}/v{number}/c/{index}/0/0"


def write_directory(root: Path, objects: int) -> None:
    """The same store as files."""
    for key, data in store_keys(objects).items():
        path = root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    for key in chunk_keys(objects):
        path = root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(CHUNK)


def _memory_store(objects: int) -> MemoryStore:
    store = MemoryStore()
    for key, data in store_keys(objects).items():
        store.put(key, data)
    for key in chunk_keys(objects):
        store.put(key, CHUNK)
    return store


def _measure(work: Callable[[], object]) -> dict[str, float]:
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _status("VmRSS")
    begun = time.perf_counter()
    work()
    seconds = time.perf_counter() - begun
    peak = max(_status("VmHWM") - before, 0)
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {"seconds": seconds, "peak_mib": peak / 1024, "child_mib": child / 1024}


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise RuntimeError(f"no {field} in /proc/self/status")


def main(backend: str, place: str, objects: int) -> None:
    """Open the store, then do what is asked."""
    store: ObjectStore
    if backend == "memory":
        store = _memory_store(objects)
    elif backend == "local":
        store = LocalStore(place)
    else:
        store = S3Store(place, client_options={"allow_http": True})

    def bare_listing() -> None:
        for _ in store.list(SCOPE, chunk_size=1000):
            pass

    work = {"list": bare_listing, "partition": lambda: partition_store(store, ManifestStore(MemoryStore()), SCOPE)}
    for line in sys.stdin:
        print(json.dumps(_measure(work[line.strip()])), flush=True)  # noqa: T201 - this is how the two processes talk


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
