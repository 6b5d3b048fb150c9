from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from obstore.store import LocalStore, MemoryStore

from blobmap.chunk_keys import METADATA_NAMES
from blobmap.errors import ListingError, MissingError, UnavailableError
from blobmap.nodes import settle_node
from blobmap.search import find_nodes
from blobmap.storage import Storage, open_storage
from blobmap.survey import Progress, Survey, survey_store
from tests.support.backends import small_options
from tests.support.recording import RecordingStorage
from tests.support.stores import RawArray, chunk_keys, group_v2, group_v3, put_all, store_objects, write_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from blobmap.objects import Entry, Level
    from tests.support.small_s3 import SmallS3

TREE = [
    RawArray("atm/tas", (40, 8), (1, 4), ["time", "x"], nbytes=10),
    RawArray("atm/time", (40,), (10,), ["time"], nbytes=3),
    RawArray("atm/hi/pr", (7, 8), (1, 8), ["time", "x"], nbytes=5),
    RawArray("crs", (), ()),
]


def survey(objects: dict[str, bytes], scope: str = "st") -> Survey:
    store = MemoryStore()
    put_all(store, objects)
    return survey_store(Storage(store), scope)


def counts(found: Survey) -> dict[str, tuple[int, int]]:
    return {array.layout.path: (array.objects, array.stored_bytes) for array in found.arrays}


def test_every_array_is_counted_once_and_every_document_read_once() -> None:
    store = MemoryStore()
    objects = write_store(store, "a/st", TREE)
    storage = RecordingStorage(store)
    found = survey_store(storage, "a/st")
    assert counts(found) == {"atm/tas": (80, 800), "atm/time": (4, 12), "atm/hi/pr": (7, 35), "crs": (1, 4)}
    assert [group.path for group in found.groups] == ["", "atm", "atm/hi"]
    assert (found.warnings, found.problems, found.loose_objects) == ((), (), 0)
    assert sorted(storage.got) == sorted(key for key in objects if key.endswith("zarr.json"))
    assert sorted(storage.levels) == ["a/st", "a/st/atm", "a/st/atm/hi"]
    assert sorted(prefix for prefix in storage.listed if prefix != "a/st") == [
        "a/st/atm/hi/pr",
        "a/st/atm/tas",
        "a/st/atm/time",
        "a/st/crs",
    ]
    assert found.etags["crs"] == storage.get("a/st/crs/zarr.json").etag


def test_v2_documents_are_read_once_too_and_consolidated_metadata_only_helps() -> None:
    arrays = [
        RawArray("g/tas", (40, 8), (1, 4), ["time", "x"], format=2, separator="."),
        RawArray("g/time", (40,), (10,), format=2, separator="."),
        RawArray("old", (4,), (4,), format=2, separator="."),
    ]
    store = MemoryStore()
    objects = write_store(store, "st", arrays, groups={"g": {"coordinates": "lat"}})
    metadata = {
        "g/time/.zattrs": {"_ARRAY_DIMENSIONS": ["time"]},
        "g/tas/.zattrs": {"_ARRAY_DIMENSIONS": ["wrong", "names"]},
        "gone/.zarray": {},
        "g/tas/.zarray": {},
    }
    store.put("st/.zmetadata", json.dumps({"metadata": metadata}).encode())
    storage = RecordingStorage(store)
    found = survey_store(storage, "st")
    by_path = {array.layout.path: array.layout for array in found.arrays}
    assert by_path["g/tas"].dimensions == ("time", "x")
    assert by_path["g/time"].coordinate
    assert by_path["old"].dimensions is None
    assert found.warnings == (
        (
            "consolidated metadata of the store itself names 1 arrays that have no document of their own, "
            "the first is 'gone'"
        ),
    )
    documents = [key for key in objects if key.rpartition("/")[2] in METADATA_NAMES]
    assert sorted(storage.got) == sorted([*documents, "st/.zmetadata"])


