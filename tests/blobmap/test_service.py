from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import pytest
from obstore.store import LocalStore, MemoryStore

from blobmap import ManifestStore, Policy, Trie, partition_store
from blobmap.errors import ConflictError, ListingError, ManifestError, MissingError, UsageError
from blobmap.manifest import Blob, Bucket, Manifest, Pin
from blobmap.scan import scan_stores
from blobmap.state import read_state
from blobmap.storage import Storage
from tests.support.stores import RawArray, chunk_keys, group_v3, store_objects, write_store

if TYPE_CHECKING:
    from pathlib import Path

    from blobmap.service import Outcome

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


class Racing(ManifestStore):
    """A manifest store where somebody else writes just before our first writes arrive."""

    def __init__(self, store: MemoryStore, others: list[Manifest]) -> None:
        super().__init__(store)
        self._others = others
        self.attempts = 0

    def write(self, manifest: Manifest, *, etag: str | None) -> str | None:
        self.attempts += 1
        if self._others:
            theirs = self._others.pop(0)
            held = self.read(theirs.scope).etag if theirs.epoch > 1 else None
            super().write(theirs, etag=held)
        return super().write(manifest, etag=etag)


PR = RawArray("pr", (40, 8), (1, 8), ["time", "lat"], nbytes=32)
THEIRS = Manifest("st", 1, blobs=(Blob("theirs", ("tas/c",), Bucket(0, 7, "v3_slash")),), pinned=(Pin("tas", "x"),))


def test_a_conflict_is_read_again_and_merged() -> None:
    data = MemoryStore()
    write_store(data, "st", [*climate(), PR])
    manifests = Racing(MemoryStore(), [THEIRS])
    outcome = partition_store(data, manifests, "st", policy=SMALL)
    assert outcome.written
    assert manifests.attempts == 2
    assert outcome.previous == THEIRS
    assert [blob.id for blob in outcome.manifest.blobs] == ["theirs", "b_pr"]
    assert outcome.manifest.pinned == THEIRS.pinned
    assert outcome.manifest.epoch == 2
    assert manifests.read("st").manifest == outcome.manifest


def test_a_conflict_under_force_is_told_and_nothing_is_moved() -> None:
    data = MemoryStore()
    write_store(data, "st", climate())
    store = MemoryStore()
    ManifestStore(store).write(THEIRS, etag=None)
    newer = replace(THEIRS, epoch=2)
    with pytest.raises(ConflictError, match="look at scope 'st' again and repeat the forced cut"):
        partition_store(data, Racing(store, [newer]), "st", policy=SMALL, force=True)
    assert ManifestStore(store).read("st").manifest == newer


@pytest.mark.parametrize("agreed", [True, False])
def test_what_is_written_is_what_was_agreed_to(agreed: bool) -> None:
    data, store = MemoryStore(), MemoryStore()
    write_store(data, "st", climate())
    asked: list[Outcome] = []

    def confirm(outcome: Outcome) -> bool:
        asked.append(outcome)
        write_store(data, "st", [PR])  # too late: the store is not listed again
        return agreed

    outcome = partition_store(data, ManifestStore(store), "st", policy=SMALL, confirm=confirm)
    assert [would.manifest for would in asked] == [outcome.manifest]
    assert outcome.written is agreed
    assert list(ManifestStore(store).load_all()) == ([outcome.manifest] if agreed else [])
    assert agreed or not store.list().collect()


def test_nobody_is_asked_where_nothing_would_be_written() -> None:
    data, manifests = MemoryStore(), ManifestStore(MemoryStore())
    write_store(data, "st", climate())
    partition_store(data, manifests, "st", policy=SMALL)

    def never(outcome: Outcome) -> bool:
        raise AssertionError(outcome)

    assert not partition_store(data, manifests, "st", confirm=never).written
    smaller = Policy(t_max_bytes=64)
    assert partition_store(
        data, manifests, "st", policy=smaller, force=True, dry_run=True, confirm=never
    ).difference.removed


