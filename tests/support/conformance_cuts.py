"""What we make of the conformance stores: the table, the manifest and the answers, as they are frozen in `golden/cuts`.

`python -m tests.support.conformance_cuts` writes them anew. Ids and answers may change only with the format's version:
look at every line of the difference before it is committed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from obstore.store import MemoryStore

from blobmap import ManifestStore, Policy, Trie, partition_store
from blobmap.errors import MissingError
from blobmap.manifest import render_manifest
from blobmap.policy import format_size
from tests.support.conformance import objects, stores

ROOT: Final = Path(__file__).parents[1] / "golden" / "cuts"
POLICIES: Final = {
    "default": Policy(),
    "one": Policy(t_max_bytes=2**30, t_hot_bytes=1),
    "small": Policy(t_max_bytes=4096, t_hot_bytes=100, pow2_floor=4),
    "tight": Policy(t_max_bytes=1000, t_hot_bytes=20, t_aux_bytes=200, width_clamp=2),
}


def cut(store: str) -> dict[str, Any]:
    """Cut one store under every policy."""
    data = MemoryStore()
    for entry in objects(store):
        data.put(entry.key, entry.text.encode() if entry.text is not None else bytes(entry.size))
    return {name: _cut(data, store, policy) for name, policy in POLICIES.items()}


def _cut(data: MemoryStore, store: str, policy: Policy) -> dict[str, Any]:
    scope = store.replace("__", "/")
    manifests = ManifestStore(MemoryStore())
    try:
        outcome = partition_store(data, manifests, scope, policy=policy)
    except MissingError as error:
        return {"error": str(error)}
    trie = Trie()
    trie.add_all(manifests.load_all(strict=True))
    answers: dict[str, list[Any]] = {}
    for key in sorted(entry.key for entry in objects(store)):
        found = trie.lookup(key)
        seen = answers.setdefault(found.blob_id or found.kind, [0, key, key])
        seen[0], seen[2] = seen[0] + 1, key
    manifest = json.loads(render_manifest(outcome.manifest))
    del manifest["generated_at"], manifest["generated_by"]
    rows = [
        f"{row.path or '.'} | {row.objects} of {row.grid_objects} | {format_size(row.stored_bytes)} | {row.role} | "
        + (f"{row.blobs.id}_{row.blobs.first}..{row.blobs.last}" if row.blobs else row.verdict)
        + f" | {row.reason}"
        for row in outcome.decisions
    ]
    return {"table": rows, "warnings": list(outcome.warnings), "answers": answers, "manifest": manifest}


def golden(store: str) -> dict[str, Any]:
    """What was frozen."""
    found: dict[str, Any] = json.loads((ROOT / f"{store}.json").read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    ROOT.mkdir(exist_ok=True)
    for name in stores():
        text = json.dumps(cut(name), indent=1, ensure_ascii=False)
        (ROOT / f"{name}.json").write_text(text + "\n", encoding="utf-8")
