"""Manifests at rest: loaded whole or told what is missing, written on condition, and watched by their etags."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from obstore.store import MemoryStore

from blobmap.errors import (
    ConflictError,
    ListingError,
    ManifestError,
    MissingError,
    RefusedError,
    UnavailableError,
    UnreadableError,
)
from blobmap.manifest import Blob, Bucket, Manifest, Pin, manifest_key, render_manifest
from blobmap.manifests import ManifestStore, _version
from blobmap.storage import Storage
from tests.support.backends import Backend, small_server

if TYPE_CHECKING:
    from pathlib import Path

    from blobmap.objects import Entry
    from tests.support.small_s3 import SmallS3

SCOPES = ["", "a.zarr", "a.zarr/inner", "deep/er/b.zarr", "c 100%.zarr", "caf\u00e9+.zarr"]


def manifest_of(scope: str, epoch: int = 1) -> Manifest:
    return Manifest(
        scope,
        epoch,
        hot_always=("time/**",),
        blobs=(Blob("b_tas", ("tas/c",), Bucket(0, 4, "v3_slash")),),
        pinned=(Pin("tas/c/0", "checked"),),
        policy={"t_max_bytes": 1},
    )


def filled(backend: Backend, *scopes: str) -> ManifestStore:
    store = ManifestStore(backend.open())
    for scope in scopes:
        store.write(manifest_of(scope), etag=None)
    return store


def test_what_is_written_is_read_by_scope_and_loaded_with_all(backend: Backend) -> None:
    filled(backend, *SCOPES)
    store = ManifestStore(backend.open())
    assert [store.read(scope).manifest for scope in SCOPES] == [manifest_of(scope) for scope in SCOPES]
    assert sorted(store.scopes()) == sorted(SCOPES)
    assert {manifest.scope: manifest for manifest in store.load_all()} == {
        scope: manifest_of(scope) for scope in SCOPES
    }
    assert store.problems == []


def test_an_empty_root_has_no_manifests(backend: Backend) -> None:
    store = ManifestStore(backend.open())
    assert (list(store.load_all(strict=True)), list(store.scopes()), store.problems) == ([], [], [])
    with pytest.raises(MissingError, match="has no manifest"):
        store.read("a.zarr")


def test_a_first_write_does_not_replace(backend: Backend) -> None:
    store = filled(backend, "a.zarr")
    with pytest.raises(ConflictError, match=r"a\.zarr/manifest\.json"):
        ManifestStore(backend.open()).write(manifest_of("a.zarr", 9), etag=None)
    assert store.read("a.zarr").manifest.epoch == 1


def test_a_write_follows_the_version_that_was_read(backend: Backend) -> None:
    store = filled(backend, "a.zarr")
    held = store.read("a.zarr")
    etag = store.write(manifest_of("a.zarr", 2), etag=held.etag)
    assert store.read("a.zarr").etag == etag
    with pytest.raises(ConflictError):
        store.write(manifest_of("a.zarr", 3), etag=held.etag)
    assert store.read("a.zarr").manifest.epoch == 2
    store.storage.delete(manifest_key("a.zarr"))
    with pytest.raises(ConflictError):
        store.write(manifest_of("a.zarr", 3), etag=etag)


def test_what_lies_beside_the_manifests_is_none(backend: Backend) -> None:
    store = filled(backend, "a.zarr")
    for key in (
        ".blobmap/state/a.zarr.json",
        ".blobmap/x/manifest.json",
        "a.zarr/notes.json",
        "a.zarr/manifest.json.bak",
    ):
        store.storage.put(key, b"{}")
    assert [manifest.scope for manifest in store.load_all(strict=True)] == ["a.zarr"]
    assert list(store.scopes()) == ["a.zarr"]
    assert set(store.changed_since({}).changed) == {"a.zarr"}


BROKEN = {
    "no-json": b"{",
    "other-version": b'{"schema_version": 4}',
    "nothing": b"",
    "no-text": b"\xff\xfe",
    "other-scope": render_manifest(manifest_of("somewhere/else")),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_manifest_is_told_by_its_key_and_costs_no_other(backend: Backend, fault: str) -> None:
    store = filled(backend, "a.zarr", "c.zarr")
    store.storage.put("b.zarr/manifest.json", BROKEN[fault])
    assert sorted(manifest.scope for manifest in store.load_all()) == ["a.zarr", "c.zarr"]
    [problem] = store.problems
    assert "b.zarr/manifest.json" in problem
    assert "\n" not in problem
    with pytest.raises(ManifestError, match=r"b\.zarr/manifest\.json"):
        list(store.load_all(strict=True))
    with pytest.raises(ManifestError, match=r"b\.zarr/manifest\.json"):
        store.read("b.zarr")
    store.storage.delete("b.zarr/manifest.json")
    assert len(list(store.load_all(strict=True))) == 2
    assert store.problems == []


def test_a_manifest_beyond_the_bound_is_told_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "huge.zarr").mkdir()
    with (tmp_path / "huge.zarr" / "manifest.json").open("wb") as file:
        file.truncate(2**40)
    store = ManifestStore(Backend("local", str(tmp_path)).open())
    assert list(store.load_all()) == []
    assert "huge.zarr/manifest.json has 1099511627776 bytes, allowed: 67108864" in store.problems[0]
    with pytest.raises(UnreadableError, match="allowed: 67108864"):
        list(store.load_all(strict=True))


def test_more_manifests_than_are_asked_for_at_once_come_in_the_order_of_the_listing(backend: Backend) -> None:
    names = [f"s{number:03}.zarr" for number in range(150)]
    for name in names:
        backend.fill(manifest_key(name), data=render_manifest(manifest_of(name)))
    loaded = [manifest.scope for manifest in ManifestStore(backend.open()).load_all()]
    assert sorted(loaded) == names
    if backend.kind != "local":
        assert loaded == names


def test_loading_is_a_stream_that_may_be_left(small_s3: SmallS3) -> None:
    small_s3.objects = {manifest_key(f"s{n}"): render_manifest(manifest_of(f"s{n}")) for n in range(900)}
    stream = ManifestStore(small_server(small_s3).open()).load_all()
    next(stream)
    del stream
    assert sum(seen.path.endswith("manifest.json") for seen in small_s3.seen) < 200


def test_a_manifest_that_goes_while_all_are_loaded_is_no_problem(small_s3: SmallS3) -> None:
    small_s3.objects = {manifest_key(f"s{n}"): render_manifest(manifest_of(f"s{n}")) for n in range(120)}
    store = ManifestStore(small_server(small_s3).open())
    stream = store.load_all(strict=True)
    first = next(stream)
    small_s3.objects.clear()
    rest = list(stream)
    assert first.scope == "s0"
    assert 0 < len(rest) < 119
    assert store.problems == []


@pytest.mark.parametrize(
    ("status", "kind"), [((500, "InternalError"), UnavailableError), ((403, "AccessDenied"), RefusedError)]
)
def test_a_server_that_fails_ends_the_loading(
    small_s3: SmallS3, status: tuple[int, str], kind: type[Exception]
) -> None:
    """Half of the manifests must not pass for all of them."""
    small_s3.objects = {manifest_key(f"s{n}"): render_manifest(manifest_of(f"s{n}")) for n in range(120)}
    store = ManifestStore(small_server(small_s3, timeout_s=0.2).open())
    stream = store.load_all()
    next(stream)
    small_s3.status = status
    with pytest.raises(kind):
        list(stream)


# Watching.


def test_a_listing_says_what_changed_and_what_is_gone(backend: Backend) -> None:
    store = filled(backend, "a", "b", "c")
    first = store.changed_since({})
    assert (set(first.changed), first.gone, first.gaps) == ({"a", "b", "c"}, (), ())
    known = dict(first.changed)
    assert store.changed_since(known).changed == {}
    held = store.read("b")
    assert held.etag == known["b"], "the etag of a listing is that of a read"
    etag = store.write(manifest_of("b", 2), etag=held.etag)
    store.storage.delete(manifest_key("c"))
    store.write(manifest_of("d"), etag=None)
    then = store.changed_since(known)
    assert (set(then.changed), then.changed["b"], then.gone) == ({"b", "d"}, etag, ("c",))


def test_a_broken_manifest_counts_as_changed_and_not_as_gone(backend: Backend) -> None:
    store = filled(backend, "a")
    known = dict(store.changed_since({}).changed)
    store.storage.put(manifest_key("a"), b"{")
    then = store.changed_since(known)
    assert (set(then.changed), then.gone) == ({"a"}, ())


def test_what_could_not_be_listed_is_not_called_gone(small_s3: SmallS3) -> None:
    body = render_manifest(manifest_of("a/s"))
    small_s3.objects = {"a/s/manifest.json": body, "a//odd": b"1", "b/manifest.json": render_manifest(manifest_of("b"))}
    store = ManifestStore(small_server(small_s3).open())
    known = {"a/s": "old", "b": "old", "c": "x"}
    then = store.changed_since(known)
    assert (set(then.changed), then.gone, then.gaps) == ({"a/s", "b"}, ("c",), ("a//",))
    assert [manifest.scope for manifest in store.load_all()] == ["a/s", "b"]
    assert store.problems == [f"{store.storage.name}: 'a//' could not be listed whole"]
    with pytest.raises(ListingError, match="'a//'"):
        list(store.load_all(strict=True))


def test_a_directory_that_cannot_be_read_hides_no_known_manifest(tmp_path: Path) -> None:
    backend = Backend("local", str(tmp_path))
    store = filled(backend, "a/s", "b")
    known = dict(store.changed_since({}).changed)
    (tmp_path / "a").rename(tmp_path / "elsewhere")
    (tmp_path / "a").symlink_to("elsewhere")
    then = store.changed_since(known)
    assert then.gaps == ("a",)
    assert then.gone == ()


def test_any_obstore_store_will_do() -> None:
    memory = MemoryStore()
    ManifestStore(memory).write(manifest_of("a"), etag=None)
    assert [manifest.scope for manifest in ManifestStore(Storage(memory)).load_all()] == ["a"]


def test_a_scope_that_no_object_can_be_kept_for_is_refused() -> None:
    store = ManifestStore(MemoryStore())
    for scope in ("a//b", "../a", ".blobmap/x"):
        with pytest.raises(ManifestError, match="no manifest can be kept"):
            store.write(Manifest(scope, 1), etag=None)


def test_what_has_no_etag_is_told_by_size_and_time() -> None:
    """As versitygw lists a file that was put below it; a young one is another in every listing."""
    now = datetime.now(UTC)
    young: Entry = {"path": "a/manifest.json", "size": 4, "last_modified": now, "e_tag": None, "version": None}
    old: Entry = {**young, "last_modified": now - timedelta(hours=1)}
    assert _version(old) == _version(old)
    assert _version(old) != _version({**old, "size": 5})
    assert _version(old) != _version({**old, "last_modified": now - timedelta(hours=2)})
    assert _version(young) != _version(young)
    assert _version({**young, "e_tag": "e"}) == "e"