def test_a_separator_that_is_rewritten_in_place_is_said_until_force() -> None:
    data, manifests = MemoryStore(), ManifestStore(MemoryStore())
    write_store(data, "st", climate(2, "."))
    partition_store(data, manifests, "st", policy=SMALL)
    data.delete(chunk_keys("st", climate(2, ".")[0]))
    write_store(data, "st", climate(2, "/"))
    outcome = partition_store(data, manifests, "st")
    (row,) = (row for row in outcome.decisions if row.path == "tas")
    said = "rule 'b_tas' has its place and does not fit its objects; only force can replace it"
    assert (row.verdict, row.reason) == ("unclaimed", f"no rule can be added: {said}")
    assert f"'tas' gets no rule: {said}" in outcome.warnings
    assert scan_stores(data, manifests).stores[0].unclaimed == ("tas",)
    assert read_state(manifests.storage, "st").unclaimable.keys() == {"tas"}
    partition_store(data, manifests, "st", force=True)
    assert scan_stores(data, manifests).stores[0].unclaimed == ()


def test_conflicts_without_end_are_told() -> None:
    data = MemoryStore()
    write_store(data, "st", climate())
    store = MemoryStore()
    endless = Racing(store, [replace(THEIRS, epoch=epoch, blobs=()) for epoch in range(1, 50)])
    with pytest.raises(ConflictError, match="8 times: nothing was written for scope 'st'"):
        partition_store(data, endless, "st", policy=SMALL)
    assert 2 < endless.attempts < 20


def test_two_partitions_at_once_end_as_one() -> None:
    data, store = MemoryStore(), MemoryStore()
    write_store(data, "st", [*climate(), PR])
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda _: partition_store(data, ManifestStore(store), "st", policy=SMALL), range(4)))
    assert sum(outcome.written for outcome in outcomes) == 1
    assert len({outcome.manifest.blobs for outcome in outcomes}) == 1


def test_a_first_cut_after_a_deletion_goes_on_above_the_highest_epoch() -> None:
    data, store = MemoryStore(), MemoryStore()
    write_store(data, "st", climate())
    partition_store(data, ManifestStore(store), "st", policy=SMALL)
    write_store(data, "st", [PR])
    assert partition_store(data, ManifestStore(store), "st").manifest.epoch == 2
    store.delete("st/manifest.json")
    again = partition_store(data, ManifestStore(store), "st", policy=SMALL)
    assert (again.previous, again.manifest.epoch) == (None, 3)


def test_what_got_no_rule_is_remembered_with_the_etag_of_its_document() -> None:
    data, store = MemoryStore(), MemoryStore()
    odd = RawArray("odd", (9, 9), (1, 9), nbytes=99, members={"chunk_key_encoding": {"name": "fanout"}})
    write_store(data, "st", [*climate(), odd])
    outcome = partition_store(data, ManifestStore(store), "st", policy=SMALL)
    remembered = read_state(Storage(store), "st").unclaimable["odd"]
    assert remembered.etag == Storage(data).get("st/odd/zarr.json").etag
    assert remembered.reason == next(row.reason for row in outcome.decisions if row.path == "odd")
    assert "chunk key encoding 'fanout'" in remembered.reason
    for key in chunk_keys("st", odd):
        data.delete(key)
    partition_store(data, ManifestStore(store), "st")
    assert read_state(Storage(store), "st").unclaimable == {}


def test_a_dry_run_remembers_nothing() -> None:
    data, store = MemoryStore(), MemoryStore()
    write_store(data, "st", climate())
    partition_store(data, ManifestStore(store), "st", policy=SMALL, dry_run=True)
    assert list(Storage(store).pages()) == []