@pytest.mark.parametrize("fmt", [2, 3])
def test_arrays_are_where_their_documents_are_whatever_keys_look_like(fmt: int) -> None:
    form = {"format": fmt}
    arrays = [
        RawArray("c/c", (3, 4), (1, 4), **form),  # type: ignore[arg-type]  # 2 or 3
        RawArray("0/1", (3, 4), (1, 4), **form),  # type: ignore[arg-type]
        RawArray("c/0/0", (3,), (1,), **form),  # type: ignore[arg-type]
        RawArray("tas/v", (3,), (1,), **form),  # type: ignore[arg-type]
    ]
    found = survey(store_objects("st", arrays))
    assert counts(found) == {array.path: (3, 12) for array in arrays}
    assert {group.path for group in found.groups} == {"", "c", "0", "c/0", "tas"}


@pytest.mark.parametrize("scope", ["", "st"])
def test_an_array_may_be_the_store_and_a_store_may_be_the_bucket(scope: str) -> None:
    assert counts(survey(store_objects(scope, [RawArray("", (3, 4), (1, 4))]), scope)) == {"": (3, 12)}
    assert counts(survey(store_objects(scope, TREE), scope))["atm/hi/pr"] == (7, 35)


def test_both_formats_that_agree_are_one_array_and_else_are_refused_by_name() -> None:
    three = RawArray("a", (3, 4), (1, 4), keys="v2", separator=".")
    two = RawArray("a", (3, 4), (1, 4), ["y", "x"], format=2, separator=".")
    both = {**store_objects("st", [two]), **store_objects("st", [three])}
    agreeing = survey(both)
    assert counts(agreeing) == {"a": (3, 12)}
    assert agreeing.arrays[0].layout.dimensions == ("y", "x")
    del both["st/zarr.json"]  # from a v2 root the v2 document is found first
    assert survey(both).arrays[0].layout.zarr_format == 3
    other = RawArray("a", (3, 4), (3, 4), format=2, separator=".")
    disagreeing = survey({**both, **store_objects("st", [other, TREE[3]])})
    assert list(counts(disagreeing)) == ["crs"]
    assert disagreeing.unread == ("a",)
    assert "st/a: zarr.json and .zarray disagree: grid of objects (3, 1) and (1, 1)" in disagreeing.problems[0]


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        (
            {"a/.zgroup": group_v2(), **store_objects("", [RawArray("a", (3,), (1,))])},
            "says array and .zgroup says group",
        ),
        (
            {"a/zarr.json": group_v3(), **store_objects("", [RawArray("a", (3,), (1,), format=2)])},
            "says group and .zarray",
        ),
        (
            {
                "zarr.json": group_v3(),
                "a/zarr.json": group_v3(),
                "a/.zarray": RawArray("a", (3,), (1,), format=2).documents()[".zarray"],
            },
            "says group and .zarray",
        ),
    ],
)
def test_a_node_that_is_array_and_group_is_refused_by_name(documents: dict[str, bytes], said: str) -> None:
    found = survey({f"st/{key}": data for key, data in documents.items()})
    assert found.arrays == ()
    assert said in found.problems[0]
    assert "st/a" in found.problems[0]
    assert found.unread == ("a",)


@pytest.mark.parametrize(
    "broken", [b"", b"{", b"[]", b'{"zarr_format": 3}', b'{"zarr_format": 4, "node_type": "array"}']
)
def test_a_broken_document_names_itself_and_hides_nothing(broken: bytes) -> None:
    objects = store_objects("st", TREE)
    of_array = survey({**objects, "st/atm/tas/zarr.json": broken})
    assert sorted(counts(of_array)) == ["atm/hi/pr", "atm/time", "crs"]
    assert of_array.unread == ("atm/tas",)
    assert of_array.problems[0].startswith("st/atm/tas/zarr.json: ")
    assert of_array.loose_objects == 80
    of_group = survey({**objects, "st/atm/zarr.json": broken})
    assert counts(of_group) == counts(survey(objects))
    assert of_group.unread == ("atm",)
    of_root = survey({**objects, "st/zarr.json": broken})
    assert counts(of_root) == counts(survey(objects))
    assert of_root.unread == ("",)


