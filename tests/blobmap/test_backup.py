from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from obstore.store import LocalStore, MemoryStore

from blobmap import ManifestStore
from blobmap.backup import RestoredScope, back_up, restore
from blobmap.errors import ConflictError, ListingError
from blobmap.manifest import Blob, Bucket, Manifest, Pin
from blobmap.state import ScopeState, change_state, read_state

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.backends import Backend


def manifest(scope: str, *, epoch: int = 1, width: int = 4, pins: tuple[Pin, ...] = ()) -> Manifest:
    return Manifest(scope, epoch, ("time/**",), (Blob("b_t", ("t/c",), Bucket(0, width, "v3_slash")),), pins)


def held(*manifests: Manifest) -> ManifestStore:
    root = ManifestStore(MemoryStore())
    for each in manifests:
        root.write(each, etag=None)
    return root


def remember(root: ManifestStore, scope: str, epoch: int) -> None:
    change_state(root.storage, scope, lambda state: replace(state, highest_epoch=epoch, others={"theirs": 1}))


def saved(root: ManifestStore, tmp_path: Path, name: str = "x.tar.gz") -> Path:
    back_up(root, tmp_path / name, at="now", by="a test")
    return tmp_path / name


def test_a_lost_root_comes_back_above_every_epoch(backend: Backend, tmp_path: Path) -> None:
    before = ManifestStore(backend.open())
    pins = (Pin("t", "why", by="me", until="2099-01-01"),)
    for each in (manifest("a/b", epoch=3, pins=pins), manifest("", epoch=7)):
        before.write(each, etag=None)
    remember(before, "a/b", 5)
    remember(before, "gone", 4)
    made = back_up(before, tmp_path / "x.tar.gz", at="now", by="a test")
    assert (made.scopes, made.problems, made.archive.documents) == (("a/b", ""), (), 4)

    after = held()
    done = restore(after, tmp_path / "x.tar.gz")
    assert done.scopes == (RestoredScope("a/b", 6, written=True), RestoredScope("", 8, written=True))
    assert (done.others, done.conflicts, done.problems) == ((), (), ())
    assert after.read("a/b").manifest == manifest("a/b", epoch=6, pins=pins)
    assert read_state(after.storage, "a/b") == ScopeState(highest_epoch=6)
    assert read_state(after.storage, "gone").highest_epoch == 4
    backend.clear()


def test_what_is_the_same_is_left_as_it_is(tmp_path: Path) -> None:
    root = held(manifest("a", epoch=3))
    path = saved(root, tmp_path)
    root.write(replace(manifest("a", epoch=9), generated_by="x"), etag=root.read("a").etag)
    assert restore(root, path).scopes == (RestoredScope("a", 9, written=False),)
    assert root.read("a").manifest.generated_by == "x"


def test_what_differs_is_replaced_and_named(tmp_path: Path) -> None:
    root = held(manifest("a", epoch=3), manifest("b", epoch=1))
    path = saved(root, tmp_path)
    extra = Blob("b_u", ("u/c",), None)
    newer = manifest("a", epoch=11, width=8)
    root.write(replace(newer, blobs=(*newer.blobs, extra)), etag=root.read("a").etag)
    root.write(manifest("b", epoch=2, pins=(Pin("t", "x"),)), etag=root.read("b").etag)
    root.write(manifest("c"), etag=None)
    done = restore(root, path)
    assert done.scopes == (
        RestoredScope("a", 12, written=True, changed_rules=("b_t", "b_u")),
        RestoredScope("b", 2, written=False),
    )
    assert done.others == ("c",)
    assert root.read("b").manifest.pinned == (Pin("t", "x"),)
    assert root.read("a").manifest == manifest("a", epoch=12)
    assert read_state(root.storage, "a").highest_epoch == 12


def test_pins_of_then_and_of_now_are_both_kept(tmp_path: Path) -> None:
    then, now, changed = Pin("t", "then"), Pin("u", "now"), Pin("t", "changed since")
    root = held(manifest("a", epoch=1, pins=(then,)))
    path = saved(root, tmp_path)
    root.write(manifest("a", epoch=2, width=8, pins=(changed, now)), etag=root.read("a").etag)
    assert restore(root, path).scopes == (RestoredScope("a", 3, written=True, changed_rules=("b_t",)),)
    assert root.read("a").manifest.pinned == (then, now)


def test_a_broken_manifest_is_kept_and_one_that_is_broken_now_is_replaced(tmp_path: Path) -> None:
    root = held(manifest("a", epoch=3))
    root.storage.put("b/manifest.json", b"{")
    made = back_up(root, tmp_path / "x.tar.gz", at="now", by="a test")
    assert made.scopes == ("a", "b")
    assert len(made.problems) == 1

    root.storage.put("a/manifest.json", json.dumps({"epoch": 40, "broken": True}).encode())
    done = restore(root, tmp_path / "x.tar.gz")
    assert done.scopes == (RestoredScope("a", 41, written=True),)
    assert len(done.problems) == 1
    assert "b/manifest.json" in done.problems[0]
    root.storage.put("a/manifest.json", b"[]")
    assert restore(root, tmp_path / "x.tar.gz").scopes[0].epoch == 42


def test_a_broken_state_is_told_and_hides_nothing(tmp_path: Path) -> None:
    root = held(manifest("a", epoch=3), manifest("b"))
    path = saved(root, tmp_path)
    for scope in ("a", "b"):
        root.storage.delete(f"{scope}/manifest.json")
    root.storage.put(".blobmap/state/a.json", b"{")
    done = restore(root, path)
    assert [restored.scope for restored in done.scopes] == ["b"]
    assert ".blobmap/state/a.json" in done.problems[0]


def test_somebody_elses_change_wins(tmp_path: Path) -> None:
    class Contested(ManifestStore):
        """A root at which somebody else always writes just before us."""

        def write(self, manifest: Manifest, *, etag: str | None) -> str | None:
            if manifest.scope == "a":
                raise ConflictError("changed")
            return super().write(manifest, etag=etag)

    path = saved(held(manifest("a"), manifest("b")), tmp_path)
    done = restore(Contested(MemoryStore()), path)
    assert (done.conflicts, [restored.scope for restored in done.scopes]) == (("a",), ["b"])


def test_a_part_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    (tmp_path / "m/a").mkdir(parents=True)
    (tmp_path / "m/a/link").symlink_to(tmp_path)
    with pytest.raises(ListingError, match="would not be whole"):
        back_up(ManifestStore(LocalStore(tmp_path / "m")), tmp_path / "x.tar.gz", at="now", by="a test")
    assert not (tmp_path / "x.tar.gz").exists()


def test_a_manifest_that_goes_meanwhile_is_not_in_it(tmp_path: Path) -> None:
    root = held(manifest("a"), manifest("b"))
    listed = root.storage.pages

    def pages(prefix: str = "", *, after: str | None = None):  # type: ignore[no-untyped-def]  # as what it stands for
        yield from listed(prefix, after=after)
        root.storage.delete("a/manifest.json")

    root.storage.pages = pages  # type: ignore[method-assign]  # a listing that is old when it arrives
    assert back_up(root, tmp_path / "x.tar.gz", at="now", by="a test").scopes == ("b",)
