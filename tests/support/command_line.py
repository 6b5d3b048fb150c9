"""The command line called in this process, and a small bucket for it to work on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from obstore.store import LocalStore

from blobmap import ManifestStore
from blobmap.cli import main
from tests.support.stores import RawArray, write_store

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pytest

SCOPE = "a/st.zarr"
SMALL = ("--t-max", "1280", "--t-hot", "64")
"""Thresholds under which the arrays of the small bucket are cut."""


class Answer(NamedTuple):
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class CommandLine:
    """`blobmap` over a directory of data and one of manifests.

    Args:
        capsys: takes what it prints.
        directory: holds `bucket` and `manifests`; the latter is not made here.
    """

    def __init__(self, capsys: pytest.CaptureFixture[str], directory: Path) -> None:
        self._capsys = capsys
        self.data = directory / "bucket"
        self.manifest_root = directory / "manifests"

    @property
    def roots(self) -> tuple[str, ...]:
        return ("--data", str(self.data), "--manifests", str(self.manifest_root))

    @property
    def manifests(self) -> ManifestStore:
        return ManifestStore(LocalStore(self.manifest_root))

    def __call__(self, *words: str) -> Answer:
        return self.bare(*self.roots, *words)

    def bare(self, *words: str) -> Answer:
        """Call it with these words and no others."""
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        return Answer(code, *self._capsys.readouterr())

    def fill(self, scope: str, arrays: Iterable[RawArray]) -> None:
        """Write a store into the bucket."""
        self.data.mkdir(parents=True, exist_ok=True)
        write_store(LocalStore(self.data), scope, arrays)


def small_bucket(capsys: pytest.CaptureFixture[str], directory: Path) -> CommandLine:
    """A bucket with one store: 80 objects of `tas` in 32 bytes each, 40 of the coordinate `time` in 100 each."""
    line = CommandLine(capsys, directory)
    tas = RawArray("tas", (40, 8, 8), (1, 4, 8), ["time", "lat", "lon"], nbytes=32)
    time = RawArray("time", (40,), (1,), ["time"], nbytes=100)
    line.fill(SCOPE, [tas, time])
    return line
