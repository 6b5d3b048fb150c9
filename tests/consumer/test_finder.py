from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import MemoryStore
from structlog.testing import capture_logs

from blobmap.errors import UnavailableError
from blobmap.storage import Storage, StorageOptions, open_storage
from consumer import finder as finder_module
from consumer import foreign_data
from consumer.finder import Finder, Found, is_store_name, store_by_name
from tests.support.backends import Backend, at_gateway, in_memory, local, small_server
from tests.support.gated import GatedStorage
from tests.support.powerless import powerless
from tests.support.recording import RecordingStorage
from tests.support.small_s3 import SmallS3, running_s3
from tests.support.stores import RawArray, group_v3, store_objects
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.services.gateway import Gateway

GROUP_V2 = b'{"zarr_format":2}'


@contextmanager
def finding(storage: Storage, **options: Any) -> Iterator[Finder]:
    finder = Finder({"b": lambda: storage}, **options)
    try:
        yield finder
    finally:
        finder.close()


def put(storage: Storage, objects: Mapping[str, bytes]) -> None:
    for key, data in objects.items():
        storage.put(key, data)


@pytest.fixture(params=["memory", "local", pytest.param("gateway", marks=pytest.mark.services)])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    if request.param == "memory":
        return in_memory()
    if request.param == "local":
        return local(tmp_path)
    return at_gateway(request.getfixturevalue("gateway"), request.getfixturevalue("bucket"))


@pytest.fixture
def server() -> Iterator[SmallS3]:
    with running_s3() as start:
        yield start()


# --- stores


STORES = {
    **store_objects("a/b/three", [RawArray("g/t", (4,), (1,)), RawArray("g/x", (1,), (1,))]),
    "a/b/two/.zgroup": GROUP_V2,
    **store_objects("a/b/two/inner.zarr", [RawArray("t", (4,), (1,), format=2)]),
    **store_objects("lone", [RawArray("", (4,), (1,))]),
    "broken.zarr/zarr.json": b"no document",
    "a/not/loose": b"1",
}


async def test_the_outermost_group_or_array_is_the_store(backend: Backend) -> None:
    storage = backend.open()
    put(storage, STORES)
    with finding(storage) as finder:
        for key, prefix in {
            "a/b/three/g/t/c/0": "a/b/three",
            "a/b/three/g/zarr.json": "a/b/three",
            "a/b/three/anything": "a/b/three",
            "a/b/two/inner.zarr/t/0": "a/b/two",
            "lone/c/0": "lone",
            "broken.zarr/t/c/0": "broken.zarr",
        }.items():
            assert await finder.find("b", key) == Found("store", prefix), key
            assert finder.known("b", key) == Found("store", prefix)
        assert await finder.find("b", "a/not/loose") == Found("foreign", "a", "other objects")


async def test_a_document_need_not_be_read_to_be_there(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finder_module, "_LONG_BYTES", 10)
    storage = backend.open()
    put(storage, {"s/zarr.json": b"x" * 11})
    with finding(storage) as finder:
        assert await finder.find("b", "s/t/c/0") == Found("store", "s")


async def test_a_store_may_be_the_whole_bucket(backend: Backend) -> None:
    storage = backend.open()
    put(storage, store_objects("", [RawArray("t", (4,), (1,))]))
    with finding(storage) as finder:
        assert await finder.find("b", "t/c/0") == Found("store", "")
        assert finder.known("b", "at the root") == Found("store", "")


FOREIGN: dict[str, tuple[dict[str, bytes], str, Found]] = {
    "netCDF below a folder": ({}, "project/run/tas.nc", Found("foreign", "project", "netCDF or HDF5 files")),
    "at the root": ({}, "model.grib2", Found("foreign", "", "GRIB files")),
    "zip store": ({}, "zips/s.zarr.zip", Found("foreign", "zips", "zip archive")),
    "before its documents": ({}, "p/s.zarr/t/c/0", Found("foreign", "p/s.zarr", "other objects")),
    "icechunk 2": (
        {"p/ice/repo": b"x", "p/ice/snapshots/S": b"x"},
        "p/ice/chunks/C",
        Found("foreign", "p/ice", "icechunk repository"),
    ),
    "icechunk 2, its own object": (
        {"p/ice/snapshots/S": b"x"},
        "p/ice/repo",
        Found("foreign", "p/ice", "icechunk repository"),
    ),
    "icechunk 1": (
        {"i/refs/branch.main/ref.json": b"{}", "i/snapshots/S": b"x"},
        "i/manifests/M",
        Found("foreign", "i", "icechunk repository"),
    ),
    "chunks of something else": ({"q/snapshots/S": b"x"}, "q/chunks/C", Found("foreign", "q", "other objects")),
    "reference json": (
        {"k/all.json": json.dumps({"version": 1, "refs": {".zgroup": "{}"}}).encode()},
        "k/all.json",
        Found("foreign", "k", "kerchunk references"),
    ),
    "other json": ({"k/some.json": b"[]"}, "k/some.json", Found("foreign", "k", "other objects")),
    "json that went away": ({}, "k/gone.json", Found("foreign", "k", "other objects")),
    "reference parquet": (
        {"v/all.parq/.zmetadata": json.dumps({"metadata": {}, "record_size": 100}).encode()},
        "v/all.parq/tas/refs.0.parq",
        Found("foreign", "v/all.parq", "kerchunk references"),
    ),
    "its document": (
        {"v/all.parq/.zmetadata": json.dumps({"metadata": {}, "record_size": 100}).encode()},
        "v/all.parq/.zmetadata",
        Found("foreign", "v/all.parq", "kerchunk references"),
    ),
    "other parquet": ({}, "tables/a/x.parquet", Found("foreign", "tables", "other objects")),
}