@pytest.mark.parametrize(
    ("name", "data"), [(".zattrs", b"{"), (".zmetadata", b"["), (".zgroup", b'{"zarr_format": 5}'), (".zgroup", b"")]
)
def test_a_broken_v2_document_of_a_group_names_itself_and_hides_nothing(name: str, data: bytes) -> None:
    arrays = [RawArray("g/tas", (3, 4), (1, 4), format=2), RawArray("g/pr", (3, 4), (1, 4), format=2)]
    found = survey({**store_objects("st", arrays), f"st/g/{name}": data})
    assert sorted(counts(found)) == ["g/pr", "g/tas"]
    assert found.problems[0].startswith(f"st/g/{name}: ")


def test_a_document_longer_than_any_document_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blobmap.nodes._MAX_BYTES", 2000)
    objects = store_objects("st", TREE)
    found = survey({**objects, "st/crs/zarr.json": objects["st/crs/zarr.json"] + b" " * 2000})
    assert "crs" not in counts(found)
    assert "st/crs/zarr.json" in found.problems[0]


def test_loose_objects_are_counted_and_said() -> None:
    found = survey({**store_objects("st", TREE), "st/README.md": b"12", "st/atm/raw/a/b": b"345", "st/x/zarr.jso": b""})
    assert (found.loose_objects, found.loose_bytes) == (3, 5)
    assert found.warnings == ("3 objects (5 B) belong to no array and stay unmanaged, the first is 'st/README.md'",)


def test_nodes_behind_a_folder_without_metadata_are_found() -> None:
    inner = store_objects("st/raw/x/inner.zarr", [RawArray("v", (3, 4), (1, 4))])
    found = survey({**store_objects("st", TREE), **inner, "st/raw/note": b"1"})
    assert counts(found)["raw/x/inner.zarr/v"] == (3, 12)
    assert found.loose_objects == 1


def test_an_array_inside_an_array_is_an_array_and_each_object_is_counted_once() -> None:
    outer = RawArray("a", (3, 4, 2), (1, 4, 1))
    inner = RawArray("a/c/0", (5, 5), (1, 5), format=2)
    objects = {**store_objects("st", [outer]), **store_objects("st", [inner])}
    objects.pop("st/a/zgroup", None)
    found = survey({key: data for key, data in objects.items() if key.rpartition("/")[2] != ".zgroup"})
    # Every key below `a/c/0` is the inner array's, also `a/c/0/0/1`, which only the outer one wrote.
    assert counts(found) == {"a": (4, 16), "a/c/0": (6, 24)}


def test_there_has_to_be_a_store() -> None:
    for objects in ({}, {"st/README": b"1"}, {"stx/zarr.json": group_v3()}, {"st/.zattrs": b"{}"}):
        with pytest.raises(MissingError, match="memory: there is no zarr store at 'st'"):
            survey(objects)
    with pytest.raises(MissingError, match="no zarr store at 'its root'"):
        survey({"README": b"1"}, "")


def test_what_is_under_way_ends_early_when_something_fails() -> None:
    store = MemoryStore()
    write_store(store, "st", [RawArray(name, (30_000, 1), (1, 1), nbytes=0) for name in ("a", "b")])
    told: list[Progress] = []

    def report(progress: Progress) -> None:
        told.append(progress)
        if progress.objects > 0:
            if len([one for one in told if one.objects]) == 1:
                raise RuntimeError("the one who watches has had enough")
            time.sleep(0.1)

    with pytest.raises(RuntimeError, match="had enough"):
        survey_store(Storage(store), "st", on_progress=report)
    assert told[-1].objects < 60_000


def test_a_search_that_is_stopped_ends() -> None:
    store = MemoryStore()
    store.put("lost/x", b"1")
    stopping = threading.Event()
    assert find_nodes(Storage(store), "lost", stopping)[1].objects == 1
    stopping.set()
    assert find_nodes(Storage(store), "lost", stopping)[1].objects == 0


