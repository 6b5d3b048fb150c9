"""`ManifestStore.load_all` of 5,000 manifests with ten arrays each: seconds and manifests a second, per backend.

Run as `python -m tests.bench.bench_load_all [COUNT]`. The gateway is started where its program is or can be built.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from blobmap.manifest import Blob, Bucket, Manifest, manifest_key, render_manifest
from blobmap.manifests import ManifestStore
from tests.services.gateway import Gateway
from tests.services.gateway_binary import installed_gateway
from tests.services.process import ServiceMissingError
from tests.support.backends import Backend, at_gateway, in_memory, local

ARRAYS = [f"variable_{number}" for number in range(10)]


def main() -> None:
    """Load from every backend that there is, twice, and print a line for each."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for backend in _backends(directory, stack):
            for number in range(count):
                scope = f"project_{number % 50}/store_{number}.zarr"
                backend.fill(manifest_key(scope), data=render_manifest(_manifest(scope)))
            for turn in ("cold", "warm"):
                begun = time.perf_counter()
                loaded = sum(1 for _ in ManifestStore(backend.open()).load_all(strict=True))
                taken_s = time.perf_counter() - begun
                print(f"{backend.kind:8} {turn}: {loaded} in {taken_s:.2f} s, {loaded / taken_s:.0f} a second")  # noqa: T201 - what a benchmark is for


def _manifest(scope: str) -> Manifest:
    blobs = tuple(Blob(f"b_{array}", (f"{array}/c",), Bucket(0, 128, "v3_slash")) for array in ARRAYS)
    return Manifest(scope, 1, hot_always=("time/**", "lat/**", "lon/**"), blobs=blobs)


def _backends(directory: Path, stack: ExitStack) -> list[Backend]:
    (directory / "local").mkdir()
    found = [in_memory(), local(directory / "local")]
    try:
        gateway = stack.enter_context(Gateway(installed_gateway(), directory / "gateway"))
    except ServiceMissingError as error:
        print(error)  # noqa: T201 - what a benchmark is for
        return found
    gateway.create_bucket("manifests")
    return [*found, at_gateway(gateway, "manifests")]


if __name__ == "__main__":
    main()
