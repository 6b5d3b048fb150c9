"""`report` beside a bare parallel listing of the same objects, in turns: seconds, peak memory, ratio.

    python -m tests.bench.bench_report [--objects N] [--backend memory|local|gateway ...] [--rounds N]

The bare listing is obstore's own, each array in a thread, pages counted and dropped. One JSON line for each backend:
medians over the rounds. `peak_mib` is what was needed above what the process held before.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from obstore.store import LocalStore, MemoryStore

from blobmap import ManifestStore, Policy, partition_store
from blobmap.blob_sizes import Window
from blobmap.report import make_report
from blobmap.storage import as_storage
from tests.bench.partition_side import ARRAYS, SCOPE, chunk_keys, store_keys, write_directory
from tests.services.gateway import Gateway
from tests.services.gateway_binary import installed_gateway

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from obstore.store import ObjectStore

BUCKET = "bench"
THREADS = 16
SMALL = Policy(t_max_bytes=64 * 1024, t_hot_bytes=0)


def main() -> None:
    """Measure every backend that is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--backend", nargs="+", choices=["memory", "local", "gateway"], default=["memory"])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    for backend in args.backend:
        with _store(backend, args.objects) as store:
            print(json.dumps(compare(backend, store, args.objects, args.rounds)), flush=True)  # noqa: T201 - what a benchmark is for


def compare(backend: str, store: ObjectStore, objects: int, rounds: int) -> dict[str, object]:
    """Measure one store, both ways in turns."""
    manifests = ManifestStore(MemoryStore())
    partition_store(store, manifests, SCOPE, policy=SMALL)
    taken: dict[str, list[tuple[float, float]]] = {"list": [], "report": []}
    for _ in range(rounds):
        taken["list"].append(_measure(lambda: _list(store, objects)))
        taken["report"].append(_measure(lambda: _report(store, manifests, objects)))
    listing, report = (
        [statistics.median(values) for values in zip(*taken[name], strict=True)] for name in ("list", "report")
    )
    return {
        "bench": "report",
        "backend": backend,
        "objects": objects,
        "report_s": round(report[0], 2),
        "listing_s": round(listing[0], 2),
        "report_over_listing": round(report[0] / listing[0], 2),
        "report_peak_mib": round(report[1], 1),
        "listing_peak_mib": round(listing[1], 1),
    }


def _list(store: ObjectStore, objects: int) -> None:
    prefixes = [f"{SCOPE}/v{number}" for number in range(ARRAYS)]
    with ThreadPoolExecutor(THREADS) as threads:
        counts = threads.map(lambda prefix: sum(len(page) for page in store.list(prefix, chunk_size=1000)), prefixes)
        _check(sum(counts), objects + ARRAYS)


def _report(store: ObjectStore, manifests: ManifestStore, objects: int) -> None:
    report = make_report(as_storage(store), manifests, window=Window())
    _check(report.total.total.objects, objects + ARRAYS + 1)
    _check(report.total.archivable.objects, objects)


def _check(found: int, expected: int) -> None:
    if found != expected:
        raise RuntimeError(f"{found} objects, expected {expected}")


@contextmanager
def _store(backend: str, objects: int) -> Iterator[ObjectStore]:
    if backend == "memory":
        store = MemoryStore()
        for key, data in store_keys(objects).items():
            store.put(key, data)
        for key in chunk_keys(objects):
            store.put(key, b"abcd")
        yield store
        return
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="blobmap-bench-")))
        if backend == "local":
            write_directory(directory, objects)
            yield LocalStore(directory)
            return
        gateway = stack.enter_context(Gateway(installed_gateway(), directory))
        gateway.create_bucket(BUCKET)
        write_directory(gateway.root / BUCKET, objects)
        os.environ.update(gateway.environment())
        yield gateway.store(BUCKET)


def _measure(work: Callable[[], object]) -> tuple[float, float]:
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _status("VmRSS")
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun, max(_status("VmHWM") - before, 0) / 1024


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise RuntimeError(f"no {field} in /proc/self/status")


if __name__ == "__main__":
    main()
