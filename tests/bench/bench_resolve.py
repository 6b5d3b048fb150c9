"""`blobmap resolve` of one key against many manifests, beside the published version, as commands: seconds each.

    python -m tests.bench.bench_resolve [--manifests N] [--rounds N]

Both commands are started anew each time, in turns, on the same directory of manifests; the start of the interpreter is
in it. One JSON line: medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from blobmap.manifest import Blob, Bucket, Manifest, manifest_key, render_manifest
from tests.bench.reference import reference_python

ARRAYS = [f"variable_{number}" for number in range(10)]
KEY = "project_7/store_57.zarr/variable_3/c/5000/0/0"
POLICY = {"t_max_bytes": 100 * 2**30, "t_min_bytes": 0, "t_hot_bytes": 2**24, "width_clamp": 8, "pow2_floor": 64}


def main() -> None:
    """Write the manifests, and let both commands answer."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--manifests", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="blobmap-bench-") as directory:
        root = Path(directory, "manifests")
        data = Path(directory, "data")
        data.mkdir()
        for number in range(args.manifests):
            _write(root, f"project_{number % 50}/store_{number}.zarr")
        words = ["--data", str(data), "--manifests", str(root), "resolve", KEY]
        programs = {"ours": Path(sys.executable), "reference": reference_python()}
        taken: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(args.rounds):
            for name, python in programs.items():
                taken[name].append(_run([str(python.with_name("blobmap")), *words]))
    ours, reference = (statistics.median(taken[name]) for name in ("ours", "reference"))
    print(  # noqa: T201 - what a benchmark is for
        json.dumps(
            {
                "bench": "resolve one key",
                "manifests": args.manifests,
                "ours_s": round(ours, 3),
                "reference_s": round(reference, 3),
                "reference_over_ours": round(reference / ours, 1),
            }
        )
    )


def _write(root: Path, scope: str) -> None:
    blobs = tuple(Blob(f"b_{array}", (f"{array}/c",), Bucket(0, 512, "v3_slash")) for array in ARRAYS)
    provenance = {array: {"objects": 1000, "stored_bytes": 10**9, "shape": [1000, 100, 100]} for array in ARRAYS}
    manifest = Manifest(scope, 1, ("time/**", "lat/**"), blobs, policy=POLICY, provenance=provenance)
    path = root / manifest_key(scope)
    path.parent.mkdir(parents=True)
    path.write_bytes(render_manifest(manifest))


def _run(words: list[str]) -> float:
    begun = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    taken_s = time.perf_counter() - begun
    if "b_variable_3_9" not in done.stdout:
        raise RuntimeError(f"{words[0]} answers {done.stdout!r}")
    return taken_s


if __name__ == "__main__":
    main()
