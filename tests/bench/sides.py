"""Processes that are measured against each other in turns: one under our interpreter, one under the reference's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.reference import reference_python

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECKOUT = str(Path(__file__).parents[2])


class Side:
    """One process that does what a line tells it and answers with a line of JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, what: str) -> Any:
        """Have it done once, and wait for the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a side of the benchmark ended: {self._process.args!r}")
        return json.loads(line)


@contextmanager
def both_sides(script: Path, *arguments: str) -> Iterator[tuple[Side, Side]]:
    """Run a script, that may import nothing of this checkout but `blobmap`, for us and for the reference."""
    with ExitStack() as stack:
        ours = stack.enter_context(_side([sys.executable, str(script), *arguments], CHECKOUT))
        reference = stack.enter_context(_side([str(reference_python()), str(script), *arguments], ""))
        yield ours, reference


@contextmanager
def _side(command: list[str], path: str) -> Iterator[Side]:
    environment = {**os.environ, "PYTHONPATH": path}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield Side(process)
    finally:
        process.kill()
        process.communicate()
