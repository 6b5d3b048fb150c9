from __future__ import annotations

import json

import pytest

from blobmap.foreign import is_icechunk, is_reference_json, is_reference_parquet, kind_of_file


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("tas_Amon.nc", "netCDF or HDF5 files"),
        ("x.NC4", "netCDF or HDF5 files"),
        ("x.h5", "netCDF or HDF5 files"),
        ("x.grib2", "GRIB files"),
        ("x.GRB", "GRIB files"),
        ("st.zarr.zip", "zip archive"),
        ("README.md", "other objects"),
        ("nc", "other objects"),
    ],
)
def test_files_are_told_by_their_ending(name: str, kind: str) -> None:
    assert kind_of_file(name) == kind


@pytest.mark.parametrize(
    ("folders", "objects", "yes"),
    [
        (["refs", "snapshots", "manifests", "chunks"], ["config.yaml"], True),
        (["snapshots", "transactions"], ["repo"], True),
        (["snapshots"], [], False),
        (["refs", "chunks"], [], False),
    ],
)
def test_icechunk_is_told_by_its_folders(folders: list[str], objects: list[str], *, yes: bool) -> None:
    assert is_icechunk(folders, objects) is yes


def test_references_are_told_by_what_is_in_them() -> None:
    assert is_reference_json(json.dumps({"version": 1, "refs": {".zgroup": "{}"}}).encode())
    assert is_reference_json(json.dumps({".zgroup": "{}", "tas/0.0": ["u", 0, 5]}).encode())
    for data in (b"{}", b"[]", b'{"refs": 5}', b"{", b"[" * 100_000):
        assert not is_reference_json(data)
    assert is_reference_parquet(b'{"metadata": {}, "record_size": 10000}')
    for data in (b'{"metadata": {}}', b"[]", b"{"):
        assert not is_reference_parquet(data)
