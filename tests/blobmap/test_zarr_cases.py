"""Faults that people met with other programs, by the number of the case: what was put in, and what is right here."""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING, Any

import pytest
from obstore.store import MemoryStore

from blobmap import ManifestStore, Policy, Trie, partition_store
from blobmap.errors import ManifestError, RefusedError
from blobmap.manifest import Blob, Bucket, Manifest
from blobmap.storage import Storage, open_storage
from blobmap.verify import verify_manifests
from tests.support.backends import small_options
from tests.support.measured import MIB, decide, measured
from tests.support.stores import RawArray, chunk_keys, group_v3, put_all, store_objects

if TYPE_CHECKING:
    from blobmap.decisions import Decision
    from blobmap.service import Outcome
    from tests.support.small_s3 import SmallS3

ALL = Policy(t_max_bytes=10_000, t_hot_bytes=1)


def cut(
    objects: dict[str, bytes], scope: str = "s.zarr", policy: Policy = ALL, manifests: ManifestStore | None = None
) -> tuple[Outcome, dict[str, str]]:
    """Partition a store; the outcome, and the answer for every object of it."""
    data = MemoryStore()
    put_all(data, objects)
    kept = manifests or ManifestStore(MemoryStore())
    outcome = partition_store(data, kept, scope, policy=policy)
    trie = Trie()
    trie.add_all(kept.load_all())
    return outcome, {key: found.blob_id or found.kind for key in objects for found in [trie.lookup(key)]}


def rows(outcome: Outcome) -> dict[str, Decision]:
    return {row.path: row for row in outcome.decisions}


def lookup(outcome: Outcome, key: str) -> str:
    trie = Trie()
    trie.add(outcome.manifest)
    found = trie.lookup(key)
    return found.blob_id or found.kind


def test_z01_objects_decide_about_an_undeclared_separator() -> None:
    raw = RawArray("", (10, 100, 100), (1, 100, 100), format=2, separator=None)
    objects = {"foo.zarr/.zarray": raw.documents()[".zarray"], **{f"foo.zarr/{i}/0/0": b"1234" for i in range(10)}}
    outcome, answers = cut(objects, "foo.zarr")
    assert answers["foo.zarr/7/0/0"].startswith("b_store___")
    assert (outcome.decisions[0].objects, outcome.decisions[0].stored_bytes) == (10, 40)
    assert any("declares objects like '0.0.0' and has 10 like" in line for line in outcome.warnings)


def test_z03_a_dot_after_the_c_is_no_folder() -> None:
    air = RawArray("air", (4, 4), (2, 2), separator=".")
    outcome, answers = cut(store_objects("s.zarr", [air]), policy=Policy(t_max_bytes=8, t_hot_bytes=1))
    assert [answers[f"s.zarr/air/c.{i}.{j}"] for i in (0, 1) for j in (0, 1)] == [
        "b_air_0",
        "b_air_0",
        "b_air_1",
        "b_air_1",
    ]
    assert lookup(outcome, "s.zarr/air/c/0/0") == "unmanaged"
    assert answers["s.zarr/air/zarr.json"] == "hot"


def test_z05_zero_dimensional_arrays_are_kept_online_as_their_own_class() -> None:
    objects = {
        **store_objects("s.zarr", [RawArray("crs2", (), ())]),
        **store_objects("s.zarr", [RawArray("crs", (), (), format=2)]),
    }
    outcome, answers = cut(objects)
    assert {answers["s.zarr/crs/0"], answers["s.zarr/crs2/c"]} == {"hot"}
    assert {row.role for row in outcome.decisions} == {"scalar"}


def test_z05_a_rule_of_others_for_a_zero_dimensional_array_is_named() -> None:
    data = MemoryStore()
    put_all(data, store_objects("s.zarr", [RawArray("crs2", (), ())]))
    put_all(data, store_objects("s.zarr", [RawArray("crs", (), (), format=2)]))
    manifests = ManifestStore(MemoryStore())
    rules = (
        Blob("b_crs", ("crs",), Bucket(0, 1, "v2_flat")),
        Blob("b_crs2", ("crs2",), Bucket(0, 1, "v3_slash")),
    )
    manifests.write(Manifest("s.zarr", 1, (), rules), etag=None)
    found = {finding.subject: finding for finding in verify_manifests(Storage(data), manifests).findings}
    assert found["b_crs"].kind == "claims coordinate"
    assert "needed to open the store" in found["b_crs"].text
    assert found["b_crs2"].kind == "misfit"
    assert "fits none of the 1 objects" in found["b_crs2"].text


