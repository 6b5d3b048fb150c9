"""What all commands have in common; each has a file of its own beside this one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from blobmap import __version__
from blobmap.cli import COMMANDS
from tests.support.command_line import SCOPE, SMALL, CommandLine, small_bucket

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMAND = str(Path(sys.executable).with_name("blobmap"))


@pytest.fixture
def blobmap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return small_bucket(capsys, tmp_path)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(blobmap: CommandLine, command: str) -> None:
    code, out, err = blobmap.bare(command, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: blobmap {command} ")
    assert "--manifests URL" in out or command == "pin"


def test_global_options_stand_before_and_after_the_command(blobmap: CommandLine) -> None:
    before = blobmap.bare(*blobmap.roots, "--json", "scan")
    assert blobmap.bare("scan", *blobmap.roots, "--json") == before
    assert blobmap.bare("--json", *blobmap.roots[:2], "scan", *blobmap.roots[2:]) == before
    blobmap("partition", SCOPE, *SMALL)
    shown = blobmap.bare(*blobmap.roots, "--json", "pin", "show")
    assert blobmap.bare("pin", "show", *blobmap.roots, "--json") == shown
    for words in (["--version"], ["scan", "--version"], ["pin", "show", "--version"]):
        assert blobmap.bare(*words) == (0, f"blobmap {__version__}\n", "")


def test_exclude_adds_at_every_place_and_an_empty_one_clears(blobmap: CommandLine) -> None:
    staging = blobmap.data / SCOPE / ".snapshot"
    staging.mkdir()
    (staging / "x").write_bytes(b"x")
    blobmap.manifest_root.mkdir()

    def counted(before: Sequence[str] = (), after: Sequence[str] = ()) -> str:
        return blobmap(*before, "partition", SCOPE, "--dry-run", *after).lines[-1].partition(":")[0]

    whole = "2 arrays, 120 objects, 6.4 KiB"
    assert counted() == whole
    assert counted(["--exclude", "time"]) == "1 array, 80 objects, 2.5 KiB"
    assert counted(["--exclude", "time"], ["--exclude", "tas"]) == "0 arrays, 0 objects, 0 B"
    assert counted(["--exclude", "time"], ["--exclude", ""]) == whole
    assert "1 objects (1 B) belong to no array" in blobmap("--exclude", "", "partition", SCOPE, "--dry-run").err
    refused = blobmap("--exclude", "a/b", "scan")
    assert refused == (2, "", "blobmap: --exclude 'a/b': one segment of a key, without a slash\n")


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["resolve", "x"], 2, "--manifests is missing"),
        (["--manifests", ".", "scan"], 2, "--data is missing"),
        (["--manifests", "/nonexistent/m", "resolve", "x"], 2, "/nonexistent/m"),
        (["--manifests", ".", "--timeout", "0", "resolve", "x"], 2, "--timeout 0: a number of seconds above 0"),
        (["--manifests", ".", "--timeout", "nan", "resolve", "x"], 2, "--timeout nan: a number of seconds above 0"),
        (["--manifests", "ftp://x/y", "resolve", "x"], 2, "ftp://x/y"),
        (["--manifests", "/nonexistent/m", "--data", "/nonexistent", "scan"], 2, "lies in --data"),
        (["--manifests", "/nonexistent", "--data", "/nonexistent/d", "scan"], 2, "lies in --manifests"),
        (["resolve"], 2, "blobmap resolve: the following arguments are required: KEY; see blobmap resolve --help"),
        (["reslove", "x"], 2, "invalid choice: 'reslove'"),
        (["--manifest", ".", "resolve", "x"], 2, "see blobmap --help"),
        ([], 2, "the following arguments are required: COMMAND; see blobmap --help"),
    ],
)
def test_a_wrong_call_is_one_line(blobmap: CommandLine, words: list[str], code: int, text: str) -> None:
    answer = blobmap.bare(*words)
    assert (answer.code, answer.out) == (code, "")
    assert answer.err.startswith("blobmap")
    assert text in answer.err
    assert answer.err.count("\n") == 1


def test_a_traceback_only_with_v(blobmap: CommandLine) -> None:
    blobmap.manifest_root.mkdir()
    quiet = blobmap("partition", "a/nothing.zarr", "--dry-run")
    assert quiet.code == 5
    assert "Traceback" not in quiet.err
    assert "Traceback" in blobmap("partition", "a/nothing.zarr", "--dry-run", "-v").err
    assert "Traceback" in blobmap("-v", "partition", "a/nothing.zarr", "--dry-run").err


class PanicException(BaseException):
    """As a library in Rust raises it: no `Exception`."""


@pytest.mark.parametrize("kind", [ZeroDivisionError, PanicException])
def test_a_bug_is_told_as_one(blobmap: CommandLine, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]) -> None:
    def broken(args: object) -> int:
        raise kind(str(args is None))

    monkeypatch.setattr("blobmap.cli.schema.run", broken)
    assert blobmap.bare("schema") == (70, "", f"blobmap: {kind.__name__}: False (a bug of ours; -v shows where)\n")


def test_what_cannot_be_printed_is_escaped(blobmap: CommandLine) -> None:
    blobmap.manifest_root.mkdir()
    odd = blobmap.data / "new\nline\x1b[31m.zarr"
    odd.mkdir()
    (odd / "zarr.json").write_bytes((blobmap.data / SCOPE / "zarr.json").read_bytes())
    assert "\nnew\\nline\\x1b[31m.zarr  NEW" in blobmap("scan").out


@pytest.mark.parametrize(
    "words",
    [
        ["resolve", "x"],
        ["show"],
        ["objects", "x", "b_0"],
        ["pin", "show"],
        ["pin", "remove", "x"],
        ["pin", "add", "x", "--reason", "y"],
        ["verify"],
        ["backup", "x.tar.gz"],
    ],
)
def test_a_missing_manifest_root_is_told_and_not_made(blobmap: CommandLine, words: list[str]) -> None:
    answer = blobmap(*words)
    assert (answer.code, answer.out) == (2, "")
    assert "is no directory" in answer.err
    assert not blobmap.manifest_root.exists()


@pytest.mark.parametrize(
    "words", [["scan"], ["report"], ["partition", SCOPE, "--dry-run"], ["scan", "--partition", "--dry-run"]]
)
def test_before_the_first_cut_there_need_be_no_manifest_root(blobmap: CommandLine, words: list[str]) -> None:
    answer = blobmap(*words)
    assert answer.code == 0
    assert "does not exist yet: taken for a root without manifests" in answer.err
    assert not blobmap.manifest_root.exists()
    blobmap.manifest_root.mkdir()
    assert blobmap(*words) == (0, answer.out, "")
    assert list(blobmap.manifest_root.rglob("*")) == []


def test_the_installed_command_runs() -> None:
    for start in ([sys.executable, "-m", "blobmap"], [COMMAND]):
        done = subprocess.run([*start, "--version"], capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout == f"blobmap {__version__}\n"


def test_only_what_a_command_needs_is_imported() -> None:
    script = "import sys, blobmap.cli; blobmap.cli.main(['schema']); print(*sys.modules, sep='\\n', file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stderr.split())
    assert not loaded & {"rich", "rich_argparse", "matplotlib", "blobmap.service", "blobmap.resolve"}


def test_one_key_of_a_directory_needs_no_network(blobmap: CommandLine) -> None:
    blobmap("partition", SCOPE, *SMALL)
    words = [*blobmap.roots, "resolve", f"{SCOPE}/tas/c/0/0/0"]
    script = f"import sys, blobmap.cli; blobmap.cli.main({words}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "b_tas_0\n"
    assert not set(done.stderr.split()) & {"ssl", "http.client", "urllib.request", "blobmap.service"}


def test_whoever_reads_may_stop_reading(blobmap: CommandLine, tmp_path: Path) -> None:
    blobmap.manifest_root.mkdir()
    (tmp_path / "keys").write_bytes(b"some/key\n" * 100_000)
    with (
        (tmp_path / "keys").open("rb") as keys,
        subprocess.Popen(
            [COMMAND, *blobmap.roots, "resolve", "-"], stdin=keys, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_an_answer_that_cannot_be_written_is_told() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([COMMAND, "schema"], stdout=full, stderr=subprocess.PIPE, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (3, b"blobmap: standard output: No space left on device\n")
