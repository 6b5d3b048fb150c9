"""The stores of the contract suite, as one fixture with a parameter for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.backends import EXTERNAL_URL, at_gateway, external, in_memory, local, small_server
from tests.support.small_s3 import SmallS3, running_s3

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.backends import Backend

BACKENDS = [
    "memory",
    "local",
    "small-s3",
    pytest.param("gateway", marks=pytest.mark.services),
    *(["external"] if EXTERNAL_URL else []),
]


@pytest.fixture(scope="session")
def fresh_s3() -> Iterator[Callable[[], SmallS3]]:
    """Make the small S3 server of this run as new."""
    with running_s3() as fresh:
        yield fresh


@pytest.fixture
def small_s3(fresh_s3: Callable[[], SmallS3]) -> Iterator[SmallS3]:
    """The small S3 server as new for one test, well-behaved until it is told otherwise."""
    yield fresh_s3()
    fresh_s3()


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """An empty store, once for every implementation."""
    match request.param:
        case "memory":
            yield in_memory()
        case "local":
            yield local(tmp_path)
        case "small-s3":
            yield small_server(request.getfixturevalue("small_s3"))
        case "gateway":
            yield at_gateway(request.getfixturevalue("gateway"), request.getfixturevalue("bucket"))
        case _:
            backend = external()
            yield backend
            backend.clear()
