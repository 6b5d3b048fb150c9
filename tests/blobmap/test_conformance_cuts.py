from __future__ import annotations

import pytest
from obstore.store import MemoryStore

from blobmap import ManifestStore, Policy, partition_store
from blobmap.chunk_keys import METADATA_NAMES
from tests.support.brute_force import resolve
from tests.support.conformance import objects, stores
from tests.support.conformance_cuts import POLICIES, cut, golden

STORES = stores()


def test_every_store_is_frozen() -> None:
    assert len(STORES) == 21


@pytest.mark.parametrize("store", STORES)
def test_a_conformance_store_is_cut_as_it_was_when_it_was_looked_at(store: str) -> None:
    assert cut(store) == golden(store)


@pytest.mark.parametrize("store", [store for store in STORES if store != "kerchunk"])
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_the_dumb_resolver_agrees_and_nothing_archivable_is_left_out(store: str, policy: Policy) -> None:
    data = MemoryStore()
    keys = []
    for entry in objects(store):
        data.put(entry.key, entry.text.encode() if entry.text is not None else bytes(entry.size))
        keys.append(entry.key)
    outcome = partition_store(data, ManifestStore(MemoryStore()), store.replace("__", "/"), policy=policy)
    rows = {row.path: row for row in outcome.decisions}
    scope = store.replace("__", "/")
    for key in keys:
        found = resolve([outcome.manifest], key)
        below = key.removeprefix(scope + "/")
        array = max((path for path in rows if not path or below.startswith(path + "/")), key=len, default=None)
        if key.rpartition("/")[2] in METADATA_NAMES:
            assert found.kind == "hot"
        else:
            assert array is not None
            assert (found.kind == "blob") is (rows[array].verdict == "cut")
            assert (found.kind == "hot") is (rows[array].verdict == "hot")
