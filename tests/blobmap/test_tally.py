from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blobmap.chunk_keys import ChunkKeyEncoding
from blobmap.tally import Count, Measured, Tally
from tests.support.measured import layout_of
from tests.support.stores import RawArray, chunk_keys

if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX = "st.zarr/tas/"
WRITTEN = datetime(2026, 11, 30, 12, tzinfo=UTC)


def page(keys: Iterable[str], size: int = 10) -> list[dict[str, object]]:
    return [{"path": key, "size": size, "last_modified": WRITTEN} for key in keys]


def count(raw: RawArray, keys: Iterable[str], *, prefix: str = PREFIX) -> Measured:
    tally = Tally(layout_of(raw), prefix)
    keys = list(keys)
    for start in range(0, len(keys), 7):
        tally.add(page(keys[start : start + 7]))
    return tally.result()


FORMS = [
    RawArray("tas", (4, 3, 2), (1, 1, 1), format=2, separator="."),
    RawArray("tas", (4, 3, 2), (1, 1, 1), format=2, separator="/"),
    RawArray("tas", (4, 3, 2), (1, 1, 1), separator="/"),
    RawArray("tas", (4, 3, 2), (1, 1, 1), separator="."),
    RawArray("tas", (4,), (1,), separator="."),
    RawArray("tas", (), (), separator="/"),
    RawArray("tas", (), (), format=2),
]


@pytest.mark.parametrize("raw", FORMS)
def test_chunks_are_counted_and_metadata_is_not(raw: RawArray) -> None:
    documents = [PREFIX + name for name in raw.documents()]
    found = count(raw, [*chunk_keys("st.zarr", raw), *documents])
    assert (found.objects, found.stored_bytes) == (layout_of(raw).grid_objects, layout_of(raw).grid_objects * 10)
    assert found.encoding == layout_of(raw).encoding
    assert found.warnings == ()


@given(st.permutations(range(24)), st.integers(1, 30))
def test_pages_of_any_size_and_order_give_the_same(order: list[int], size: int) -> None:
    raw = FORMS[2]
    keys = [*chunk_keys("st.zarr", raw), PREFIX + "zarr.json", PREFIX + "README"]
    keys = [keys[i] for i in order] + keys[24:]
    tally = Tally(layout_of(raw), PREFIX)
    for start in range(0, len(keys), size):
        tally.add(page(keys[start : start + size]))
    assert tally.result() == count(raw, sorted(keys))


@given(st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=4))
def test_the_newest_object_of_all_pages_is_known(pages: list[list[int]]) -> None:
    raw = RawArray("tas", (10,), (1,))
    tally = Tally(layout_of(raw), PREFIX)
    for ages in pages:
        tally.add([page([f"{PREFIX}c/{age}"])[0] | {"last_modified": WRITTEN - timedelta(days=age)} for age in ages])
    youngest = min((age for ages in pages for age in ages), default=None)
    assert tally.newest == (None if youngest is None else WRITTEN - timedelta(days=youngest))
    assert tally.result().newest == tally.newest


@pytest.mark.parametrize("name", ["00", "+1", "1_0", "٣", " 1", "1 ", "-1", "1e3", "", "c", "0/0/0/0", "0/0"])
def test_what_is_no_canonical_index_is_no_chunk(name: str) -> None:
    found = count(FORMS[2], [PREFIX + "c/0/0/0", f"{PREFIX}c/0/0/{name}"])
    assert found.objects == 1
    assert found.strays == (0 if name == "" else 1)


def test_strays_are_said_with_the_first_of_them() -> None:
    found = count(FORMS[2], [PREFIX + "c/0/0/0", PREFIX + "notes.txt", PREFIX + "a.txt", PREFIX + "c.0.0.0"])
    assert found.objects == 1
    assert found.strays == 3
    assert found.warnings == (
        "3 objects (30 B) below 'tas' are none of its chunks and stay unmanaged, the first is 'st.zarr/tas/a.txt'",
    )


def test_objects_of_two_axes_decide_against_what_is_declared() -> None:
    raw = RawArray("tas", (10, 100, 100), (1, 100, 100), format=2, separator=None)
    found = count(raw, [PREFIX + ".zarray", *(f"{PREFIX}{i}/0/0" for i in range(10)), PREFIX + "x"])
    assert found.encoding == ChunkKeyEncoding("v2", "/")
    assert (found.objects, found.stored_bytes, found.obstacle) == (10, 100, None)
    assert found.warnings[0] == (
        "'tas' declares objects like '0.0.0' and has 10 like 'st.zarr/tas/0/0/0': the objects decide"
    )
    assert found.strays == 1