@pytest.mark.parametrize("name", FOREIGN)
async def test_foreign_data_is_named(name: str, backend: Backend) -> None:
    others, key, found = FOREIGN[name]
    storage = backend.open()
    put(storage, {key: b"x", **others} if name != "json that went away" else others)
    with finding(storage) as finder:
        assert await finder.find("b", key) == found
        assert finder.known("b", key) == found


async def test_long_documents_are_not_searched_for_references(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign_data, "_REFERENCE_BYTES", 10)
    storage = backend.open()
    put(storage, {"k/all.json": b'{"refs": {}}'})
    with finding(storage) as finder:
        assert await finder.find("b", "k/all.json") == Found("foreign", "k", "other objects")


async def test_keys_that_cannot_be_addressed_have_answers() -> None:
    storage = in_memory().open()
    put(storage, {"s.zarr/zarr.json": group_v3()})
    with finding(storage) as finder:
        assert await finder.find("b", "s.zarr/a\x01b/c/0") == Found("store", "s.zarr")
        assert await finder.find("b", "x/a\x01b/chunks/0.json") == Found("foreign", "x", "other objects")
        assert not await finder.is_group("b", "a\x01b")


# --- each document once


async def test_documents_are_looked_for_once() -> None:
    storage = RecordingStorage(MemoryStore())
    put(storage, {"a/s/zarr.json": group_v3(), "a/s/t/zarr.json": group_v3()})
    with finding(storage) as finder:
        keys = [f"a/s/t/c/{number}/0" for number in range(50)]
        assert set(await asyncio.gather(*(finder.find("b", key) for key in keys))) == {Found("store", "a/s")}
        assert storage.got == ["a/s/zarr.json"]
        assert finder.known("b", "a/s/u/c/0") == Found("store", "a/s")
        assert finder.known("b", "a/other/x") is None


async def test_what_is_remembered_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finder_module, "_MOST_PREFIXES", 5)
    with finding(in_memory().open()) as finder:
        for number in range(20):
            await finder.find("b", f"{number}/x")
        assert len(finder._seen) == len(finder._foreign) == 5
        assert not finder._looks
        assert not finder._searches
        assert finder.known("b", "19/x") is not None
        assert finder.known("b", "0/x") is None


async def test_that_there_was_nothing_holds_for_a_while() -> None:
    storage = in_memory().open()
    now = 0.0
    with finding(storage, clock=lambda: now) as finder:
        await finder.find("b", "a/s/x")
        put(storage, {"a/s/zarr.json": group_v3()})
        now = 599
        assert finder.known("b", "a/s/x") == Found("foreign", "a", "other objects")
        now = 600
        assert finder.known("b", "a/s/x") is None
        assert await finder.find("b", "a/s/x") == Found("store", "a/s")
        now = 1e9
        assert finder.known("b", "a/s/x") is None, "what was seen of the prefixes above it is old"


async def test_who_is_told_of_no_document_trusts_nothing() -> None:
    storage = in_memory().open()
    with finding(storage, trust_s=0) as finder:
        assert (await finder.find("b", "a/s/x")).kind == "foreign"
        assert finder.known("b", "a/s/x") is None
        put(storage, {"a/s/zarr.json": group_v3()})
        assert await finder.find("b", "a/s/x") == Found("store", "a/s")


# --- documents that come later


