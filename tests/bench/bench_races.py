"""Eight processes that make 200 updates each of one manifest, per backend: writes made, conflicts, writes lost.

Run as `python -m tests.bench.bench_races`. The gateway is started where its program is found or can be built.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.services.gateway import Gateway
from tests.services.gateway_binary import installed_gateway
from tests.services.process import ServiceMissingError
from tests.support.backends import EXTERNAL_URL, Backend, at_gateway, external, in_memory, local
from tests.support.racers import race

WRITERS = 8
UPDATES = 200


def main() -> None:
    """Race every backend that there is, and print a line for each."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for backend in _backends(directory, stack):
            begun = time.perf_counter()
            updates, creations = race(backend, writers=WRITERS, updates=UPDATES)
            taken_s = time.perf_counter() - begun
            print(  # noqa: T201 - what a benchmark is for
                f"{backend.kind:9} updates made {updates.made}, lost {updates.lost}, conflicts {updates.conflicts}; "
                f"first writes made {creations.made}, lost {creations.lost}; {taken_s:.1f} s"
            )


def _backends(directory: Path, stack: ExitStack) -> list[Backend]:
    found = [in_memory(), local(directory)]
    try:
        gateway = stack.enter_context(Gateway(installed_gateway(), directory / "gateway"))
        gateway.create_bucket("races")
        found.append(at_gateway(gateway, "races"))
    except ServiceMissingError as error:
        print(error)  # noqa: T201 - what a benchmark is for
    return [*found, external()] if EXTERNAL_URL else found


if __name__ == "__main__":
    main()
