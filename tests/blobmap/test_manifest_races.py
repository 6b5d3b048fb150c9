"""Eight writers at the same manifests: every write that a writer was told it made is there at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.backends import small_server
from tests.support.racers import race

if TYPE_CHECKING:
    from tests.support.backends import Backend
    from tests.support.small_s3 import SmallS3

WRITERS = 8
UPDATES = 40  # `python -m tests.bench.bench_races` takes 200


def test_o06_no_write_is_lost(backend: Backend) -> None:
    if backend.kind == "small-s3":
        pytest.skip("a server of ours proves nothing about others")
    updates, creations = race(backend, writers=WRITERS, updates=UPDATES)
    assert (updates.made, updates.lost) == (WRITERS * UPDATES, 0)
    assert updates.conflicts > 0, "or they did not meet"
    assert (creations.made, creations.lost) == (UPDATES, 0), "each by one writer"


def test_a_race_that_loses_is_seen(small_s3: SmallS3) -> None:
    """Of the count itself: where conditions are ignored, writes are lost, and it says so."""
    small_s3.mood = "conditions-ignored"
    updates, creations = race(small_server(small_s3), writers=4, updates=20, in_threads=True)
    assert updates.lost > 0
    assert creations.lost > 0
