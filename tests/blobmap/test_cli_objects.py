from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.command_line import SCOPE, SMALL, CommandLine, small_bucket

if TYPE_CHECKING:
    from collections.abc import Iterable

COMMAND = str(Path(sys.executable).with_name("blobmap"))
MEMBERS = sorted(f"a/st.zarr/tas/c/{index}/{part}/0" for index in range(20, 40) for part in range(2))


@pytest.fixture
def blobmap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    line = small_bucket(capsys, tmp_path)
    line("partition", SCOPE, *SMALL)
    return line


def test_the_objects_of_a_blob_are_listed(blobmap: CommandLine) -> None:
    answer = blobmap("objects", SCOPE, "b_tas_1")
    assert (answer.code, answer.err) == (0, "")
    assert sorted(answer.lines) == MEMBERS


def test_what_objects_lists_resolves_to_the_blob(blobmap: CommandLine) -> None:
    listed = subprocess.run(
        [COMMAND, *blobmap.roots, "objects", SCOPE, "b_tas_1", "-0"], capture_output=True, check=True, timeout=60
    ).stdout
    assert sorted(listed.decode().split("\0")) == ["", *MEMBERS]
    resolved = subprocess.run(
        [COMMAND, *blobmap.roots, "resolve", "-", "--summary", "--json"],
        input=listed,
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert json.loads(resolved.stdout)["blobs"] == [{"scope": SCOPE, "blob_id": "b_tas_1", "keys": 40}]


def test_objects_are_counted(blobmap: CommandLine) -> None:
    assert blobmap("objects", SCOPE + "/", "b_tas_1", "--count").out == "40 objects, 1.2 KiB\n"
    assert blobmap("objects", SCOPE, "b_tas_1", "--count", "--json").json == {
        "scope": SCOPE,
        "blob_id": "b_tas_1",
        "objects": 40,
        "bytes": 1280,
    }


def test_objects_in_json_have_sizes_and_etags(blobmap: CommandLine) -> None:
    rows = [json.loads(line) for line in blobmap("objects", SCOPE, "b_tas_1", "--json").lines]
    assert sorted(row["key"] for row in rows) == MEMBERS
    assert {row["bytes"] for row in rows} == {32}
    assert all(row["etag"] and row["last_modified"].endswith("+00:00") for row in rows)


def test_people_see_sizes(blobmap: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blobmap.cli.objects.is_terminal", lambda _: True)
    lines = blobmap("objects", SCOPE, "b_tas_1").lines
    assert min(line.split(maxsplit=2) for line in lines) == ["32", "B", MEMBERS[0]]


def test_a_blob_of_which_nothing_is_stored_is_no_error(blobmap: CommandLine) -> None:
    assert blobmap("objects", SCOPE, "b_tas_99") == (0, "", "blobmap: nothing is stored of this blob\n")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((SCOPE, "b_pr_0"), 5, "no rule of 'a/st.zarr' makes a blob 'b_pr_0': its rules are b_tas"),
        (("b.zarr", "b_tas_0"), 5, "scope 'b.zarr' has no manifest"),
        (("a/../b", "b_tas_0"), 2, "scope 'a/../b' is no key"),
        ((SCOPE, "b_tas_0", "-0", "--json"), 2, "-0 lists keys"),
        ((SCOPE, "b_tas_0", "-0", "--count"), 2, "-0 lists keys"),
    ],
)
def test_what_cannot_be_listed_is_one_line(blobmap: CommandLine, words: Iterable[str], code: int, said: str) -> None:
    answer = blobmap("objects", *words)
    assert (answer.code, answer.out) == (code, "")
    assert said in answer.err
    assert answer.err.count("\n") == 1


def test_a_newline_in_a_key_is_told_where_lines_are_keys(blobmap: CommandLine) -> None:
    (blobmap.data / "a/whole").mkdir()
    (blobmap.data / "a/whole/new\nline").write_bytes(b"x")
    (blobmap.manifest_root / "a/whole").mkdir()
    manifest = {
        "schema_version": 3,
        "scope": "a/whole",
        "epoch": 1,
        "hot_always": [],
        "blobs": [{"id": "b", "prefixes": [""], "bucket": None}],
    }
    (blobmap.manifest_root / "a/whole/manifest.json").write_text(json.dumps(manifest))
    listed = blobmap("objects", "a/whole", "b_0")
    assert listed == (
        0,
        "a/whole/new\nline\n",
        "blobmap: a newline is part of 1 key, so lines are not keys here: give -0\n",
    )
    assert blobmap("objects", "a/whole", "b_0", "-0") == (0, "a/whole/new\nline\0", "")
