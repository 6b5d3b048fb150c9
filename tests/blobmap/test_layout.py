from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blobmap.arrays import ArrayLayout, GroupLayout, Reference
from blobmap.chunk_keys import ChunkKeyEncoding
from blobmap.errors import DocumentError
from blobmap.layout import (
    parse_document,
    read_consolidated,
    read_v2_array,
    read_v2_group,
    read_v3,
    settle_formats,
)
from tests.support.measured import layout_of
from tests.support.stores import RawArray, group_v3

TAS = RawArray("atm/tas", (40, 8, 8), (1, 4, 8), ["time", "lat", "lon"])


def array_v3(**members: object) -> ArrayLayout:
    return layout_of(RawArray("tas", (40, 8), (1, 4), ["time", "lat"], members=members))


def array_v2(**members: object) -> ArrayLayout:
    return layout_of(RawArray("tas", (40, 8), (1, 4), ["time", "lat"], format=2, separator=None, members=members))


@pytest.mark.parametrize(
    ("keys", "separator", "encoding"),
    [
        ("default", "/", ChunkKeyEncoding("default", "/")),
        ("default", ".", ChunkKeyEncoding("default", ".")),
        ("default", None, ChunkKeyEncoding("default", "/")),
        ("v2", "/", ChunkKeyEncoding("v2", "/")),
        ("v2", ".", ChunkKeyEncoding("v2", ".")),
        ("v2", None, ChunkKeyEncoding("v2", ".")),
    ],
)
def test_v3_chunk_keys_with_both_separators_and_their_defaults(
    keys: Any, separator: str | None, encoding: ChunkKeyEncoding
) -> None:
    layout = layout_of(RawArray("tas", (4, 4), (2, 2), keys=keys, separator=separator))
    assert layout.encoding == encoding
    assert layout.obstacle is None


@pytest.mark.parametrize(("separator", "used", "declared"), [(None, ".", False), (".", ".", True), ("/", "/", True)])
def test_v2_chunk_keys_with_both_separators_and_their_default(separator: str | None, used: str, declared: bool) -> None:
    layout = layout_of(RawArray("tas", (4, 4), (2, 2), format=2, separator=separator))
    assert layout.encoding == ChunkKeyEncoding("v2", "/" if used == "/" else ".")
    assert layout.separator_declared is declared


def test_extension_points_may_be_a_bare_name() -> None:
    assert array_v3(chunk_key_encoding="default").encoding == ChunkKeyEncoding("default", "/")
    assert array_v3(codecs=["bytes", "zstd"]).sharded is False


@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ({"name": "suffix", "configuration": {"suffix": ".tiff", "base-encoding": {"name": "default"}}}, "suffix"),
        ({"name": "zarrs.default_suffix", "configuration": {"suffix": ".shard"}}, "suffix"),
        ({"name": "fanout", "configuration": {"max_children": 1001}}, "several segments"),
        ({"name": "hilbert"}, "unknown"),
    ],
)
def test_keys_that_no_rule_can_express_are_an_obstacle_and_no_error(encoding: object, said: str) -> None:
    layout = array_v3(chunk_key_encoding=encoding)
    assert layout.encoding is None
    assert layout.obstacle is not None
    assert said in layout.obstacle


def test_storage_transformers_and_unknown_grids_are_obstacles() -> None:
    transformed = array_v3(storage_transformers=[{"name": "scramble"}])
    assert transformed.obstacle == "storage transformers ['scramble'] are unknown, and may change keys"
    assert array_v3(storage_transformers="scramble").obstacle is not None
    assert array_v3(storage_transformers=[]).obstacle is None
    grid = array_v3(chunk_grid={"name": "hexagons", "configuration": {}})
    assert grid.obstacle == "chunk grid 'hexagons' is unknown"
    remote = array_v3(chunk_grid={"name": "rectilinear", "configuration": {"kind": "remote"}})
    assert remote.obstacle == "chunk grid 'rectilinear' of kind 'remote' is unknown"


def test_an_object_is_the_shard_whatever_is_inside_it() -> None:
    inner = {"name": "sharding_indexed", "configuration": {"chunk_shape": [8, 2], "codecs": []}}
    nested = {"name": "sharding_indexed", "configuration": {"chunk_shape": [32, 2], "codecs": [inner]}}
    for codecs in ([nested], [{"name": "transpose"}, nested, {"name": "gzip"}], [{"name": "gzip"}, nested]):
        raw = RawArray("p", (640, 640), (64, 64), members={"codecs": codecs})
        layout = layout_of(raw)
        assert layout.sharded
        assert layout.grid == (10, 10)
        assert layout.object_bytes == 64 * 64 * 4


