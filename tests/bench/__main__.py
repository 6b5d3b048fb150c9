"""Benchmarks by name: `python -m tests.bench [NAME [ARGUMENT ...]]`; without a name, all of them in turn."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

NAMES = sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))


def main(arguments: list[str]) -> None:
    """Run what is named, as if it were started by itself."""
    if arguments and arguments[0] not in NAMES:
        sys.exit(f"{arguments[0]!r} is no benchmark, allowed: {', '.join(NAMES)}")
    for name in arguments[:1] or NAMES:
        sys.argv = [name, *arguments[1:]]
        runpy.run_module(f"tests.bench.bench_{name}", run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
