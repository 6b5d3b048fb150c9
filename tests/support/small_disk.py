"""A file system that is really full: a small one in memory, for whoever may mount one."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
"""What the file system gives away at once."""


@contextmanager
def small_disk(directory: Path, pages: int = 64) -> Iterator[Path]:
    """Mount one on a directory that exists; the test is skipped where that is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts a file system")
    size = f"size={pages * PAGE_BYTES}"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(directory)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def fill(disk: Path, *, but_for: int) -> None:
    """Use all pages of a file system up but for some, in the file `filler`."""
    free = os.statvfs(disk)
    (disk / "filler").write_bytes(bytes(free.f_bavail * free.f_frsize - but_for * PAGE_BYTES))
