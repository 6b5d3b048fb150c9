"""The contract of a Storage, for every implementation of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from obstore.store import LocalStore, MemoryStore, S3Store

from blobmap.errors import ConflictError, MissingError, UnreadableError, UsageError
from blobmap.storage import DEFAULT_EXCLUDE, Storage, StorageOptions, as_storage, open_storage

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.backends import Backend

# Names that a file system, a URL or a glob could take for something else, each a neighbour of another.
ODD_BUT_GOOD = [
    "a b.zarr/x/0.0",
    "a%20b.zarr/x/0.0",
    "a+b.zarr/x/0.0",
    "L%3ABC/x/0.0",
    "L:BC/x/0.0",
    "100%/25%25",
    "hash#1/q?x=1&y/[0]*{a}",
    "..lead/x..",
    "caf\u00e9/nfc",
    "cafe\u0301/nfd",
    "back\\slash/quo\"te/'",
    "\U0001f30a/~tilde",
]


def listed(storage: Storage, prefix: str = "", *, after: str | None = None) -> list[str]:
    return [entry["path"] for page in storage.pages(prefix, after=after) for entry in page]


def test_what_was_written_is_read_with_its_etag(backend: Backend) -> None:
    storage = backend.open()
    etag = storage.create("a/b", b"one")
    body = storage.get("a/b")
    assert (body.data, body.etag) == (b"one", etag)
    etag = storage.update("a/b", b"two", body.etag or "")
    assert backend.open().get("a/b").data == b"two"
    assert backend.open().get("a/b").etag == etag
    assert storage.put("a/b", b"three") not in {None, etag}
    assert storage.get("a/b").data == b"three"


def test_an_etag_of_a_listing_is_that_of_the_body(backend: Backend) -> None:
    storage = backend.open()
    etag = storage.put("a/b", b"one")
    [[entry]] = storage.pages()
    assert (entry["path"], entry["size"], entry["e_tag"]) == ("a/b", 3, etag)
    assert abs(entry["last_modified"] - datetime.now(UTC)) < timedelta(days=365)


def test_a_second_create_conflicts_and_changes_nothing(backend: Backend) -> None:
    backend.open().create("a/b", b"first")
    with pytest.raises(ConflictError, match="a/b"):
        backend.open().create("a/b", b"second")
    assert backend.open().get("a/b").data == b"first"


def test_an_update_of_another_version_conflicts_and_changes_nothing(backend: Backend) -> None:
    storage = backend.open()
    old = storage.create("a/b", b"first")
    storage.update("a/b", b"second", old or "")
    with pytest.raises(ConflictError, match="a/b"):
        storage.update("a/b", b"third", old or "")
    assert storage.get("a/b").data == b"second"


def test_an_update_of_what_is_gone_conflicts(backend: Backend) -> None:
    storage = backend.open()
    etag = storage.create("a/b", b"first")
    storage.delete("a/b")
    with pytest.raises(ConflictError):
        storage.update("a/b", b"second", etag or "")
    assert listed(storage) == []


def test_deleting_twice_is_no_error(backend: Backend) -> None:
    storage = backend.open()
    storage.put("a/b", b"1")
    storage.delete("a/b")
    storage.delete("a/b")
    storage.delete("never/was")
    with pytest.raises(MissingError, match="a/b"):
        storage.get("a/b")


@pytest.mark.parametrize("key", ["nothing", "a", "a/b/c", "", "/a/b", "a/b/", "a//b", "a/../a/b", "./a/b", "a/\0"])
def test_a_key_that_holds_nothing_is_missing(backend: Backend, key: str) -> None:
    backend.fill("a/b")
    with pytest.raises(MissingError):
        backend.open().get(key)


@pytest.mark.parametrize("prefix", ["/a", "a/", "a//b", "/", "a/../b", "."])
def test_what_is_no_prefix_is_not_taken_for_an_empty_one(backend: Backend, prefix: str) -> None:
    backend.fill("a/b")
    storage = backend.open()
    for act in (lambda: storage.pages(prefix), lambda: storage.level(prefix)):
        with pytest.raises(UsageError, match="is no prefix: allowed are segments"):
            act()


def test_a_body_beyond_the_limit_is_not_read(backend: Backend) -> None:
    storage = backend.open()
    storage.put("a/b", b"12345")
    assert storage.get("a/b", limit=5).data == b"12345"
    with pytest.raises(UnreadableError, match=r"a/b.* has 5 bytes, allowed: 4"):
        storage.get("a/b", limit=4)


def test_a_prefix_covers_whole_segments(backend: Backend) -> None:
    backend.fill("s/t/0", "s/t/1", "s/t2m/0", "s/t-x/0", "s/t.x", "s/t0")
    assert sorted(listed(backend.open(), "s/t")) == ["s/t/0", "s/t/1"]
    assert listed(backend.open(), "s/t/0") == []
    assert listed(backend.open(), "none") == []


def test_a_listing_can_begin_behind_a_key(backend: Backend) -> None:
    keys = ["s/a/0", "s/a/1", "s/a-b", "s/b/0", "s/b/9", "s/c"]
    backend.fill(*keys)
    for after in ["", *keys, "s/a", "s/a/", "s/a//x", "s/b/5", "s/\n", "t", "s//a"]:
        assert sorted(listed(backend.open(), "s", after=after)) == sorted(key for key in keys if key > after), after


def test_pages_of_s3_and_memory_are_in_key_order(backend: Backend) -> None:
    if backend.kind == "local":
        pytest.skip("a directory has no order")
    backend.fill("s/a/x", "s/a-b", "s/a.b", "s/a0", "s/a!", "s/a/.z")
    assert listed(backend.open()) == ["s/a!", "s/a-b", "s/a.b", "s/a/.z", "s/a/x", "s/a0"]


@pytest.mark.parametrize("count", [0, 1, 1000, 1001, 2000], ids=lambda count: f"O07-{count}")
def test_every_object_of_a_prefix_is_listed_once(backend: Backend, count: int) -> None:
    if count > 1 and backend.kind == "external":
        pytest.skip("would take long over a network")
    keys = {f"st.zarr/t/c/{n}" for n in range(count)}
    backend.fill(*keys, "st.zarr/t2/c/0", "st.zarr/u")
    found = listed(backend.open(), "st.zarr/t")
    assert len(found) == count
    assert set(found) == keys
    assert len(listed(backend.open())) == count + 2


def test_a_level_has_prefixes_and_objects(backend: Backend) -> None:
    backend.fill("s/zarr.json", "s/t/c/0", "s/t/c/1", "s/u/zarr.json", "r/x", "top")
    storage = backend.open()
    root, level, none = storage.level(), storage.level("s"), storage.level("none")
    children = sorted(set(root.prefixes) - {".blobmap"})  # the lock of local files lies there
    assert (children, [entry["path"] for entry in root.objects]) == (["r", "s"], ["top"])
    assert (sorted(level.prefixes), [entry["path"] for entry in level.objects]) == (["s/t", "s/u"], ["s/zarr.json"])
    assert (none.prefixes, none.objects) == ((), ())
    assert level.objects[0]["size"] == 1


def test_o02_names_are_listed_as_they_are_and_read_by_the_listed_name(backend: Backend) -> None:
    names = {name: name.encode() for name in ODD_BUT_GOOD}
    storage = backend.open()
    for name, data in names.items():
        storage.put(name, data)
    assert sorted(listed(storage)) == sorted(names)
    assert {name: storage.get(name).data for name in listed(storage)} == names
    for name in ODD_BUT_GOOD:
        parent = name.rpartition("/")[0]
        assert [entry["path"] for entry in storage.level(parent).objects] == [name]
        assert listed(storage, parent) == [name]
    assert (storage.unreadable, storage.odd_keys) == ([], [])


def test_excluded_segments_are_in_no_listing(backend: Backend) -> None:
    kept = ["s/t/0", "s/my.sgwtmp/0", "s/.snapshots/0", "s/.sgwtmp2"]
    backend.fill(*kept, *(f"{place}{name}/x" for name in DEFAULT_EXCLUDE for place in ("s/", "s/t/")))
    storage = backend.open()
    assert sorted(listed(storage)) == sorted(kept)
    assert sorted(storage.level("s").prefixes) == ["s/.snapshots", "s/my.sgwtmp", "s/t"]
    assert storage.level("s/t").prefixes == ()


def test_nothing_is_excluded_where_nothing_is_given(tmp_path: Path) -> None:
    memory = MemoryStore()
    memory.put(".snapshot/a", b"1")
    assert listed(Storage(memory, exclude=())) == [".snapshot/a"]
    assert listed(Storage(memory, exclude=("",))) == [".snapshot/a"]
    open_storage(str(tmp_path), StorageOptions()).put(".snapshot/a", b"1")
    assert listed(open_storage(str(tmp_path), StorageOptions(exclude=()))) == [".snapshot/a"]


def test_a_listing_that_is_left_early_does_no_harm(backend: Backend) -> None:
    backend.fill(*(f"a/b/{n}" for n in range(3)))
    storage = backend.open()
    for page in storage.pages():
        assert page
        break
    assert len(listed(storage)) == 3


def test_what_is_handed_in_becomes_a_storage(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"1")
    storage = as_storage(LocalStore(tmp_path))
    assert as_storage(storage) is storage
    assert (storage.name, listed(storage), storage.is_remote) == (str(tmp_path), ["x"], False)
    assert (as_storage(MemoryStore()).name, as_storage(MemoryStore()).is_remote) == ("memory", False)
    server = as_storage(S3Store("bkt", prefix="a/b", region="us-east-1", skip_signature=True))
    assert (server.name, server.is_remote) == ("s3://bkt/a/b", True)
    assert Storage(LocalStore(), name="root").level("").prefixes


# From a URL or path to a store.


@pytest.mark.parametrize("spell", ["{}", "file://{}", "file://localhost{}", "{}/", "{}/../data dir%20"])
def test_a_local_directory_is_opened_by_path_or_url(tmp_path: Path, spell: str) -> None:
    directory = tmp_path / "data dir%20"
    directory.mkdir()
    (directory / "x").write_bytes(b"1")
    given = str(directory)
    if spell.startswith("file:"):
        given = given.replace("%", "%25").replace(" ", "%20")
    assert listed(open_storage(spell.format(given), StorageOptions())) == ["x"]


def test_a_path_may_be_relative_or_begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p").mkdir()
    assert {open_storage(path, StorageOptions()).name for path in ("p", "./p", "~/p")} == {str(tmp_path / "p")}


def test_a_missing_directory_is_made_only_where_that_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    with pytest.raises(UsageError, match=r"/a/b. is no directory"):
        open_storage(str(path), StorageOptions())
    assert not path.exists()
    assert listed(open_storage(str(path), StorageOptions(), create=True)) == []
    assert path.is_dir()


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"1")
    for create in (False, True):
        with pytest.raises(UsageError, match=r"x. is no directory"):
            open_storage(str(tmp_path / "x"), StorageOptions(), create=create)


@pytest.mark.parametrize("path", ["", "~no-such-user/x", "a\0b"])
def test_a_path_that_cannot_be_one_is_refused(path: str) -> None:
    for create in (False, True):
        with pytest.raises(UsageError, match=r"is no (path|directory)"):
            open_storage(path, StorageOptions(), create=create)


@pytest.mark.parametrize(
    "url", ["gs://bucket", "http://host/x", "memory://", "file://host/x", "file://", "s3://", "s3:///x"]
)
def test_a_url_that_is_no_store_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match=r"s3://|file:///path"):
        open_storage(url, StorageOptions())


def test_all_but_the_last_page_are_full(backend: Backend) -> None:
    if backend.kind == "external":
        pytest.skip("would take long over a network")
    backend.fill(*(f"d{n % 7}/{n}" for n in range(1003)))
    sizes = [len(page) for page in backend.open().pages()]
    assert sum(sizes) == 1003
    assert all(sizes)
