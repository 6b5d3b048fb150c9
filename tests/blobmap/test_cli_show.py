from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blobmap.manifest import Blob, Bucket, Manifest, Pin
from tests.support.command_line import SCOPE, SMALL, CommandLine, small_bucket

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def blobmap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    line = small_bucket(capsys, tmp_path)
    line("partition", SCOPE, *SMALL)
    return line


def test_all_scopes_are_listed(blobmap: CommandLine) -> None:
    blobmap.manifests.write(Manifest("", 7, (), (Blob("b", ("x",), None),), (Pin("y", "z"),)), etag=None)
    answer = blobmap("show")
    assert (answer.code, answer.err) == (0, "")
    assert [line.split()[:5] for line in answer.lines] == [
        ["scope", "epoch", "rules", "hot", "pins"],
        ['""', "7", "1", "0", "1"],
        [SCOPE, "1", "1", "6", "0"],
    ]
    rows = blobmap("show", "--json").json["scopes"]
    assert [(row["scope"], row["epoch"], row["pins"]) for row in rows] == [("", 7, 1), (SCOPE, 1, 0)]


def test_no_scopes_is_no_error(blobmap: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    answer = blobmap.bare("--manifests", str(tmp_path / "empty"), "show")
    assert answer == (0, "", "blobmap: no manifests here yet\n")


def test_a_broken_manifest_is_named(blobmap: CommandLine) -> None:
    (blobmap.manifest_root / "manifest.json").write_text("{")
    answer = blobmap("show")
    assert (answer.code, len(answer.lines)) == (5, 2)
    assert "manifest.json" in answer.err
    assert blobmap("show", "").code == 5
    assert blobmap("show", "b.zarr").code == 5


def test_one_manifest_is_told_in_words(blobmap: CommandLine) -> None:
    rules = (
        Blob("b_t", ("t/c",), Bucket(1, 20, "v3_slash")),
        Blob("b_u", ("u", "v"), Bucket(0, 1, "v2_flat")),
        Blob("b_far", ("w",), Bucket(9, 2, "v2_slash")),
        Blob("b_rest", ("",), None),
    )
    hot = ("**/zarr.json", "time/**")
    pins = (Pin("t", "why not", by="somebody", until="2026-12-01"), Pin("", "all"))
    policy = {"t_max_bytes": 2**30, "width_clamp": 8}
    manifest = Manifest("b", 3, hot, rules, pins, policy, "2026-01-01T00:00:00+00:00", "a program")
    blobmap.manifests.write(manifest, etag=None)
    assert blobmap("show", "b/").lines == [
        "scope 'b', epoch 3, written 2026-01-01T00:00:00+00:00 by a program",
        "cut with t_max_bytes 1.0 GiB, width_clamp 8",
        "4 rules:",
        "  't/c', then <0>/<n> -> b_t_{n // 20}, 20 indices a blob",
        "  'u', 'v', then <n> -> b_u_{n // 1}, one index a blob",
        "  'w', then .../<n> -> b_far_{n // 2}, 2 indices a blob",
        "  the whole scope -> b_rest_0, all of it",
        "always on disk:",
        "  every object called zarr.json",
        "  'time'",
        "pinned: 't' by somebody, until 2026-12-01: why not",
        "pinned: the whole scope, until further notice: all",
    ]
    assert blobmap("show", "b", "--json").json["blobs"][0]["bucket"]["width"] == 20
    blobmap.manifests.write(Manifest("c", 1), etag=None)
    assert blobmap("show", "c").lines == ["scope 'c', epoch 1", "0 rules: nothing is archivable", "always on disk:"]


def test_the_schema_is_what_is_shipped(blobmap: CommandLine) -> None:
    assert blobmap.bare("schema").json["$id"].endswith("manifest-v3.schema.json")