@pytest.mark.parametrize("prefix", ["st/atm/tas", "st/atm/raw"])
def test_a_listing_that_breaks_is_an_error_and_never_a_smaller_store(prefix: str) -> None:
    store = MemoryStore()
    write_store(store, "st", TREE)
    store.put("st/atm/raw/x", b"1")
    with pytest.raises(UnavailableError, match=f"{prefix} went away"):
        survey_store(RecordingStorage(store, fail_at=prefix), "st")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("survey")]


def test_a_store_that_cannot_be_listed_whole_is_refused(tmp_path: Path) -> None:
    for key, data in store_objects("st", TREE).items():
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    storage = Storage(LocalStore(tmp_path))
    before = survey_store(storage, "st")
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"1" * 1000)
    link = tmp_path / "st/atm/tas/c/0/7"
    link.symlink_to(outside / "secret")
    with pytest.raises(ListingError, match=r"'st' cannot be listed whole.*'st/atm/tas/c/0/7'"):
        survey_store(storage, "st")
    link.unlink()
    assert survey_store(storage, "st") == before
    link = tmp_path / "st/atm/loose"  # met by the listing of one level, which forgets nothing
    link.symlink_to(outside / "secret")
    with pytest.raises(ListingError, match=r"'st/atm/loose'; links .* are not followed: .* exclude 'loose'$"):
        survey_store(storage, "st")
    assert survey_store(Storage(LocalStore(tmp_path), exclude=["loose"]), "st") == before
    link.unlink()
    assert survey_store(storage, "st") == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other/link").symlink_to(outside)
    assert survey_store(storage, "st") == before


class Vanishing(Storage):
    """A store of which something is removed just before a listing of it."""

    def __init__(self, store: MemoryStore, prefix: str, *, before: str) -> None:
        super().__init__(store)
        self._store = store
        self._prefix = prefix
        self._before = before

    def pages(self, prefix: str = "", *, after: str | None = None) -> Iterator[Sequence[Entry]]:
        self._vanish(prefix)
        return super().pages(prefix, after=after)

    def level(self, prefix: str = "") -> Level:
        self._vanish(prefix)
        return super().level(prefix)

    def _vanish(self, prefix: str) -> None:
        if prefix == self._before:
            for entry in self._store.list(self._prefix).collect():
                self._store.delete(entry["path"])


@pytest.mark.parametrize(
    ("prefix", "before", "said"),
    [
        ("st", "st/atm/tas", "gone: 'atm/"),
        ("st/atm/tas", "st/atm/tas", "gone: 'atm/tas'"),
        ("st", "st", "gone: the store itself"),
    ],
)
def test_what_goes_away_meanwhile_is_no_smaller_store(prefix: str, before: str, said: str) -> None:
    store = MemoryStore()
    write_store(store, "st", TREE)
    with pytest.raises(ListingError, match=said):
        survey_store(Vanishing(store, prefix, before=before), "st")


def test_excluded_segments_are_nowhere() -> None:
    objects = {
        **store_objects("st", TREE),
        "st/.sgwtmp/multipart/1": b"1",
        "st/atm/tas/.snapshot/c/0/0": b"1",
        "st/atm/.versitygw/x/zarr.json": group_v3(),
    }
    found = survey(objects)
    assert found == survey(store_objects("st", TREE))
    store = MemoryStore()
    put_all(store, objects)
    shown = survey_store(Storage(store, exclude=()), "st")
    assert shown.loose_objects == 1
    assert "atm/.versitygw/x" in {group.path for group in shown.groups}
    hidden = survey_store(Storage(store, exclude=("atm",)), "st")
    assert list(counts(hidden)) == ["crs"]


def test_progress_grows_to_the_whole_and_comes_from_one_thread_at_a_time() -> None:
    store = MemoryStore()
    write_store(store, "st", TREE)
    told: list[Progress] = []
    survey_store(Storage(store), "st", on_progress=told.append)
    objects = [progress.objects for progress in told]
    assert objects == sorted(objects)
    # 92 chunks and four documents of arrays; groups are not listed flat.
    assert told[-1] == Progress(objects=96, arrays_done=4, arrays=4)


