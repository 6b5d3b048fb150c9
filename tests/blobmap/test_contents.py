from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from obstore.store import MemoryStore

from blobmap import ManifestStore, Trie
from blobmap.contents import blob_objects
from blobmap.errors import ListingError, MissingError, UnreadableError
from blobmap.manifest import Blob, Bucket, Manifest, Pin
from blobmap.storage import Storage, StorageOptions, open_storage

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.backends import Backend

OUTER = Manifest(
    "a",
    1,
    ("**/zarr.json", "time/**"),
    (Blob("b_t", ("t/c",), Bucket(0, 10, "v3_slash")), Blob("b_rest", ("",), None)),
    (Pin("t/c/3", "kept"),),
)
INNER = Manifest("a/in", 1, (), (Blob("b_t", ("t/c",), Bucket(0, 10, "v3_slash")),))


def keys_of(storage: Storage, manifests: ManifestStore, scope: str, blob_id: str) -> list[str]:
    return [entry["path"] for entry in blob_objects(storage, manifests, scope, blob_id)]


def both() -> ManifestStore:
    manifests = ManifestStore(MemoryStore())
    for manifest in (OUTER, INNER):
        manifests.write(manifest, etag=None)
    return manifests


def test_the_contents_are_what_resolves_to_the_blob(backend: Backend) -> None:
    keys = [f"a/t/c/{index}/{part}" for index in (*range(25), 100, 101, 1000) for part in range(2)]
    keys += ["a/t/c/30", "a/time/0", "a/zarr.json", "a/t/zarr.json", "a/loose", "a/in/t/c/5", "ab/t/c/0", "a/in/loose"]
    backend.fill(*keys)
    manifests = both()
    trie = Trie()
    trie.add_all(manifests.load_all())
    for blob_id in ("b_t_0", "b_t_1", "b_t_2", "b_t_10", "b_t_7", "b_rest_0"):
        answers = {key: trie.lookup(key) for key in keys}
        expected = [key for key, answer in answers.items() if (answer.scope, answer.blob_id) == ("a", blob_id)]
        found = keys_of(backend.open(), manifests, "a", blob_id)
        assert sorted(found) == sorted(expected)
    assert keys_of(backend.open(), manifests, "a/in", "b_t_0") == ["a/in/t/c/5"]


@pytest.mark.parametrize("blob_id", ["b_t", "b_x_0", "t_0", "b_t_01", "b_rest_1", ""])
def test_a_blob_that_no_rule_makes_is_no_empty_blob(blob_id: str) -> None:
    with pytest.raises(MissingError, match=r"its rules are b_rest, b_t"):
        keys_of(Storage(MemoryStore()), both(), "a", blob_id)


def test_a_scope_needs_a_manifest() -> None:
    with pytest.raises(MissingError):
        keys_of(Storage(MemoryStore()), both(), "b", "b_t_0")


def test_without_the_neighbours_nothing_is_said() -> None:
    manifests = both()
    manifests.storage.put("a/in/manifest.json", b"{")
    with pytest.raises(UnreadableError, match=r"a/in/manifest.json"):
        keys_of(Storage(MemoryStore()), manifests, "a", "b_t_0")


def test_a_part_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    (tmp_path / "a/t/c/1").mkdir(parents=True)
    (tmp_path / "a/t/c/1/0").write_bytes(b"x")
    (tmp_path / "a/t/c/2").symlink_to(tmp_path.parent)
    storage = open_storage(str(tmp_path), StorageOptions())
    found = blob_objects(storage, both(), "a", "b_t_0")
    assert next(found)["path"] == "a/t/c/1/0"
    with pytest.raises(ListingError, match=r"a/t/c/2"):
        list(found)
    (tmp_path / "a/t/c/2").unlink()
    assert keys_of(storage, both(), "a", "b_t_0") == ["a/t/c/1/0"]


def test_what_a_level_could_not_read_is_asked_for_anew(backend: Backend) -> None:
    storage = backend.open()
    storage.put("a/t/c/1/0", b"x")
    storage._gaps.note_unreadable("a/t/c/2")
    assert keys_of(storage, both(), "a", "b_t_0") == ["a/t/c/1/0"]
