from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.command_line import SCOPE, SMALL, CommandLine, small_bucket
from tests.support.stores import RawArray

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def blobmap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """One store that is cut and has grown by an array since, one that is new, and something else."""
    line = small_bucket(capsys, tmp_path)
    line("partition", SCOPE, *SMALL)
    line.fill(SCOPE, [RawArray("pr", (40,), (1,), ["time"], nbytes=32)])
    line.fill("b/new.zarr", [RawArray("tas", (40,), (1,), ["x"], nbytes=32)])
    (line.data / "raw").mkdir()
    (line.data / "raw/x.nc").write_bytes(b"12345")
    return line


def test_every_store_is_listed(blobmap: CommandLine) -> None:
    answer = blobmap("scan")
    assert (answer.code, answer.err) == (0, "")
    assert answer.lines == [
        "scope       manifest  arrays  unclaimed arrays",
        "a/st.zarr   epoch 1        3  pr",
        "b/new.zarr  NEW            1  tas",
        "no store: netCDF or HDF5 files in 'raw', 1 object, 5 B",
        "2 stores: 1 new, 1 with a manifest and unclaimed arrays",
    ]
    found = blobmap("scan", "--json").json
    assert [(store["scope"], store["epoch"], store["is_new"]) for store in found["stores"]] == [
        (SCOPE, 1, False),
        ("b/new.zarr", None, True),
    ]
    assert found["foreign"] == [{"prefix": "raw", "kind": "netCDF or HDF5 files", "objects": 1, "bytes": 5}]
    assert (found["partitioned"], found["problems"]) == ([], [])


def test_a_prefix_narrows_the_scan_and_a_wrong_one_is_told(blobmap: CommandLine) -> None:
    assert blobmap("scan", "b/").lines[-1] == "1 store: 1 new, 0 with a manifest and unclaimed arrays"
    answer = blobmap("scan", "c")
    assert (answer.code, answer.out) == (5, "")
    assert "nothing is stored below 'c'" in answer.err


def test_a_store_within_the_claims_of_another_is_not_new(blobmap: CommandLine) -> None:
    blobmap.fill("a/st.zarr/inner.zarr", [RawArray("tas", (40,), (1,), ["x"], nbytes=32)])
    assert "inside 'a/st.zarr': a/st.zarr/inner.zarr" in blobmap("scan", "a").lines
    blobmap("partition", SCOPE)
    assert blobmap("scan", "a/st.zarr/inner.zarr").lines[1].split() == [
        "a/st.zarr/inner.zarr",
        "that",
        "of",
        "'a/st.zarr'",
        "1",
        "-",
    ]


def test_what_is_not_cut_is_cut(blobmap: CommandLine) -> None:
    dry = blobmap("scan", "--partition", "--dry-run")
    assert dry.lines[4:6] == ["would cut: 'a/st.zarr', epoch 2: b_pr", "would cut: 'b/new.zarr', epoch 1: no new rules"]
    assert sorted(blobmap.manifests.scopes()) == [SCOPE]
    answer = blobmap("scan", "--partition")
    assert answer.lines[4:6] == ["cut: 'a/st.zarr', epoch 2: b_pr", "cut: 'b/new.zarr', epoch 1: no new rules"]
    assert answer.code == 0
    assert blobmap("scan", "--partition", "--json").json["partitioned"] == []
    assert blobmap("scan").lines[-1] == "2 stores: 0 new, 0 with a manifest and unclaimed arrays"


def test_a_store_that_cannot_be_cut_keeps_no_other_from_it(blobmap: CommandLine) -> None:
    (blobmap.manifest_root / "b/new.zarr").mkdir(parents=True)
    (blobmap.manifest_root / "b/new.zarr/manifest.json").write_text("{")
    answer = blobmap("scan", "--partition")
    assert answer.code == 5
    assert answer.lines[4] == "cut: 'a/st.zarr', epoch 2: b_pr"
    assert answer.lines[5].startswith("not cut: 'b/new.zarr': ")
    assert "b/new.zarr/manifest.json" in answer.err


def test_a_broken_document_is_exit_5(blobmap: CommandLine) -> None:
    (blobmap.data / "b/new.zarr/tas/zarr.json").write_text("{")
    answer = blobmap("scan")
    assert (answer.code, answer.lines[-1]) == (5, "2 stores: 1 new, 1 with a manifest and unclaimed arrays")
    assert "b/new.zarr/tas/zarr.json" in answer.err
