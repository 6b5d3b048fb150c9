from __future__ import annotations

import pytest
from obstore.store import MemoryStore

from blobmap import ManifestStore, Policy, Trie, partition_store
from blobmap.errors import MissingError, UsageError
from tests.support.stores import RawArray, chunk_keys, write_store

SMALL = Policy(t_max_bytes=1280, t_hot_bytes=64)


def climate(fmt: int = 3, separator: str = "/") -> list[RawArray]:
    form = {"format": fmt, "separator": separator}
    return [
        RawArray("tas", (40, 8, 8), (1, 4, 8), ["time", "lat", "lon"], nbytes=32, **form),  # type: ignore[arg-type]
        RawArray("time", (40,), (1,), ["time"], nbytes=100, **form),  # type: ignore[arg-type]
        RawArray("lat", (8,), (8,), ["lat"], **form),  # type: ignore[arg-type]
    ]


@pytest.mark.parametrize(("fmt", "separator"), [(3, "/"), (3, "."), (2, "/"), (2, ".")])
@pytest.mark.parametrize("scope", ["", "a/st.zarr"])
def test_a_store_is_cut_and_every_key_resolves(fmt: int, separator: str, scope: str) -> None:
    data, manifests = MemoryStore(), ManifestStore(MemoryStore())
    arrays = climate(fmt, separator)
    objects = write_store(data, scope, arrays)
    outcome = partition_store(data, manifests, scope, policy=SMALL)
    assert outcome.written
    assert [(row.path, row.verdict, row.objects) for row in outcome.decisions] == [
        ("lat", "hot", 1),
        ("tas", "cut", 80),
        ("time", "hot", 40),
    ]
    assert manifests.read(scope).manifest == outcome.manifest
    trie = Trie()
    trie.add_all(manifests.load_all())
    tas = chunk_keys(scope, arrays[0])
    assert [trie.lookup(key).blob_id for key in tas] == [f"b_tas_{n // 20}" for n in range(40) for _ in range(2)]
    assert {trie.lookup(key).kind for key in objects if key not in tas} == {"hot"}


def test_a_run_that_changes_nothing_writes_nothing() -> None:
    data, manifests = MemoryStore(), ManifestStore(MemoryStore())
    write_store(data, "st", climate())
    first = partition_store(data, manifests, "st", policy=SMALL)
    again = partition_store(data, manifests, "st")
    assert not again.written
    assert again.manifest == first.manifest
    assert again.difference == type(again.difference)()


def test_a_dry_run_writes_nothing_and_says_the_same() -> None:
    data, manifests = MemoryStore(), ManifestStore(MemoryStore())
    write_store(data, "st", climate())
    dry = partition_store(data, manifests, "st", policy=SMALL, dry_run=True)
    assert not dry.written
    assert list(manifests.scopes()) == []
    wet = partition_store(data, manifests, "st", policy=SMALL)
    assert dry.decisions == wet.decisions
    assert dry.difference == wet.difference


def test_where_there_is_no_store_nothing_is_written() -> None:
    data, manifests = MemoryStore(), ManifestStore(MemoryStore())
    data.put("raw/README.md", b"x")
    for scope in ("raw", "nowhere"):
        with pytest.raises(MissingError, match=f"no zarr store at '{scope}'"):
            partition_store(data, manifests, scope)
    assert list(manifests.scopes()) == []


@pytest.mark.parametrize("scope", ["/st", "st//x", "..", "a/../b", "./st", "/"])
def test_a_scope_that_is_no_key_is_refused(scope: str) -> None:
    with pytest.raises(UsageError, match="is no key"):
        partition_store(MemoryStore(), ManifestStore(MemoryStore()), scope)