async def test_a_new_document_voids_what_was_foreign_below_it() -> None:
    storage = in_memory().open()
    with finding(storage) as finder:
        for key in ("a/s/t/c/0", "a/other/x", "a/s2/x"):
            assert (await finder.find("b", key)).kind == "foreign"
        put(storage, {"a/s/zarr.json": group_v3()})
        finder.void("b", "a/s/zarr.json")
        assert finder.known("b", "a/s/t/c/0") is None
        assert finder.known("b", "a/other/x") == finder.known("b", "a/s2/x") == Found("foreign", "a", "other objects")
        assert await finder.find("b", "a/s/t/c/0") == Found("store", "a/s")
        finder.void("b", "a/s/zarr.json")  # a rewrite
        assert finder.known("b", "a/s/t/c/0") == Found("store", "a/s")
        put(storage, {"a/zarr.json": group_v3()})
        finder.void("b", "a/zarr.json")
        assert await finder.find("b", "a/s/t/c/0") == Found("store", "a")


@pytest.mark.parametrize("held", ["a/s/.zarray", "a/s/t/.zarray"])
async def test_a_document_that_comes_while_it_is_looked_for_is_seen(held: str) -> None:
    """At the prefix that is being asked, and at one that was asked before."""
    storage = GatedStorage()
    gate = storage.hold(held)
    with finding(storage) as finder:
        found = asyncio.ensure_future(finder.find("b", "a/s/t/x"))
        other = asyncio.ensure_future(finder.find("b", "z/s/t/x"))

        async def asked() -> bool:
            return held in storage.asked

        await eventually(asked, what="the last name was asked for, and is not there")
        put(storage, {"a/s/zarr.json": group_v3()})
        finder.void("b", "a/s/zarr.json")
        finder.void("c", "z/zarr.json")
        gate.set()
        assert await found == Found("store", "a/s")
        assert await other == Found("foreign", "z", "other objects")
        assert finder.known("b", "a/s/t/x") == Found("store", "a/s")
        assert storage.asked.count("z/s/t/.zarray") == 1


async def test_who_stops_waiting_leaves_the_others_their_answer() -> None:
    storage = GatedStorage()
    gate = storage.hold(".zarray")
    put(storage, {"s/zarr.json": group_v3()})
    with finding(storage) as finder:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await finder.find("b", "s/x")
        other = asyncio.ensure_future(finder.find("b", "s/y"))
        await asyncio.sleep(0)
        gate.set()
        assert await other == Found("store", "s")
        assert storage.asked.count(".zarray") == 1


SEGMENT = st.sampled_from(["a", "b.zarr", "c"])
PREFIX = st.lists(SEGMENT, max_size=4).map("/".join)
STEP = st.tuples(PREFIX, st.sampled_from(["zarr.json", ".zgroup", "chunk"]))


def outermost(objects: set[str], key: str) -> str | None:
    """The dumb way: every prefix, every name."""
    for end in range(len(key)):
        if end == 0 or key[end] == "/":
            for name in ("zarr.json", ".zgroup", ".zarray"):
                if (f"{key[:end]}/{name}" if end else name) in objects:
                    return key[:end]
    return None


@given(steps=st.lists(STEP, max_size=12))
def test_as_documents_and_chunks_come_the_answer_is_that_of_all_that_is_there(steps: list[tuple[str, str]]) -> None:
    async def check() -> None:
        storage = in_memory().open()
        objects: set[str] = set()
        with finding(storage) as finder:
            for prefix, name in steps:
                key = f"{prefix}/{name}" if prefix else name
                objects.add(key)
                storage.put(key, {"zarr.json": group_v3(), ".zgroup": GROUP_V2}.get(name, b"1"))
                if name != "chunk":
                    finder.void("b", key)
                right = outermost(objects, key)
                known = finder.known("b", key)
                found = await finder.find("b", key)
                assert known in (None, found)
                assert found.kind == ("foreign" if right is None else "store")
                assert found.prefix == (store_by_name(key) if right is None else right)

    asyncio.run(check())


# --- groups


async def test_groups_are_told_from_arrays() -> None:
    storage = in_memory().open()
    put(storage, {**store_objects("s", [RawArray("g/t", (4,), (1,))]), "s/g/zarr.json": group_v3(), "x/zarr.json": b""})
    with finding(storage) as finder:
        assert await finder.is_group("b", "s/g")
        for prefix in ("s/g/t", "x", "nowhere"):
            assert not await finder.is_group("b", prefix)
        assert not await finder.is_group("c", "s/g")


# --- without access


async def test_without_data_names_tell_and_it_is_said_once() -> None:
    with capture_logs() as logs:
        finder = Finder({})
        assert finder.known("b", "p/s.zarr/t/c/0") == Found("unknown", "p/s.zarr")
        assert await finder.find("b", "p/q/t/c/0") == finder.known("b", "p/q/t/c/0") == Found("unknown", "p")
        assert finder.known("b", "x") == Found("unknown", "")
        finder.close()
    assert finder.guessed == {"b": "the configuration has no `data` for it"}
    assert [line["bucket"] for line in logs] == ["b"]