def test_a_rectilinear_grid_has_objects_of_a_mean_size() -> None:
    layout = layout_of(RawArray("p", (61, 4), edges=[[[10, 5], 11], [4]], dims=["time", "x"]))
    assert layout.rectilinear
    assert layout.grid == (6, 1)
    assert layout.object_bytes == -(-61 * 4 * 4 // 6)
    unknown = layout_of(RawArray("p", (61, 4), edges=[[61], [4]], dtype="string"))
    assert unknown.object_bytes is None
    empty = layout_of(RawArray("p", (0, 4), edges=[[10], [4]]))
    assert empty.object_bytes == 0


@pytest.mark.parametrize(
    "dtype", ["string", "bfloat16", {"name": "struct", "configuration": {"fields": []}}, "a/b", None]
)
def test_no_array_is_dropped_for_its_data_type(dtype: object) -> None:
    assert array_v3(data_type=dtype).grid == (40, 2)
    assert array_v2(dtype=[["a", "<f4"], ["b", "|O"]] if dtype is None else dtype).grid == (40, 2)


def test_dimensions_come_from_both_places() -> None:
    both = RawArray("t", (4, 4), (1, 4), ["time", None], attributes={"_ARRAY_DIMENSIONS": ["t", "x"]})
    assert layout_of(both).dimensions == ("time", "x")
    cell = RawArray("cell", (4,), (4,), ["values"], attributes={"_ARRAY_DIMENSIONS": ["cell"]})
    assert layout_of(cell).coordinate
    assert array_v3(attributes={"_ARRAY_DIMENSIONS": ["a", "b"]}, dimension_names=None).dimensions == ("a", "b")
    assert array_v3(attributes=None).dimensions == ("time", "lat")
    assert array_v3(attributes=[], dimension_names=["one"]).dimensions is None


def test_bare_nan_and_infinity_are_read() -> None:
    text = json.dumps(TAS._document_v3() | {"fill_value": float("nan"), "attributes": {"valid_max": float("inf")}})
    assert "NaN" in text
    assert "Infinity" in text
    assert isinstance(read_v3("tas", "tas", text.encode(), "zarr.json"), ArrayLayout)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff\xfe\xfa", b"[1]", b'"x"', b"null", b"[" * 200_000, b'{"a": ' * 200_000]
)
def test_what_is_no_document_is_named(data: bytes) -> None:
    with pytest.raises(DocumentError, match=r"^st/tas/zarr\.json: "):
        parse_document(data, "st/tas/zarr.json")


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"zarr_format": 2}, "zarr_format is 2, allowed: 3"),
        ({"node_type": "table"}, "node_type is 'table'"),
        ({"shape": None}, "shape is None"),
        ({"chunk_grid": None}, "chunk_grid is None"),
        ({"chunk_key_encoding": None}, "chunk_key_encoding is None"),
        ({"chunk_key_encoding": {"name": "default", "configuration": {"separator": "-"}}}, "separator '-'"),
        ({"chunk_grid": {"name": "regular"}}, "chunk_shape is None"),
    ],
)
def test_a_broken_v3_array_names_itself_and_the_member(members: dict[str, object], said: str) -> None:
    with pytest.raises(DocumentError, match=rf"^zarr\.json: .*{re.escape(said)}"):
        array_v3(**members)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"zarr_format": 3}, "zarr_format is 3, allowed: 2"),
        ({"dimension_separator": "-"}, "dimension_separator is '-'"),
        ({"chunks": None}, "chunks is None"),
        ({"chunks": [1]}, "chunk shape [1] has 1 axes"),
    ],
)
def test_a_broken_v2_array_names_itself_and_the_member(members: dict[str, object], said: str) -> None:
    with pytest.raises(DocumentError, match=rf"^\.zarray: .*{re.escape(said)}"):
        array_v2(**members)


