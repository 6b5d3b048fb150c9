"""Lookups a second beside the published version, in turns, over 5,000 stores of ten arrays: one JSON line.

    python -m tests.bench lookup [--rounds N]

Three streams of keys: `bursts` of 64 chunks of one array, as writers send them; the `listing` of whole stores, with
1,000 chunks in an array; and the bursts' keys `scattered`, with no locality at all. Half the arrays have one chunk at
each index, half have twelve; coordinates have one chunk. A ratio is that of two measurements right after each other;
the median over the rounds is told.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from blobmap.chunk_keys import ChunkKeyEncoding
from blobmap.manifest import Blob, Bucket, Manifest, manifest_key, render_manifest
from tests.bench.sides import both_sides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.sides import Side

SIDE = Path(__file__).with_name("lookup_side.py")
STORES = 5_000
ARRAYS = ("tas", "pr", "hus", "ua", "va", "wap", "zg", "ta", "time", "lat")
COORDINATES = ("time", "lat")
WIDTHS = (2048, 128, 64, 37)
KEYS = 200_000
SLASH, DOT = ChunkKeyEncoding("default", "/"), ChunkKeyEncoding("v2", ".")


def main(argv: Sequence[str] | None = None) -> None:
    """Measure every stream with every method."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args(argv).rounds
    with tempfile.TemporaryDirectory(prefix="blobmap-bench-") as name:
        manifests, keys = Path(name, "manifests"), Path(name)
        _write_manifests(manifests)
        streams = {stream: _written(keys / stream, found) for stream, found in _streams(random.Random(1)).items()}  # noqa: S311 - an order, not a secret
        with both_sides(SIDE, str(manifests)) as (ours, reference):
            for path in streams.values():
                if ours.ask(f"answers {path}") != reference.ask(f"answers {path}"):
                    raise RuntimeError(f"the two versions do not agree on the {path.name}")
            found = {stream: _compare(ours, reference, path, rounds) for stream, path in streams.items()}
    print(json.dumps({"bench": "lookup", "stores": STORES, "arrays": STORES * len(ARRAYS), **found}))  # noqa: T201 - what a benchmark is for


def _compare(ours: Side, reference: Side, path: Path, rounds: int) -> dict[str, float]:
    taken = [
        (reference.ask(f"lookup {path}"), ours.ask(f"lookup {path}"), ours.ask(f"lookup_many {path}"))
        for _ in range(rounds)
    ]
    return {
        "reference_per_s": round(statistics.median(theirs for theirs, _, _ in taken)),
        "lookup_per_s": round(statistics.median(one for _, one, _ in taken)),
        "lookup_many_per_s": round(statistics.median(many for _, _, many in taken)),
        "lookup_ratio": round(statistics.median(one / theirs for theirs, one, _ in taken), 1),
        "lookup_many_ratio": round(statistics.median(many / theirs for theirs, _, many in taken), 1),
    }


def _scope(store: int) -> str:
    return f"cordex/model_{store % 50}/run_{store // 50}.zarr"


def _encoding(store: int) -> ChunkKeyEncoding:
    return DOT if store % 5 == 0 else SLASH


def _write_manifests(root: Path) -> None:
    for store in range(STORES):
        below, key_encoding, offset = _encoding(store).rule()
        manifest = Manifest(
            _scope(store),
            1,
            ("**/zarr.json", "**/.zarray", *(f"{array}/**" for array in COORDINATES)),
            tuple(
                Blob(
                    f"b_{array}",
                    ("/".join(filter(None, (array, below))),),
                    Bucket(offset, WIDTHS[number % 4], key_encoding),
                )
                for number, array in enumerate(ARRAYS)
                if array not in COORDINATES
            ),
        )
        path = root / manifest_key(manifest.scope)
        path.parent.mkdir(parents=True)
        path.write_bytes(render_manifest(manifest))


def _streams(order: random.Random) -> dict[str, list[str]]:
    bursts: list[str] = []
    while len(bursts) < KEYS:
        bursts += _keys(order.randrange(STORES), order.choice(ARRAYS), 64, order)
    listing: list[str] = []
    while len(listing) < KEYS:
        store = order.randrange(STORES)
        listing += sorted(key for array in ARRAYS for key in _keys(store, array, 1_000, order))
    return {"bursts": bursts, "listing": listing, "scattered": order.sample(bursts, len(bursts))}


def _keys(store: int, array: str, chunks: int, order: random.Random) -> list[str]:
    """Give the metadata document of an array and so many of its chunks, in the order of their indices."""
    encoding = _encoding(store)
    place = f"{_scope(store)}/{array}"
    document = f"{place}/{'zarr.json' if encoding is SLASH else '.zarray'}"
    if array in COORDINATES:
        return [document, f"{place}/{encoding.encode((0,))}"]
    tiles, first = order.choice((1, 12)), order.randrange(10_000)
    indices = ((first + number // tiles, number % tiles // 4, number % 4) for number in range(chunks))
    return [document, *(f"{place}/{encoding.encode(index)}" for index in indices)]


def _written(path: Path, keys: list[str]) -> Path:
    path.write_text("\n".join(keys), encoding="utf-8")
    return path


if __name__ == "__main__":
    main()