@pytest.mark.parametrize(
    ("raw", "keys"),
    [
        (RawArray("tas", (4,), (1,), separator="/"), ["c.0", "c.1"]),
        (FORMS[2], ["c.0.0.0", "0/0/0"]),
        (FORMS[2], ["notes.txt"]),
        (FORMS[0], ["0.0.0.tiff", "0.0.1.tiff"]),
    ],
)
def test_objects_that_fit_nothing_are_an_obstacle(raw: RawArray, keys: list[str]) -> None:
    found = count(raw, [PREFIX + key for key in keys])
    assert found.encoding is None
    assert found.obstacle is not None
    assert f"none of its {len(keys)} objects" in found.obstacle
    assert repr(PREFIX + min(keys)) in found.obstacle
    assert found.sample == min(keys)


def test_an_array_without_objects_keeps_what_it_declares() -> None:
    found = count(FORMS[2], [PREFIX + "zarr.json"])
    assert (found.objects, found.stored_bytes) == (0, 0)
    assert found.encoding == ChunkKeyEncoding("default", "/")


def test_without_a_known_encoding_everything_but_metadata_counts() -> None:
    raw = RawArray("tas", (4, 4), (1, 1), members={"chunk_key_encoding": {"name": "fanout"}})
    found = count(raw, [PREFIX + "zarr.json", PREFIX + "c/0/1/end", PREFIX + "c/0/0/end", PREFIX + "c/"])
    assert (found.objects, found.encoding, found.sample) == (2, None, "c/0/0/end")
    assert found.obstacle == layout_of(raw).obstacle
    assert count(raw, []).sample is None


def test_documents_further_in_are_nodes_and_not_chunks() -> None:
    raw = FORMS[2]
    tally = Tally(layout_of(raw), PREFIX)
    tally.add(
        page([PREFIX + "zarr.json", PREFIX + ".zarray", PREFIX + "v/.zarray", PREFIX + "c/0/0/0", PREFIX + "v/0.0"])
    )
    assert tally.documents == {"zarr.json", ".zarray"}
    assert tally.inside == {PREFIX + "v"}
    again = Tally(layout_of(raw), PREFIX, apart_from=(PREFIX + "v",))
    again.add(page([PREFIX + "c/0/0/0", PREFIX + "v/0.0", PREFIX + "v/.zarray"]))
    assert again.result() == Measured(layout_of(raw), 1, 10, layout_of(raw).encoding, newest=WRITTEN)


def test_the_root_of_a_bucket_may_be_an_array() -> None:
    raw = RawArray("", (4, 4), (1, 4), format=2, separator=".")
    assert count(raw, [".zarray", "0.0", "1.0", "2.0"], prefix="").objects == 3


def test_names_with_signs_of_patterns_are_taken_literally() -> None:
    raw = RawArray("a+(b)[c].*", (4, 4), (1, 4))
    keys = chunk_keys("st.zarr", raw)
    found = count(raw, keys, prefix="st.zarr/a+(b)[c].*/")
    assert found.objects == 4
    assert count(raw, keys, prefix="st.zarr/a+(b)[c]../").objects == 0


def test_a_rectilinear_grid_is_weighed_at_both_ends_of_each_axis() -> None:
    raw = RawArray("tas", (210, 4), edges=[[[1, 10], [10, 20]], [4]], nbytes=lambda index: 10 if index[0] < 10 else 100)
    tally = Tally(layout_of(raw), PREFIX)
    tally.add([{"path": PREFIX + key, "size": size, "last_modified": WRITTEN} for key, size in raw.chunk_keys()])
    found = tally.result()
    assert found.ends == ((10.0, 100.0), (2100.0, 2100.0))
    assert Tally(layout_of(raw), PREFIX).result().ends == ((0.0, 0.0), (0.0, 0.0))


def test_counts_merge() -> None:
    one, other = Count(1, 10, "b"), Count(2, 20, "a")
    one.merge(other)
    assert one == Count(3, 30, "a")
    one.merge(Count())
    assert one == Count(3, 30, "a")
