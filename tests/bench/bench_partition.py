"""Partition beside the published version and beside a bare listing, in turns: seconds, peak memory, ratios.

    python -m tests.bench partition [--objects N ...] [--backend memory|local|gateway ...] [--rounds N]

One JSON line for each store: medians over the rounds. `peak_mib` is what the process needed above what it held before,
`child_mib` all that the largest process needed that it started meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.partition_side import write_directory
from tests.bench.sides import both_sides
from tests.services.gateway import Gateway
from tests.services.gateway_binary import installed_gateway

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SIDE = Path(__file__).with_name("partition_side.py")
BUCKET = "bench"
STEPS = (("ours", "list"), ("ours", "partition"), ("reference", "partition"))


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
    with _store(backend, objects) as place, both_sides(SIDE, backend, place, str(objects)) as (ours, reference):
        sides = {"ours": ours, "reference": reference}
        taken: dict[tuple[str, str], list[dict[str, float]]] = {step: [] for step in STEPS}
        for _ in range(rounds):
            for side, what in STEPS:
                taken[side, what].append(sides[side].ask(what))
    listing, cut, published = (
        {name: statistics.median(one[name] for one in taken[step]) for name in ("seconds", "peak_mib", "child_mib")}
        for step in STEPS
    )
    return {
        "bench": "partition",
        "backend": backend,
        "objects": objects,
        "ours_s": round(cut["seconds"], 3),
        "reference_s": round(published["seconds"], 3),
        "listing_s": round(listing["seconds"], 3),
        "reference_over_ours": round(published["seconds"] / cut["seconds"], 2),
        "ours_over_listing": round(cut["seconds"] / listing["seconds"], 2),
        "ours_peak_mib": round(cut["peak_mib"], 1),
        "ours_child_mib": round(cut["child_mib"], 1),
        "reference_peak_mib": round(published["peak_mib"], 1),
        "listing_peak_mib": round(listing["peak_mib"], 1),
    }


@contextmanager
def _store(backend: str, objects: int) -> Iterator[str]:
    """Where the store is; what the sides need to reach it is in their environment."""
    with ExitStack() as stack:
        if backend == "memory":
            yield "-"
            return
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="blobmap-bench-")))
        if backend == "local":
            write_directory(directory, objects)
            yield str(directory)
            return
        gateway = stack.enter_context(Gateway(installed_gateway(), directory))
        gateway.create_bucket(BUCKET)
        write_directory(gateway.root / BUCKET, objects)
        before = dict(os.environ)
        os.environ.update(gateway.environment())
        try:
            yield BUCKET
        finally:
            os.environ.clear()
            os.environ.update(before)


if __name__ == "__main__":
    main()
