"""A walk over local files beside obstore's own listing of them: seconds, and the most memory that was held.

Run as `python -m tests.bench.bench_list_local [COUNT]`: files of one byte, a hundred in a directory, as chunks lie.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from obstore.store import LocalStore

from blobmap.storage import StorageOptions, open_storage

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> None:
    """Make the files, list them both ways, and print a line for each."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as name:
        _make(Path(name), count)
        for turn in ("first", "again"):
            _measure(f"our walk, {turn}", lambda: _count_ours(name))
            _measure(f"obstore, {turn}", lambda: _count_theirs(name))


def _make(root: Path, count: int) -> None:
    for place in range(0, count, 100):
        directory = root / "st.zarr" / f"v{place // 100_000}" / "c" / str(place // 100) / "0"
        directory.mkdir(parents=True)
        for number in range(min(100, count - place)):
            (directory / str(number)).write_bytes(b"1")


def _count_ours(root: str) -> int:
    return sum(len(page) for page in open_storage(root, StorageOptions()).pages())


def _count_theirs(root: str) -> int:
    return sum(len(page) for page in LocalStore(root).list(chunk_size=1000))


def _measure(what: str, count: Callable[[], int]) -> None:
    begun = time.perf_counter()
    found = count()
    taken_s = time.perf_counter() - begun
    held_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{what:16} {found} files in {taken_s:.1f} s, {held_mib:.0f} MiB at most so far")  # noqa: T201 - what a benchmark is for


if __name__ == "__main__":
    main()
