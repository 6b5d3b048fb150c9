"""Which processes of a group are alive: what a test asserts about services that it ended."""

from __future__ import annotations

import time
from pathlib import Path


def living(group: int) -> list[int]:
    """Ids of the processes of a group that have not ended; a zombie that nobody collected has (proc(5), `stat`)."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            stat = (directory / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):  # it ended while we looked
            continue
        state, _parent, process_group = stat.rpartition(")")[2].split()[:3]
        if int(process_group) == group and state not in {"Z", "X"}:
            found.append(int(directory.name))
    return found


def wait_until_gone(group: int) -> None:
    """Wait until no process of a group is alive; the time limit of the test is the limit."""
    while living(group):
        time.sleep(0.02)