def test_z07_a_neighbour_whose_name_starts_the_same_is_not_taken_in() -> None:
    names = ["t", "t2m", "t_bnds", "0/x", "0_c/x"]
    objects = store_objects("s.zarr", [RawArray(name, (4, 4), (1, 4), format=2, separator=".") for name in names])
    data = MemoryStore()
    put_all(data, objects)
    for prefix in ("t", "t/"):
        manifests = ManifestStore(MemoryStore())
        rule = Blob("b_t", (prefix,), Bucket(0, 4, "v2_flat"))
        manifests.write(Manifest("s.zarr", 1, blobs=(rule,)), etag=None)
        outcome = partition_store(data, manifests, "s.zarr", policy=ALL, dry_run=True)
        assert rows(outcome)["t"].verdict == "kept"
        assert {rows(outcome)[name].verdict for name in names[1:]} == {"cut"}
        trie = Trie()
        trie.add_all(manifests.load_all())
        assert trie.lookup("s.zarr/t/0.0").blob_id == "b_t_0"
        assert trie.lookup("s.zarr/t2m/0.0").kind == "unmanaged"


def test_z10_arrays_without_dimension_names_do_not_end_it() -> None:
    objects = {
        **store_objects("s.zarr/a", [RawArray("bar", (3, 5), (1, 5), format=2)]),
        **store_objects("s.zarr/b", [RawArray("v", (3, 5), (1, 5))], groups={"": {"spatial:dimensions": ["y", "x"]}}),
        **store_objects("s.zarr/c", [RawArray("v", (3, 5), (1, 5), ["time", None])]),
        "s.zarr/zarr.json": group_v3(),
    }
    outcome, answers = cut(objects)
    assert {answers[key] for key in ("s.zarr/a/bar/2/0", "s.zarr/b/v/c/2/0", "s.zarr/c/v/c/2/0")} == {
        "b_a__bar_0",
        "b_b__v_0",
        "b_c__v_0",
    }
    assert outcome.warnings == (
        "dimension names unknown in 'a/bar', 'b/v', 'c/v': coordinates cannot be told apart there",
    )
    assert rows(outcome)["c/v"].reason.startswith("axis 0 (time): grows; ")


def test_z12_a_coordinate_in_hundreds_of_objects_never_becomes_a_blob() -> None:
    arrays = [
        RawArray("time", (15_341,), (30,), ["time"], format=2, separator="."),
        RawArray("tmax", (15_341, 4), (30, 4), ["time", "x"], format=2, separator="."),
    ]
    outcome, answers = cut(store_objects("s.zarr", arrays))
    time = chunk_keys("s.zarr", arrays[0])
    assert len(time) == 512
    assert {answers[key] for key in time} == {"hot"}
    assert lookup(outcome, "s.zarr/time/512") == "hot"
    assert (rows(outcome)["time"].objects, rows(outcome)["time"].stored_bytes) == (512, 2048)


@pytest.mark.parametrize("names", [("P1D_healpix_1", "P1D_healpix_10"), ("z1", "z10")])
def test_z14_zoom_levels_do_not_mix(names: tuple[str, str]) -> None:
    arrays = [
        array
        for name in names
        for array in (
            RawArray(f"{name}/tas", (4, 48), (1, 48), ["time", "cell"]),
            RawArray(f"{name}/crs", (), (), attributes={"healpix_nside": 2}),
        )
    ]
    outcome, answers = cut(store_objects("x", arrays), "x")
    blobs = [{answers[key] for key in chunk_keys("x", array)} for array in arrays]
    assert blobs[1] == blobs[3] == {"hot"}
    assert blobs[0].isdisjoint(blobs[2])
    assert outcome.warnings == ()
    alone, _ = cut(store_objects(f"x/{names[0]}.zarr", arrays[:1]), f"x/{names[0]}.zarr")
    assert lookup(alone, f"x/{names[1]}.zarr/tas/c/0/0") == "unmanaged"


