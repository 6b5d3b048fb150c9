"""Faults that people met with other programs, by the identifiers of the collection of cases."""

from __future__ import annotations

import unicodedata

from blobmap.manifest import Blob, Bucket, Manifest
from blobmap.resolve import Trie


def answers(manifest: Manifest, *keys: str) -> list[str]:
    trie = Trie()
    trie.add(manifest)
    return [resolution.blob_id or resolution.kind for resolution in map(trie.lookup, keys)]


def test_z03_a_v3_array_with_dots_resolves() -> None:
    manifest = Manifest("s", 1, (), (Blob("b_air", ("air",), Bucket(1, 1, "v2_flat")),))
    assert answers(manifest, "s/air/c.0.0", "s/air/c.0.1", "s/air/c.1.0", "s/air/c.1.1") == [
        "b_air_0", "b_air_0", "b_air_1", "b_air_1",
    ]  # fmt: skip
    assert answers(manifest, "s/air/zarr.json", "s/air/c/0/0", "s/air/c/0.0") == ["hot", "unmanaged", "unmanaged"]


def test_z05_zero_dimensional_arrays_are_online() -> None:
    manifest = Manifest("s", 1, ("crs/**", "crs2/**"))
    assert answers(manifest, "s/crs/0", "s/crs2/c") == ["hot", "hot"]
    bucketed = Manifest("s", 1, (), (Blob("b_crs", ("crs2/c",), Bucket(0, 1, "v3_slash")),))
    assert answers(bucketed, "s/crs2/c") == ["unmanaged"]


def test_z07_a_prefix_covers_whole_segments() -> None:
    for prefix in ("t", "t/"):
        manifest = Manifest("s.zarr", 1, (), (Blob("b_t", (prefix,), Bucket(0, 1, "v2_flat")),))
        keys = ("s.zarr/t/0.0", "s.zarr/t2m/0.0", "s.zarr/t_bnds/0.0", "s.zarr/0/zarr.json", "s.zarr/0_c/zarr.json")
        assert answers(manifest, *keys) == ["b_t_0", "unmanaged", "unmanaged", "hot", "hot"]


def test_z12_no_chunk_of_a_coordinate_is_of_a_blob() -> None:
    manifest = Manifest("s", 1, ("time/**",), (Blob("b_all", ("",), None),))
    assert set(answers(manifest, *(f"s/time/{index}" for index in range(513)))) == {"hot"}


def test_z14_one_zoom_level_claims_nothing_of_another() -> None:
    manifest = Manifest("x", 1, (), (Blob("b_z1", ("P1D_healpix_1.zarr", "z1"), None),))
    keys = ("x/P1D_healpix_1.zarr/t/0", "x/P1D_healpix_10.zarr/t/0", "x/z1/t/0", "x/z10/t/0")
    assert answers(manifest, *keys) == ["b_z1_0", "unmanaged", "b_z1_0", "unmanaged"]


def test_z18_a_chunk_that_is_not_stored_resolves() -> None:
    manifest = Manifest("s", 1, (), (Blob("b_v", ("v",), Bucket(0, 5, "v2_flat")),))
    assert answers(manifest, "s/v/0.0", "s/v/4.7", "s/v/5.0", "s/v/9.9") == ["b_v_0", "b_v_0", "b_v_1", "b_v_1"]


def test_z19_the_longest_array_path_wins() -> None:
    levels = [Blob(f"b_{level}", (f"{level}",), Bucket(0, 1, "v2_slash")) for level in range(3)]
    labels = Blob("b_labels__nuclei__0", ("labels/nuclei/0",), Bucket(0, 1, "v2_slash"))
    manifest = Manifest("img.zarr", 1, (), (*levels, labels))
    keys = ("img.zarr/0/0/0/0/0/0", "img.zarr/1/0/0/0/0/0", "img.zarr/labels/nuclei/0/3/0/0/0/0")
    assert answers(manifest, *keys) == ["b_0_0", "b_1_0", "b_labels__nuclei__0_3"]
    assert answers(manifest, "img.zarr/.zattrs", "img.zarr/labels/.zattrs", "img.zarr/0/.zattrs") == ["hot"] * 3


def test_z22_names_are_compared_as_they_are() -> None:
    composed, decomposed = unicodedata.normalize("NFC", "ü"), unicodedata.normalize("NFD", "ü")
    names = ["a+b", "a b", "with space", "100%", "100%25", "hash#x", composed, decomposed, "[v0]", "(°C)"]
    for scope in ("test[v0-None].zarr", "Ocean Temp (°C).zarr"):
        manifest = Manifest(
            scope, 1, (), tuple(Blob(f"b_{number}", (name,), None) for number, name in enumerate(names))
        )
        assert answers(manifest, *(f"{scope}/{name}/0" for name in names)) == [
            f"b_{number}_0" for number in range(len(names))
        ]
        assert (
            answers(manifest, f"{scope}/a%2Bb/0", f"{scope}/100%2525/0", f"{scope}/with+space/0") == ["unmanaged"] * 3
        )


def test_z25_a_blob_counts_stored_objects() -> None:
    manifest = Manifest("s", 1, (), (Blob("b_p", ("p/c",), Bucket(0, 5, "v3_slash")),))
    keys = [f"s/p/c/{row}/{column}" for row in range(10) for column in range(10)]
    assert sorted(set(answers(manifest, *keys))) == ["b_p_0", "b_p_1"]


def test_o09_a_directory_marker_is_nobodys() -> None:
    manifest = Manifest("st.zarr", 1, (), (Blob("b_t", ("t/c",), Bucket(0, 1, "v3_slash")), Blob("b_all", ("",), None)))
    assert answers(manifest, "st.zarr/", "st.zarr/t/", "st.zarr/t/c/") == ["unmanaged"] * 3


def test_t06_metadata_is_never_archivable() -> None:
    manifest = Manifest("st.zarr", 1, (), (Blob("b_all", ("",), None), Blob("b_t", ("t",), None)))
    names = (".zarray", ".zattrs", ".zgroup", ".zmetadata", "zarr.json")
    assert (
        answers(manifest, *(f"st.zarr/{path}{name}" for path in ("", "t/", "t/c/1/") for name in names)) == ["hot"] * 15
    )
