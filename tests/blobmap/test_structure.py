from __future__ import annotations

import json
from typing import TYPE_CHECKING

from obstore.store import MemoryStore

from blobmap import Trie
from blobmap.census import take_census
from blobmap.roles import stand
from blobmap.storage import Storage
from blobmap.structure import Structure, read_structures
from blobmap.survey import survey_store
from tests.support.stores import RawArray, put_all, store_objects, write_store

if TYPE_CHECKING:
    from collections.abc import Mapping


def read_all(objects: Mapping[str, bytes]) -> list[Structure]:
    store = MemoryStore()
    put_all(store, objects)
    storage = Storage(store)
    census = take_census(storage, Trie(), [""])
    return list(read_structures(storage, census.nodes, census.stores()))


def test_the_structure_is_what_a_survey_finds() -> None:
    arrays = [
        RawArray("tas", (8, 4), (1, 4), ["time", "x"], attributes={"coordinates": "lat"}),
        RawArray("lat", (4,), (4,), ["x"]),
        RawArray("time", (8,), (1,), ["time"]),
        RawArray("old", (8,), (1,), ["time"], format=2),
        RawArray("deep/er/v", (3,), (1,), ["z"]),
    ]
    store = MemoryStore()
    write_store(store, "a/st.zarr", arrays, groups={"": {"coordinates": "lat"}, "deep/er": {}, "deep": {}})
    storage = Storage(store)
    census = take_census(storage, Trie(), [""])
    (found,) = read_structures(storage, census.nodes, census.stores())
    survey = survey_store(storage, "a/st.zarr")
    assert found.scope == "a/st.zarr"
    assert sorted(found.arrays, key=lambda array: array.path) == [array.layout for array in survey.arrays]
    assert sorted(group.path for group in found.groups) == sorted(group.path for group in survey.groups)
    assert stand(found.arrays, found.groups) == stand([array.layout for array in survey.arrays], survey.groups)


def test_consolidated_metadata_helps_where_documents_are_silent() -> None:
    tas = RawArray("g/tas", (8,), (1,), format=2)
    objects = store_objects("a", [tas])
    metadata = {"g/tas/.zattrs": {"_ARRAY_DIMENSIONS": ["tas"]}, "g/tas/.zarray": {}}
    objects["a/.zmetadata"] = json.dumps({"metadata": metadata, "zarr_consolidated_format": 1}).encode()
    objects["a/g/.zmetadata"] = b"{"
    (found,) = read_all(objects)
    assert found.problems == ()
    assert [array.dimensions for array in found.arrays] == [("tas",)]
    assert found.groups[0].members == ("g/tas",)


def test_broken_documents_are_named_and_hide_nothing() -> None:
    objects = store_objects("a", [RawArray("t", (8,), (1,)), RawArray("u", (8,), (1,)), RawArray("w", (8,), (1,))])
    objects["a/t/zarr.json"] = b"{"
    objects["a/u/.zgroup"] = b'{"zarr_format": 2}'
    objects["a/x/.zgroup"] = b'{"zarr_format": 2}'
    objects["a/x/.zattrs"] = b"["
    (found,) = read_all(objects)
    assert [array.path for array in found.arrays] == ["w"]
    assert [problem.partition(": ")[0] for problem in found.problems] == ["a/t/zarr.json", "a/u", "a/x/.zattrs"]


def test_many_stores_come_in_the_order_of_their_keys() -> None:
    objects: dict[str, bytes] = {}
    for number in range(300):
        objects |= store_objects(f"s{number:03}.zarr", [RawArray("t", (1,), (1,)), RawArray("u", (1,), (1,))])
    objects |= store_objects("s000.zarr-more", [RawArray("t", (1,), (1,))])
    found = read_all(objects)
    assert [structure.scope for structure in found] == sorted(
        [*(f"s{number:03}.zarr" for number in range(300)), "s000.zarr-more"]
    )
    assert all(len(structure.arrays) in (1, 2) for structure in found)


def test_only_the_stores_that_are_asked_for_are_read() -> None:
    store = MemoryStore()
    write_store(store, "a", [RawArray("t", (1,), (1,))])
    nodes = {"a": frozenset({"zarr.json"}), "a/t": frozenset({"zarr.json"}), "b": frozenset({"zarr.json"})}
    assert [found.scope for found in read_structures(Storage(store), nodes, ["a"])] == ["a"]


def test_a_store_at_the_root() -> None:
    (found,) = read_all(store_objects("", [RawArray("t", (1,), (1,))]))
    assert (found.scope, [array.path for array in found.arrays]) == ("", ["t"])