def test_memory_does_not_grow_with_objects() -> None:
    def peak(chunks: int) -> int:
        store = MemoryStore()
        write_store(store, "st", [RawArray("a", (chunks, 4), (1, 4), nbytes=1)])
        tracemalloc.start()
        survey_store(Storage(store), "st")
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    few, many = peak(3_000), peak(30_000)
    assert many < few + 200_000


@pytest.mark.parametrize("grid", [(25_000, 1), (1, 25_000), (160, 160)])
@pytest.mark.parametrize("separator", ["/", "."])
def test_a_large_array_is_listed_in_parts_and_counted_the_same(
    small_s3: SmallS3, grid: tuple[int, int], separator: str
) -> None:
    present = [(i, j) for i in range(0, grid[0], 7) for j in range(0, grid[1], 5)]
    raw = RawArray("a", grid, (1, 1), separator=separator, present=present, nbytes=2)
    small_s3.objects.update(store_objects("st", [raw]))
    small_s3.objects["st/a/README"] = b"12345"
    storage = open_storage(f"s3://{small_s3.bucket}", small_options(small_s3))
    found = survey_store(storage, "st")
    assert counts(found) == {"a": (len(present), 2 * len(present))}
    assert found.arrays[0].strays == 1
    lists = [seen for seen in small_s3.seen if "start-after" in seen.path]
    assert len(lists) >= 9


AUDIT = """
import sys
from pathlib import Path
opened = []
names = {"zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"}
data = sys.argv[1]
def hook(event, args):
    if event in ("open", "os.chmod", "os.utime") and isinstance(args[0], str) and args[0].startswith(data):
        if not Path(args[0]).is_dir() and args[0].rpartition("/")[2] not in names:
            opened.append(args[0])
sys.addaudithook(hook)
import blobmap.survey
from blobmap import ManifestStore, Policy, partition_store
from blobmap.scan import scan_stores
from blobmap.storage import StorageOptions, open_storage
blobmap.survey._LARGE_LOCAL = int(sys.argv[3])
storage = open_storage(data, StorageOptions())
manifests = ManifestStore(open_storage(sys.argv[2], StorageOptions(), create=True))
outcome = partition_store(storage, manifests, "st", policy=Policy(t_hot_bytes=1))
scan = scan_stores(storage, manifests)
print(len(outcome.manifest.blobs), len(scan.stores), opened)
"""


@pytest.mark.parametrize("large", [10**6, 1])  # counted by threads, and by processes
def test_t11_no_chunk_is_ever_opened(tmp_path: Path, large: int) -> None:
    data = tmp_path / "data"
    objects = store_objects("st", TREE)
    for key, content in objects.items():
        path = data / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if path.name not in METADATA_NAMES:
            path.chmod(0)
    chunks = [data / key for array in TREE for key in chunk_keys("st", array)]
    before = [(chunk.stat().st_atime_ns, chunk.stat().st_ctime_ns) for chunk in chunks]
    done = subprocess.run(
        [sys.executable, "-c", AUDIT, str(data), str(tmp_path / "manifests"), str(large)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout == "2 1 []\n"
    assert [(chunk.stat().st_atime_ns, chunk.stat().st_ctime_ns) for chunk in chunks] == before


def test_an_array_whose_other_document_went_away_meanwhile_is_what_it_is() -> None:
    layout = survey(store_objects("st", [TREE[0]])).arrays[0].layout
    store = MemoryStore()
    assert settle_node(Storage(store), "st", layout, {"zarr.json", ".zarray"}) == layout


def test_a_group_may_be_one_of_both_formats_and_no_array_of_the_other() -> None:
    objects = store_objects("st", [RawArray("g/a", (3,), (1,), format=2)])
    assert counts(survey({**objects, "st/g/zarr.json": group_v3()})) == {"g/a": (3, 12)}
    array = RawArray("g", (3,), (1,)).documents()["zarr.json"]
    found = survey({**objects, "st/g/zarr.json": array})
    assert found.problems == ("st/g: zarr.json says array and .zgroup says group",)
    assert "g/a" in counts(found)
