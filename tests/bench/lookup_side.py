"""One side of the lookup benchmark: a process that holds every manifest and resolves keys whenever it is told to.

Runs under any interpreter that has a blobmap and obstore, so nothing of this checkout is imported. A line on stdin
names a method and a file of keys; a line on stdout answers with the keys resolved a second. The method `answers` tells
a digest of all answers instead.
"""

from __future__ import annotations

import gc
import hashlib
import json
import sys
import time
from pathlib import Path

from obstore.store import LocalStore

from blobmap import ManifestStore, Trie


def lookups_per_s(trie: Trie, keys: list[str]) -> float:
    """Resolve key by key."""
    lookup = trie.lookup
    begun = time.perf_counter()
    for key in keys:
        lookup(key)
    return len(keys) / (time.perf_counter() - begun)


def many_lookups_per_s(trie: Trie, keys: list[str]) -> float:
    """Resolve them as one stream."""
    begun = time.perf_counter()
    for _ in trie.lookup_many(keys):
        pass
    return len(keys) / (time.perf_counter() - begun)


def answers(trie: Trie, keys: list[str]) -> str:
    """Digest what every key resolves to."""
    digest = hashlib.sha256()
    for key in keys:
        resolution = trie.lookup(key)
        digest.update(f"{resolution.blob_id or resolution.kind}\n".encode())
    return digest.hexdigest()


def main(manifests: str) -> None:
    """Hold what lies there, then do what is asked."""
    trie = Trie()
    trie.add_all(ManifestStore(LocalStore(manifests)).load_all())
    gc.freeze()
    work = {"lookup": lookups_per_s, "lookup_many": many_lookups_per_s, "answers": answers}
    for line in sys.stdin:
        method, _, path = line.strip().partition(" ")
        keys = Path(path).read_text(encoding="utf-8").split("\n")
        print(json.dumps(work[method](trie, keys)), flush=True)  # noqa: T201 - this is how the two processes talk


if __name__ == "__main__":
    main(sys.argv[1])