async def test_a_server_that_refuses_us_leaves_the_names_until_it_is_mended(server: SmallS3) -> None:
    now = 0.0
    with finding(small_server(server).open(), clock=lambda: now) as finder:
        server.status = (403, "AccessDenied")
        with capture_logs() as logs:
            for key in ("p/s.zarr/t/c/0", "p/s.zarr/t/c/1"):
                assert await finder.find("b", key) == Found("unknown", "p/s.zarr")
            assert finder.known("b", "q/x") == Found("unknown", "q")
            assert len(logs) == 1
            assert "AccessDenied" in finder.guessed["b"]
            assert not await finder.is_group("b", "p")
        server.status = None
        now = 60
        assert finder.known("b", "p/s.zarr/t/c/0") is None
        server.objects["p/s.zarr/zarr.json"] = group_v3()
        assert await finder.find("b", "p/s.zarr/t/c/0") == Found("store", "p/s.zarr")
        assert finder.guessed == {}


async def test_a_folder_that_may_not_be_read_leaves_the_rest_as_it_is() -> None:
    with powerless() as directory:
        for key in ("open/s.zarr/zarr.json", "closed/s.zarr/zarr.json", "ice/chunks/C", "ice/snapshots/S"):
            (directory / key).parent.mkdir(parents=True, exist_ok=True)
            (directory / key).write_bytes(group_v3())
        references = directory / "ice" / "all.json"
        references.write_bytes(b'{"refs": {}}')
        (directory / "closed").chmod(0)
        references.chmod(0)
        (directory / "ice").chmod(0o100)  # documents in it can be looked for, but it cannot be listed
        with finding(open_storage(str(directory), StorageOptions())) as finder:
            assert await finder.find("b", "closed/s.zarr/t/c/0") == Found("unknown", "closed/s.zarr")
            assert await finder.find("b", "open/s.zarr/t/c/0") == Found("store", "open/s.zarr")
            assert await finder.find("b", "ice/chunks/C") == Found("foreign", "ice", "other objects")
            assert await finder.find("b", "ice/all.json") == Found("foreign", "ice", "other objects")
            assert set(finder.guessed) == {"b"}


async def test_a_directory_that_comes_later_is_opened_later(tmp_path: Path) -> None:
    now = 0.0
    place = tmp_path / "mounted"
    finder = Finder({"b": partial(open_storage, str(place), StorageOptions())}, clock=lambda: now)
    assert await finder.find("b", "s/x") == Found("unknown", "s")
    assert str(place) in finder.guessed["b"]
    (place / "s").mkdir(parents=True)
    (place / "s" / "zarr.json").write_bytes(group_v3())
    now = 60
    assert await finder.find("b", "s/x") == Found("store", "s")
    finder.close()


async def test_a_server_that_cannot_be_reached_is_asked_again(server: SmallS3) -> None:
    with finding(small_server(server, timeout_s=2).open()) as finder:
        server.status = (503, "SlowDown")
        with pytest.raises(UnavailableError):
            await finder.find("b", "s/x")
        assert finder.known("b", "s/x") is None
        assert finder.guessed == {}
        server.status = None
        assert await finder.find("b", "s/x") == Found("foreign", "s", "other objects")


@pytest.mark.services
async def test_a_gateway_that_does_not_know_us_leaves_the_names(gateway: Gateway, bucket: str) -> None:
    options = replace(at_gateway(gateway, bucket).options, access_key_id="nobody")
    with finding(open_storage(f"s3://{bucket}", options)) as finder:
        assert await finder.find("b", "p/s.zarr/t/c/0") == Found("unknown", "p/s.zarr")


# --- names


@pytest.mark.parametrize(
    ("key", "root"),
    [
        ("s.zarr/t/c/0/0", "s.zarr"),
        ("a/b/s.zarr/t/c/0", "a/b/s.zarr"),
        ("a/outer.zarr/inner.zarr/t/0", "a/outer.zarr"),
        ("S.ZARR/t/0", "S.ZARR"),
        ("s.zarr3/t/0", "s.zarr3"),
        (".zarr/t/0", ".zarr"),
        ("project/run/t/c/0", "project"),
        ("t/0.0", "t"),
        ("object", ""),
        ("s.zarr", ""),
        ("a/s.zarr", "a"),
        ("s.zarr.tmp/x", "s.zarr.tmp"),
    ],
)
def test_the_store_of_a_key_by_its_name(key: str, root: str) -> None:
    assert store_by_name(key) == root


def test_names_of_stores() -> None:
    assert is_store_name("a/b.zarr")
    assert is_store_name("b.ZARR3")
    assert not is_store_name("a.zarr/b")
    assert not is_store_name("")
