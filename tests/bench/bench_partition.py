"""Partition beside the published version and beside a bare listing, in turns: seconds, peak memory, ratios.

    python -m tests.bench.bench_partition [--objects N ...] [--backend memory|local|gateway ...] [--rounds N]

One JSON line for each store: medians over the rounds. `peak_mib` is what the process needed above what it held before.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.partition_side import write_directory
from tests.bench.reference import reference_python
from tests.services.gateway import Gateway
from tests.services.gateway_binary import installed_gateway

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SIDE = Path(__file__).with_name("partition_side.py")
CHECKOUT = str(Path(__file__).parents[2])
BUCKET = "bench"
STEPS = (("ours", "list"), ("ours", "partition"), ("reference", "partition"))


class Side:
    """One process that measures."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._answer()

    def measure(self, what: str) -> dict[str, float]:
        """Have it done once."""
        assert self._process.stdin is not None
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        found: dict[str, float] = json.loads(self._answer())
        return found

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a side of the benchmark ended: {self._process.args!r}")
        return line


def main(argv: Sequence[str] | None = None) -> None:
    """Measure every store that is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--objects", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--backend", nargs="+", choices=["memory", "local", "gateway"], default=["memory"])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args(argv)
    for backend in args.backend:
        for objects in args.objects:
            print(json.dumps(compare(backend, objects, args.rounds)), flush=True)  # noqa: T201 - what a benchmark is for


def compare(backend: str, objects: int, rounds: int) -> dict[str, object]:
    """Measure one store, the sides in turns."""
    with ExitStack() as stack:
        place, environment = stack.enter_context(_store(backend, objects))
        arguments = [str(SIDE), backend, place, str(objects)]
        sides = {
            name: stack.enter_context(_side([str(python), *arguments], {**environment, "PYTHONPATH": path}))
            for name, python, path in (("ours", Path(sys.executable), CHECKOUT), ("reference", reference_python(), ""))
        }
        taken: dict[tuple[str, str], list[dict[str, float]]] = {step: [] for step in STEPS}
        for _ in range(rounds):
            for side, what in STEPS:
                taken[side, what].append(sides[side].measure(what))
    seconds = {step: statistics.median(found["seconds"] for found in all_found) for step, all_found in taken.items()}
    peaks = {step: statistics.median(found["peak_mib"] for found in all_found) for step, all_found in taken.items()}
    ours, listing, reference = (seconds[step] for step in (STEPS[1], STEPS[0], STEPS[2]))
    return {
        "bench": "partition",
        "backend": backend,
        "objects": objects,
        "ours_s": round(ours, 3),
        "reference_s": round(reference, 3),
        "listing_s": round(listing, 3),
        "reference_over_ours": round(reference / ours, 2),
        "ours_over_listing": round(ours / listing, 2),
        "ours_peak_mib": round(peaks[STEPS[1]], 1),
        "reference_peak_mib": round(peaks[STEPS[2]], 1),
        "listing_peak_mib": round(peaks[STEPS[0]], 1),
    }


@contextmanager
def _store(backend: str, objects: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Where the store is, and the environment that reaches it."""
    if backend == "memory":
        yield "-", {}
        return
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="blobmap-bench-")))
        if backend == "local":
            write_directory(directory, objects)
            yield str(directory), {}
            return
        gateway = stack.enter_context(Gateway(installed_gateway(), directory))
        gateway.create_bucket(BUCKET)
        write_directory(gateway.root / BUCKET, objects)
        yield BUCKET, gateway.environment()


@contextmanager
def _side(command: list[str], environment: dict[str, str]) -> Iterator[Side]:
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    try:
        yield Side(process)
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    main()