@pytest.mark.parametrize(("first", "second"), [("out", "out/in.zarr"), ("out/in.zarr", "out"), ("", "out")])
def test_a_later_scope_around_or_inside_moves_nothing(first: str, second: str) -> None:
    data, store = MemoryStore(), MemoryStore()
    objects = write_store(data, "out/in.zarr", climate())
    objects |= write_store(data, "out", [PR, RawArray("crs", (), ())])
    data.put("zarr.json", group_v3())
    manifests = ManifestStore(store)
    partition_store(data, manifests, first, policy=SMALL)
    before = Trie()
    before.add_all(manifests.load_all())
    outcome = partition_store(data, manifests, second, policy=SMALL)
    after = Trie()
    after.add_all(manifests.load_all())
    for key in objects:
        was, now = before.lookup(key), after.lookup(key)
        if was.kind == "blob":
            assert now == was
        assert now.kind != "unmanaged"
    tas = next(row for row in outcome.decisions if row.path.endswith("tas"))
    assert tas.verdict == "elsewhere"
    assert tas.reason == f"claimed by the manifest of scope {first!r}"


def test_a_neighbour_that_cannot_be_read_stops_the_cut() -> None:
    data, store = MemoryStore(), MemoryStore()
    write_store(data, "out/in.zarr", climate())
    store.put("out/manifest.json", b"{")
    with pytest.raises(ManifestError, match=r"out/manifest\.json"):
        partition_store(data, ManifestStore(store), "out/in.zarr", policy=SMALL)
    store.put("elsewhere/manifest.json", b"{")
    store.delete("out/manifest.json")
    assert partition_store(data, ManifestStore(store), "out/in.zarr", policy=SMALL).written


def test_neighbours_that_cannot_be_listed_stop_the_cut(tmp_path: Path) -> None:
    data = MemoryStore()
    write_store(data, "out/in.zarr", climate())
    (tmp_path / "out").mkdir()
    link = tmp_path / "out/in.zarr"
    link.symlink_to("/etc")
    data.put("out/zarr.json", group_v3())
    with pytest.raises(ListingError, match=r"manifests around or inside 'out' cannot be listed.*'out/in\.zarr'"):
        partition_store(data, ManifestStore(LocalStore(tmp_path)), "out", policy=SMALL)
    link.unlink()
    assert partition_store(data, ManifestStore(LocalStore(tmp_path)), "out", policy=SMALL).written


def test_a_broken_document_is_a_problem_and_keeps_what_was_hot() -> None:
    data, store = MemoryStore(), MemoryStore()
    write_store(data, "st", [*climate(), PR])
    partition_store(data, ManifestStore(store), "st", policy=SMALL)
    data.put("st/time/zarr.json", b"{")
    outcome = partition_store(data, ManifestStore(store), "st")
    assert outcome.problems[0].startswith("st/time/zarr.json: ")
    assert not outcome.written
    assert "time/**" in outcome.manifest.hot_always
    assert [row.path for row in outcome.decisions] == ["lat", "pr", "tas"]


def test_a_store_that_cannot_be_listed_whole_gets_no_manifest(tmp_path: Path) -> None:
    for key, content in store_objects("st", climate()).items():
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "st/tas/c/41").symlink_to("/")
    store = MemoryStore()
    for dry_run in (True, False):
        with pytest.raises(ListingError, match="st/tas/c/41"):
            partition_store(LocalStore(tmp_path), ManifestStore(store), "st", dry_run=dry_run)
    assert list(Storage(store).pages()) == []


def test_an_outcome_says_who_made_it_and_when() -> None:
    data, store = MemoryStore(), MemoryStore()
    write_store(data, "st", climate())
    manifest = partition_store(data, ManifestStore(store), "st/", policy=SMALL).manifest
    assert manifest.scope == "st"
    assert re.fullmatch(r"blobmap \d\S+", manifest.generated_by or "")
    assert datetime.fromisoformat(manifest.generated_at or "").tzinfo is not None


def test_an_empty_group_gets_a_manifest_so_that_it_is_no_news() -> None:
    data, store = MemoryStore(), MemoryStore()
    data.put("st/zarr.json", group_v3())
    outcome = partition_store(data, ManifestStore(store), "st")
    assert outcome.written
    assert outcome.manifest.blobs == ()
    assert not partition_store(data, ManifestStore(store), "st").written