def test_z15_bare_nan_is_read_and_never_written() -> None:
    raw = RawArray("v", (4, 4), (1, 4), ["time", "x"], format=2, attributes={"src_path": float("nan")})
    raw.members = {"fill_value": float("nan")}
    three = RawArray("w", (4, 4), (1, 4), ["time", "x"], attributes={"valid_max": float("inf")})
    objects = {**store_objects("s.zarr", [raw]), **store_objects("s.zarr", [three])}
    metadata = {"metadata": {"v/.zarray": {"fill_value": float("nan")}, "v/.zattrs": {"valid_max": float("-inf")}}}
    objects["s.zarr/.zmetadata"] = json.dumps(metadata).encode()
    members = {"metadata": {"w": {"node_type": "array", "fill_value": float("nan")}}}
    objects["s.zarr/zarr.json"] = group_v3(consolidated_metadata=members)
    assert b"NaN" in objects["s.zarr/zarr.json"]
    store = MemoryStore()
    outcome, _ = cut(objects, manifests=ManifestStore(store))
    assert {row.verdict for row in outcome.decisions} == {"cut"}
    assert outcome.problems == ()
    written = bytes(store.get("s.zarr/manifest.json").bytes())
    json.loads(written, parse_constant=lambda _: pytest.fail("no JSON"))
    objects["s.zarr/v/.zarray"] = objects["s.zarr/v/.zarray"][:-5]
    truncated, _ = cut(objects)
    assert truncated.problems[0].startswith("s.zarr/v/.zarray: ")
    assert list(rows(truncated)) == ["w"]


def test_z18_missing_chunks_are_reported_and_any_key_in_the_grid_resolves() -> None:
    present = [(0, 0), (4, 7), (9, 9)]
    raw = RawArray("v", (100, 100), (10, 10), format=2, separator=".", present=present)
    outcome, _ = cut(store_objects("s.zarr", [raw]))
    row = rows(outcome)["v"]
    assert (row.objects, row.grid_objects, row.stored_bytes) == (3, 100, 12)
    assert lookup(outcome, "s.zarr/v/5.5").startswith("b_v_")


def test_z19_a_pyramid_level_is_an_array_and_no_chunk_index() -> None:
    shape, chunks = (1, 1, 1, 4, 4), (1, 1, 1, 2, 2)
    levels = [RawArray(str(n), shape, chunks, format=2) for n in range(3)]
    labels = RawArray("labels/nuclei/0", shape, chunks, format=2)
    objects = store_objects("img.zarr", [*levels, labels], groups={"": {"multiscales": [{"version": "0.4"}]}})
    outcome, answers = cut(objects, "img.zarr")
    assert answers["img.zarr/1/0/0/0/0/0"] == "b_1_0"
    assert answers["img.zarr/labels/nuclei/0/0/0/0/0/0"] == "b_labels__nuclei__0_0"
    assert sorted(rows(outcome)) == ["0", "1", "2", "labels/nuclei/0"]
    assert answers["img.zarr/.zattrs"] == "hot"


@pytest.mark.parametrize("scope", ["test[v0-None].zarr", "Ocean Temp (°C).zarr"])
def test_z22_names_are_compared_byte_for_byte(scope: str) -> None:
    composed, decomposed = (unicodedata.normalize(form, "ü") for form in ("NFC", "NFD"))
    names = ["a+b", "with space", "100%", "100%25", "hash#x", composed, decomposed]
    arrays = [RawArray(name, (4, 4), (1, 4)) for name in names]
    outcome, answers = cut(store_objects(scope, arrays), scope)
    ids = [{answers[key] for key in chunk_keys(scope, array)} for array in arrays]
    assert all(len(found) == 1 and next(iter(found)).startswith("b_") for found in ids)
    assert len(set.union(*ids)) == len(names)
    assert set(rows(outcome)) == set(names)


def test_z24_auxiliary_coordinates_stay_online_and_a_missing_one_is_said() -> None:
    arrays = [
        RawArray(
            "temp",
            (4, 4, 4),
            (1, 4, 4),
            ["ocean_time", "eta_rho", "xi_rho"],
            format=2,
            attributes={"coordinates": "lat_rho lon_rho gone"},
        ),
        *(RawArray(f"{name}_rho", (4, 4), (4, 4), ["eta_rho", "xi_rho"], format=2) for name in ("lat", "lon", "mask")),
    ]
    objects = store_objects("s.zarr", arrays, groups={"": {"coordinates": "mask_rho"}})
    outcome, answers = cut(objects)
    assert {rows(outcome)[name].role for name in ("lat_rho", "lon_rho", "mask_rho")} == {"auxiliary coordinate"}
    assert {answers[key] for array in arrays[1:] for key in chunk_keys("s.zarr", array)} == {"hot"}
    assert outcome.warnings == ("'coordinates' of 'temp' names 'gone', which is no array here",)


def sharded(codecs: list[Any]) -> RawArray:
    return RawArray("p", (640, 640), (64, 64), dtype="int8", members={"codecs": codecs})


INNER = {"name": "sharding_indexed", "configuration": {"chunk_shape": [32, 2], "codecs": ["bytes"]}}
NESTED = {"name": "sharding_indexed", "configuration": {"chunk_shape": [64, 32], "codecs": [INNER]}}