def test_a_group_says_what_belongs_to_its_members() -> None:
    data = group_v3(
        {"coordinates": "mask", "multiscales": [{"axes": [{"name": "t", "type": "time"}]}]},
        consolidated_metadata={"metadata": {"a/tas": {"node_type": "array"}, "a": {"node_type": "group"}, "b": None}},
    )
    assert read_v3("g", "g", data, "zarr.json") == GroupLayout(
        "g", 3, (Reference("coordinates", "mask"),), ("t",), ("a/tas",)
    )
    zattrs = (json.dumps({"coordinates": "mask"}).encode(), ".zattrs")
    assert read_v2_group("g", zattrs=zattrs, members=("tas",)) == GroupLayout(
        "g", 2, (Reference("coordinates", "mask"),), (), ("tas",)
    )
    assert read_v2_group("g", zattrs=None) == GroupLayout("g", 2)


def test_consolidated_attributes_stand_in_where_an_array_has_none() -> None:
    metadata = {
        "zarr_consolidated_format": 1,
        "metadata": {
            ".zgroup": {"zarr_format": 2},
            "tas/.zarray": {},
            "tas/.zattrs": {"_ARRAY_DIMENSIONS": ["x", "y"]},
            "atm/pr/.zarray": {},
            "bad/.zattrs": None,
        },
    }
    found = read_consolidated(json.dumps(metadata).encode(), ".zmetadata")
    assert found.arrays == ("tas", "atm/pr")
    assert found.attributes["bad"] == {}
    zarray = layout_documents_v2()
    assert read_v2_array(
        "tas", "tas", zarray, ".zarray", zattrs=None, consolidated=found.attributes["tas"]
    ).dimensions == (
        "x",
        "y",
    )
    own = (b'{"_ARRAY_DIMENSIONS": ["a", "b"]}', ".zattrs")
    layout = read_v2_array("tas", "tas", zarray, ".zarray", zattrs=own, consolidated=found.attributes["tas"])
    assert layout.dimensions == ("a", "b")
    assert read_consolidated(b'{"metadata": 5}', ".zmetadata").arrays == ()


def layout_documents_v2() -> bytes:
    return RawArray("tas", (4, 4), (2, 2), format=2).documents()[".zarray"]


def test_two_formats_that_agree_are_one_array() -> None:
    v3 = layout_of(RawArray("t", (4, 4), (2, 2), keys="v2", separator="."))
    v2 = layout_of(RawArray("t", (4, 4), (2, 2), ["y", "x"], format=2, separator="."))
    settled = settle_formats(v3, v2)
    assert settled.zarr_format == 3
    assert settled.dimensions == ("y", "x")
    named = layout_of(RawArray("t", (4, 4), (2, 2), ["y", "x"], keys="v2", separator="."))
    assert settle_formats(named, v2) is named


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (RawArray("t", (8, 4), (2, 2), ["y", "x"], format=2, separator="."), "shape (4, 4) and (8, 4)"),
        (RawArray("t", (4, 4), (1, 2), ["y", "x"], format=2, separator="."), "grid of objects (2, 2) and (4, 2)"),
        (RawArray("t", (4, 4), (2, 2), ["y", "x"], format=2, separator="/"), "like '0.0' and like '0/0'"),
        (
            RawArray("t", (4, 4), (2, 2), ["lat", "x"], format=2, separator="."),
            "dimensions ('y', 'x') and ('lat', 'x')",
        ),
    ],
)
def test_two_formats_that_disagree_are_refused(other: RawArray, said: str) -> None:
    v3 = layout_of(RawArray("t", (4, 4), (2, 2), ["y", "x"], keys="v2", separator="."))
    with pytest.raises(DocumentError, match=re.escape(said)):
        settle_formats(v3, layout_of(other))


def test_keys_that_only_one_of_two_formats_can_spell_are_a_disagreement() -> None:
    fanout = layout_of(RawArray("t", (4, 4), (2, 2), members={"chunk_key_encoding": {"name": "fanout"}}))
    with pytest.raises(DocumentError, match=re.escape("chunk keys none and like '0.0'")):
        settle_formats(fanout, layout_of(RawArray("t", (4, 4), (2, 2), format=2, separator=".")))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from(sorted(TAS._document_v3())), json_values)
def test_any_member_may_be_nonsense_and_only_a_document_error_comes_of_it(member: str, value: object) -> None:
    for raw in (TAS, RawArray("atm/tas", (40, 8), (1, 4), format=2)):
        data = raw._document_v3() if raw.format == 3 else json.loads(raw.documents()[".zarray"])
        text = json.dumps({**data, member: value}).encode()
        with suppress(DocumentError):
            if raw.format == 3:
                read_v3("atm/tas", "tas", text, "zarr.json")
            else:
                read_v2_array("atm/tas", "tas", text, ".zarray", zattrs=None)
