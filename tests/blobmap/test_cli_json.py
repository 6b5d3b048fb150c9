"""Every answer in JSON has the shape that the docs give."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from blobmap.cli import COMMANDS
from blobmap.manifest import Blob, Manifest, Pin
from tests.support.command_line import SCOPE, SMALL, CommandLine, small_bucket
from tests.support.stores import RawArray

if TYPE_CHECKING:
    from collections.abc import Sequence

DOCS = Path(__file__).parents[2] / "docs"
SCHEMAS = {path.name.removesuffix(".schema.json"): json.loads(path.read_text()) for path in DOCS.glob("schemas/*.json")}


@pytest.fixture
def blobmap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """A bucket with something of everything: new, pinned, broken, foreign, too large."""
    line = small_bucket(capsys, tmp_path)
    line("partition", SCOPE, *SMALL)
    line("pin", "add", SCOPE, "tas/c/3", "--reason", "x")
    line.fill(SCOPE, [RawArray("pr", (40,), (1,), ["time"], nbytes=32, present=[(0,)])])
    line.fill("b/new.zarr", [RawArray("tas", (40,), (1,), ["x"], nbytes=32)])
    line.fill("b/bad.zarr", [RawArray("tas", (1,), (1,))])
    (line.data / "b/bad.zarr/tas/zarr.json").write_text("{")
    (line.data / "raw").mkdir()
    (line.data / "raw/x.nc").write_bytes(b"12345")
    whole = Manifest("", 1, (), (Blob("b_raw", ("raw",), None), Blob("b_gone", ("gone",), None)), (Pin("gone", "x"),))
    line.manifests.write(whole, etag=None)
    return line


def check(name: str, answer: Any) -> None:
    Draft202012Validator(SCHEMAS[name]).validate(answer)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("scan", ["scan"]),
        ("scan", ["scan", "--partition"]),
        ("partition", ["partition", SCOPE]),
        ("partition", ["partition", SCOPE, "--force", "--yes", "--t-max", "640"]),
        ("partition", ["partition", "b/new.zarr", "--dry-run"]),
        ("resolve-summary", ["resolve", "--summary", f"{SCOPE}/tas/c/0/0/0", "x", f"{SCOPE}/zarr.json"]),
        ("objects-count", ["objects", SCOPE, "b_tas_0", "--count"]),
        ("show", ["show"]),
        ("pin", ["pin", "add", SCOPE, "tas", "--reason", "x", "--until", "2099-01-01", "--by", "me"]),
        ("pin", ["pin", "remove", SCOPE, "tas/c/3"]),
        ("pin-show", ["pin", "show"]),
        ("report", ["report"]),
        ("report", ["report", "--per-bucket", "--window", "1KiB..2KiB"]),
        ("verify", ["verify"]),
    ],
)
def test_an_answer_has_its_shape(blobmap: CommandLine, name: str, words: Sequence[str]) -> None:
    check(name, blobmap(*words, "--json").json)


def test_answers_of_several_lines_have_theirs(blobmap: CommandLine) -> None:
    for name, words in (
        ("resolve", ["resolve", f"{SCOPE}/tas/c/0/0/0", "x"]),
        ("objects", ["objects", SCOPE, "b_tas_1"]),
    ):
        lines = blobmap(*words, "--json").lines
        assert len(lines) > 1
        for line in lines:
            check(name, json.loads(line))


def test_answers_about_archives_have_theirs(blobmap: CommandLine, tmp_path: Path) -> None:
    archive = str(tmp_path / "x.tar.gz")
    check("backup", blobmap("backup", archive, "--json").json)
    blobmap("partition", SCOPE, "--force", "--yes", "--t-max", "640")
    answer = blobmap("restore", archive, "--json").json
    check("restore", answer)
    assert any(restored["changed_rules"] for restored in answer["scopes"])


def test_answers_without_anything_in_them_have_theirs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    line = CommandLine(capsys, tmp_path)
    line.data.mkdir()
    line.manifest_root.mkdir()
    for name, words in (
        ("scan", ["scan"]),
        ("show", ["show"]),
        ("pin-show", ["pin", "show"]),
        ("report", ["report", "--per-bucket"]),
        ("verify", ["verify"]),
    ):
        check(name, line(*words, "--json").json)
    check("pin-show", line.bare(*line.roots[2:], "pin", "show", "--json").json)


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_shape_is_strict_and_in_the_docs(name: str) -> None:
    schema = SCHEMAS[name]
    Draft202012Validator.check_schema(schema)
    assert schema["additionalProperties"] is False
    assert f"(schemas/{name}.schema.json)" in (DOCS / "cli-json.md").read_text()


def test_every_command_is_in_the_docs() -> None:
    rows = re.findall(r"^\| (`.*`) \|", (DOCS / "cli-json.md").read_text(), re.MULTILINE)
    assert {word for row in rows for word in re.findall(r"`(\w+)", row)} == set(COMMANDS)