@pytest.mark.parametrize("codecs", [[INNER], ["gzip", INNER], [NESTED], ["transpose", NESTED, "crc32c"]])
def test_z25_shards_are_the_objects(codecs: list[Any]) -> None:
    # A shard of 4 KiB is taken as an eighth of that at least: five slabs of ten shards make 25 600 bytes.
    outcome, answers = cut(store_objects("s.zarr", [sharded(codecs)]), policy=Policy(t_max_bytes=25_600, t_hot_bytes=1))
    row = rows(outcome)["p"]
    assert (row.objects, row.grid_objects, row.sharded, row.mean_object_bytes) == (100, 100, True, 4.0)
    assert row.blobs is not None
    assert (row.blobs.width, row.blobs.first, row.blobs.last) == (5, 0, 1)
    assert {answers[f"s.zarr/p/c/{i}/{j}"] for i in range(5) for j in range(10)} == {"b_p_0"}
    assert "shards" in row.reason


def test_t01_small_chunks_are_put_together_to_the_target() -> None:
    array = measured(RawArray("v", (10_000, 1), (1, 1), ["time", "x"], dtype="string"), 4_000_000)
    row = decide(array, policy=Policy(t_max_bytes=20 * 10**9))["v"]
    assert row.blobs is not None
    assert row.blobs.width is not None
    assert row.blobs.width >= 2500
    assert 10 * 10**9 <= row.blobs.blob_bytes <= 200 * 10**9
    assert (row.blobs.first, row.blobs.last) == (0, 2)


def test_t06_metadata_is_hot_under_any_rule_and_we_never_write_one_over_a_coordinate() -> None:
    for prefix, name in (("", "whole"), ("t/", "array"), ("t", "array")):
        foreign = Manifest("st.zarr", 1, blobs=(Blob(name, (prefix,), None),))
        store = MemoryStore()
        manifests = ManifestStore(store)
        manifests.write(foreign, etag=None)
        arrays = [RawArray("t", (9, 4), (1, 4), ["time", "x"]), RawArray("time", (9,), (1,), ["time"])]
        objects = {**store_objects("st.zarr", arrays), "st.zarr/t/.zattrs": b"{}"}
        outcome, answers = cut(objects, "st.zarr", manifests=manifests)
        assert {answers[key] for key in objects if key.rpartition("/")[2] in ("zarr.json", ".zattrs")} == {"hot"}
        assert {answers[key] for key in chunk_keys("st.zarr", arrays[1])} == {"hot"}
        assert {answers[key] for key in chunk_keys("st.zarr", arrays[0])} == {f"{name}_0"}
        assert outcome.manifest.blobs == foreign.blobs


def test_t12_time_is_cut_and_not_the_level_and_the_table_says_why() -> None:
    array = measured(
        RawArray("v", (8760, 90, 10**6), (1, 1, 10**6), ["time", "level", "cell"], dtype="string"), 4 * MIB
    )
    row = decide(array)["v"]
    assert row.blobs is not None
    assert (row.blobs.axis, row.blobs.width) == (0, 256)
    assert row.reason == "axis 0 (time): grows; 256 x 90 objects of 4.0 MiB make 90.0 GiB"


def test_t15_a_document_is_read_whatever_its_storage_class_and_the_answer_decides(small_s3: SmallS3) -> None:
    small_s3.objects.update(store_objects("s.zarr", [RawArray("tas", (4,), (1,), ["time"], nbytes=9)]))
    data = open_storage(f"s3://{small_s3.bucket}", small_options(small_s3))
    restored = 'ongoing-request="false", expiry-date="Fri, 21 Dec 2100 00:00:00 GMT"'
    small_s3.cold = dict.fromkeys(small_s3.objects, restored)
    outcome = partition_store(data, ManifestStore(MemoryStore()), "s.zarr", policy=ALL)
    assert rows(outcome)["tas"].stored_bytes == 36
    assert lookup(outcome, "s.zarr/tas/c/3") == "b_tas_0"
    for said in ("", 'ongoing-request="true"'):
        small_s3.cold["s.zarr/tas/zarr.json"] = said
        with pytest.raises(RefusedError, match="InvalidObjectState"):
            partition_store(data, ManifestStore(MemoryStore()), "s.zarr", policy=ALL)


def test_a_manifest_that_is_none_is_never_written_over() -> None:
    store = MemoryStore()
    store.put("s.zarr/manifest.json", b"{")
    with pytest.raises(ManifestError, match=r"s\.zarr/manifest\.json"):
        cut(store_objects("s.zarr", [RawArray("v", (4, 4), (1, 4))]), manifests=ManifestStore(store))
    assert bytes(store.get("s.zarr/manifest.json").bytes()) == b"{"
