from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blobmap.manifest import Blob, Manifest
from tests.support.command_line import SCOPE, SMALL, CommandLine, small_bucket

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def blobmap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    line = small_bucket(capsys, tmp_path)
    line("partition", SCOPE, *SMALL)
    return line


def test_nothing_found_is_exit_0(blobmap: CommandLine) -> None:
    assert blobmap("verify") == (0, "1 manifest, 0 findings\n", "")
    assert blobmap("verify", SCOPE, "--json").json == {"scopes": [SCOPE], "findings": [], "problems": []}


def test_findings_are_exit_1(blobmap: CommandLine) -> None:
    blobmap.manifests.write(Manifest("b", 1, (), (Blob("b_x", ("x",), None),)), etag=None)
    answer = blobmap("verify")
    assert (answer.code, answer.err) == (1, "")
    assert answer.lines == [
        "scope  finding         what",
        "b      nothing stored  nothing is stored below 'b': was the store removed or renamed?",
        "2 manifests, 1 finding",
    ]
    assert blobmap("verify", SCOPE).code == 0
    (finding,) = blobmap("verify", "b/", "--json").json["findings"]
    assert (finding["scope"], finding["kind"], finding["subject"]) == ("b", "nothing stored", "")


def test_a_broken_manifest_is_a_finding_too(blobmap: CommandLine) -> None:
    (blobmap.manifest_root / "manifest.json").write_text("{")
    answer = blobmap("verify")
    assert answer.code == 1
    assert answer.lines[1].split()[:2] == ['""', "unreadable"]


def test_no_such_scope_is_exit_5(blobmap: CommandLine) -> None:
    answer = blobmap("verify", "c")
    assert (answer.code, answer.out) == (5, "")
    assert "scope 'c' has no manifest" in answer.err


def test_what_cannot_be_listed_is_exit_5(blobmap: CommandLine) -> None:
    (blobmap.data / SCOPE / "link").symlink_to(blobmap.data.parent)
    answer = blobmap("verify")
    assert answer.code == 5
    assert "'a/st.zarr/link' could not be listed, and is not verified" in answer.err
