"""The conformance stores: manifests of other origin, every object of their stores, and the answer for many keys."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[1] / "golden" / "conformance"


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object of a store: its key, its size in bytes, and its text where it is a metadata document."""

    key: str
    size: int
    text: str | None


@dataclass(frozen=True, slots=True)
class Case:
    """One store under the manifest of one policy."""

    store: str
    policy: str

    def __str__(self) -> str:
        return f"{self.store}-{self.policy}"

    @property
    def manifest(self) -> bytes:
        return (ROOT / self.store / f"manifest.{self.policy}.json").read_bytes()

    def answers(self) -> Iterator[tuple[str, str]]:
        """Keys, each with its blob id, or with `hot`, `pinned` or `unmanaged`."""
        with gzip.open(ROOT / self.store / f"answers.{self.policy}.ndjson.gz", "rt", encoding="utf-8") as lines:
            for line in lines:
                key, answer = json.loads(line)
                yield key, answer


def stores() -> tuple[str, ...]:
    return tuple(sorted(path.name for path in ROOT.iterdir()))


def cases() -> tuple[Case, ...]:
    names = (path.name.split(".") for path in ROOT.glob("*/manifest.*.json"))
    policies = {policy for _, policy, _ in names}
    return tuple(
        Case(store, policy)
        for store in stores()
        for policy in sorted(policies)
        if (ROOT / store / f"manifest.{policy}.json").exists()
    )


def objects(store: str) -> Iterator[StoredObject]:
    with (ROOT / store / "objects.ndjson").open(encoding="utf-8") as lines:
        for line in lines:
            document = json.loads(line)
            yield StoredObject(document["key"], document["size"], document.get("text"))
