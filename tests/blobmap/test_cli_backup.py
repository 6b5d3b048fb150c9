from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blobmap.manifest import Manifest
from tests.support.command_line import SCOPE, SMALL, CommandLine, small_bucket

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def blobmap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    line = small_bucket(capsys, tmp_path)
    line("partition", SCOPE, *SMALL)
    return line


@pytest.fixture
def archive(tmp_path: Path) -> str:
    return str(tmp_path / "b.tar.gz")


def test_a_root_is_backed_up_and_restored(blobmap: CommandLine, archive: str, tmp_path: Path) -> None:
    blobmap("pin", "add", SCOPE, "tas", "--reason", "x")
    made = blobmap("backup", archive)
    assert (made.code, made.err) == (0, "")
    assert made.out.startswith(f"wrote {archive}: 1 manifest, ")
    assert blobmap("restore", archive).out == "0 manifests written, 1 unchanged\n"

    elsewhere = ("--manifests", str(tmp_path / "new/root"))
    restored = blobmap.bare(*elsewhere, "restore", archive)
    assert (restored.code, restored.lines) == (0, [f"restored: '{SCOPE}', epoch 3", "1 manifest written, 0 unchanged"])
    assert blobmap.bare(*elsewhere, "resolve", f"{SCOPE}/tas/c/0/0/0").out == "pinned\n"


def test_the_answers_in_json(blobmap: CommandLine, archive: str) -> None:
    made = blobmap("backup", archive, "--json").json
    assert (made["file"], made["scopes"], made["problems"]) == (archive, [SCOPE], [])
    assert blobmap("restore", archive, "--json").json == {
        "scopes": [{"scope": SCOPE, "epoch": 1, "written": False, "changed_rules": []}],
        "others": [],
        "conflicts": [],
        "problems": [],
    }


def test_rules_that_differ_are_named(blobmap: CommandLine, archive: str) -> None:
    blobmap("backup", archive)
    blobmap("partition", SCOPE, "--force", "--yes", "--t-max", "640")
    blobmap.manifests.write(Manifest("b", 1), etag=None)
    done = blobmap("restore", archive)
    assert (done.code, done.lines) == (
        0,
        [f"restored: '{SCOPE}', epoch 3", "not in the archive, left alone: 'b'", "1 manifest written, 0 unchanged"],
    )
    assert "rules that differ from those that were there, so blobs may be orphaned: b_tas" in done.err


def test_a_conflict_is_exit_4(blobmap: CommandLine, archive: str, monkeypatch: pytest.MonkeyPatch) -> None:
    blobmap("backup", archive)
    blobmap("partition", SCOPE, "--force", "--yes", "--t-max", "640")
    written = blobmap.manifests.storage.__class__.update

    def contested(self: object, key: str, data: bytes, etag: str) -> str | None:
        if key.endswith("manifest.json"):
            path = blobmap.manifest_root / key
            path.write_bytes(path.read_bytes() + b"\n")
        return written(self, key, data, etag)  # type: ignore[arg-type]  # a Storage

    monkeypatch.setattr("blobmap.storage.Storage.update", contested)
    done = blobmap("restore", archive)
    assert done.code == 4
    assert "somebody else changed it meanwhile" in done.err


def test_a_broken_manifest_is_exit_5(blobmap: CommandLine, archive: str) -> None:
    (blobmap.manifest_root / "manifest.json").write_text("{")
    made = blobmap("backup", archive)
    assert made.code == 5
    assert made.err.startswith("blobmap: kept as it is, and broken: ")
    done = blobmap("restore", archive)
    assert (done.code, done.lines[-1]) == (5, "0 manifests written, 1 unchanged")
    assert done.err.startswith("blobmap: not restored: ")


def test_no_archive_is_one_line(blobmap: CommandLine, archive: str, tmp_path: Path) -> None:
    assert blobmap("restore", archive) == (2, "", f"blobmap: there is no file '{archive}'\n")
    (tmp_path / "b.tar.gz").write_bytes(b"something else")
    done = blobmap("restore", archive)
    assert (done.code, done.out, done.err.count("\n")) == (5, "", 1)
    assert "is no archive of ours, or damaged" in done.err
    made = blobmap("backup", archive)
    assert (made.code, made.err) == (2, f"blobmap: '{archive}' exists: give another name, so that no backup is lost\n")
