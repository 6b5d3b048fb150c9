from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from obstore.store import LocalStore

from blobmap import ManifestStore, __version__
from blobmap.cli import main
from blobmap.cli.resolve import BLOCK_BYTES, read_keys
from tests.support.stores import RawArray, write_store

if TYPE_CHECKING:
    from collections.abc import Callable

    Blobmap = Callable[..., tuple[int, str, str]]

COMMAND = str(Path(sys.executable).with_name("blobmap"))
SMALL = ("--t-max", "1280", "--t-hot", "64")


@pytest.fixture
def roots(tmp_path: Path) -> tuple[str, ...]:
    data = tmp_path / "bucket"
    data.mkdir()
    tas = RawArray("tas", (40, 8, 8), (1, 4, 8), ["time", "lat", "lon"], nbytes=32)
    time = RawArray("time", (40,), (1,), ["time"], nbytes=100)
    write_store(LocalStore(data), "a/st.zarr", [tas, time])
    return ("--data", str(data), "--manifests", str(tmp_path / "manifests"))


@pytest.fixture
def blobmap(roots: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> Blobmap:
    def call(*words: str) -> tuple[int, str, str]:
        code = main([*roots, *words])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def held(tmp_path: Path) -> ManifestStore:
    return ManifestStore(LocalStore(tmp_path / "manifests"))


def test_partition_shows_the_table_and_writes_the_manifest(blobmap: Blobmap, tmp_path: Path) -> None:
    code, out, err = blobmap("partition", "a/st.zarr", *SMALL)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["array", "objects", "stored", "object", "blob", "role", "reason"]
    assert lines[1].startswith("tas         80  2.5 KiB    32 B  b_tas_0..1 (width=20, ~1.2 KiB/blob)  data")
    assert lines[2].startswith("time        40  3.9 KiB   100 B  hot")
    assert "new rules: b_tas" in lines
    assert lines[-1] == "2 arrays, 120 objects, 6.4 KiB: wrote epoch 1 of 'a/st.zarr'"
    manifest = held(tmp_path).read("a/st.zarr").manifest
    assert manifest.generated_by == f"blobmap {__version__}"
    assert manifest.policy is not None
    assert manifest.policy["t_max_bytes"] == 1280

    code, out, _ = blobmap("partition", "a/st.zarr")
    assert code == 0
    assert out.splitlines()[-1].endswith("nothing changes, epoch 1 of 'a/st.zarr' stays")


def test_a_dry_run_makes_no_manifest_root(blobmap: Blobmap, tmp_path: Path) -> None:
    (tmp_path / "manifests").mkdir()
    code, out, _ = blobmap("partition", "a/st.zarr", "--dry-run")
    assert code == 0
    assert out.splitlines()[-1].endswith("a dry run, epoch 1 was not written")
    assert list((tmp_path / "manifests").iterdir()) == []


def test_partition_answers_in_json(blobmap: Blobmap) -> None:
    _, out, _ = blobmap("--json", "partition", "a/st.zarr", *SMALL)
    answer = json.loads(out)
    assert (answer["epoch"], answer["previous_epoch"], answer["written"]) == (1, None, True)
    assert [(row["path"], row["verdict"]) for row in answer["arrays"]] == [("tas", "cut"), ("time", "hot")]
    assert answer["difference"]["added"] == ["b_tas"]


def test_thresholds_that_are_not_given_stay_as_recorded(blobmap: Blobmap, tmp_path: Path) -> None:
    blobmap("partition", "a/st.zarr", *SMALL)
    code, out, _ = blobmap("partition", "a/st.zarr", "--force", "--yes", "--t-max", "640")
    assert code == 0
    assert "rules whose members move, orphaning their blobs: b_tas" in out.splitlines()
    manifest = held(tmp_path).read("a/st.zarr").manifest
    assert (manifest.epoch, manifest.policy and manifest.policy["t_hot_bytes"]) == (2, 64)
    assert manifest.blobs[0].bucket is not None
    assert manifest.blobs[0].bucket.width == 10


def test_force_asks_before_it_writes(blobmap: Blobmap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    blobmap("partition", "a/st.zarr", *SMALL)
    force = ("partition", "a/st.zarr", "--force", "--t-max", "640")
    code, _, err = blobmap(*force)
    assert (code, err) == (
        2,
        "blobmap: --force moves objects between blobs, and nobody can be asked here: give --yes, or --dry-run\n",
    )
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    code, _, err = blobmap(*force)
    assert (code, held(tmp_path).read("a/st.zarr").manifest.epoch) == (0, 1)
    assert err.endswith("[y/N] blobmap: nothing was written\n")
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    code, out, _ = blobmap(*force)
    assert (code, held(tmp_path).read("a/st.zarr").manifest.epoch) == (0, 2)
    assert out.splitlines()[-1].endswith("wrote epoch 2 of 'a/st.zarr'")


def test_resolve_answers_in_the_order_of_the_keys(blobmap: Blobmap) -> None:
    blobmap("partition", "a/st.zarr", *SMALL)
    keys = ("a/st.zarr/tas/c/5000/0/0", "a/st.zarr/time/c/0", "other/x", "a/st.zarr/zarr.json")
    code, out, err = blobmap("resolve", *keys)
    assert (code, out.splitlines(), err) == (0, ["b_tas_250", "hot", "unmanaged", "hot"], "")
    _, out, _ = blobmap("resolve", "--json", *keys)
    assert json.loads(out.splitlines()[0]) == {
        "key": keys[0],
        "kind": "blob",
        "blob_id": "b_tas_250",
        "scope": "a/st.zarr",
        "epoch": 1,
    }


def test_resolve_skips_a_broken_manifest_and_says_so(blobmap: Blobmap, tmp_path: Path) -> None:
    blobmap("partition", "a/st.zarr", *SMALL)
    (tmp_path / "manifests" / "manifest.json").write_text("{")
    code, out, err = blobmap("resolve", "a/st.zarr/tas/c/0/0/0")
    assert (code, out) == (5, "b_tas_0\n")
    assert err.startswith("blobmap: ")
    assert "manifest.json" in err


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (b"", []),
        (b"a\nb b\n", ["a", "b b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\nb\0c\0", ["a\nb", "c"]),
        (b"\xff\n", ["\udcff"]),
        (b"k\n" * BLOCK_BYTES, ["k"] * BLOCK_BYTES),
    ],
)
def test_keys_are_read_from_a_stream(text: bytes, keys: list[str]) -> None:
    assert list(read_keys(io.BytesIO(text))) == keys


def test_exclude_adds_and_an_empty_one_clears(blobmap: Blobmap, tmp_path: Path) -> None:
    staging = tmp_path / "bucket/a/st.zarr/.snapshot"
    staging.mkdir()
    (staging / "x").write_bytes(b"x")
    (tmp_path / "manifests").mkdir()

    def counted(*words: str) -> str:
        return blobmap(*words, "partition", "a/st.zarr", "--dry-run")[1].splitlines()[-1].partition(":")[0]

    assert counted() == "2 arrays, 120 objects, 6.4 KiB"
    assert counted("--exclude", "time") == "1 arrays, 80 objects, 2.5 KiB"
    code, _, err = blobmap("--exclude", "a/b", "resolve", "x")
    assert (code, err) == (2, "blobmap: --exclude 'a/b': one segment of a key, without a slash\n")


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["resolve", "x"], 2, "--manifests is missing"),
        (["--manifests", "/nonexistent/m", "resolve", "x"], 2, "/nonexistent/m"),
        (["--manifests", ".", "--timeout", "0", "resolve", "x"], 2, "--timeout 0: a number of seconds above 0"),
        (["--manifests", "ftp://x/y", "resolve", "x"], 2, "ftp://x/y"),
    ],
)
def test_a_wrong_call_is_one_line(words: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("blobmap: ")
    assert text in err
    assert err.count("\n") == 1


def test_no_store_is_exit_5(blobmap: Blobmap) -> None:
    code, _, err = blobmap("partition", "a/nothing.zarr")
    assert code == 5
    assert "a/nothing.zarr" in err


def test_a_traceback_only_with_v(blobmap: Blobmap) -> None:
    assert "Traceback" not in blobmap("partition", "a/nothing.zarr")[2]
    assert "Traceback" in blobmap("partition", "a/nothing.zarr", "-v")[2]


def test_schema_prints_what_is_shipped(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["$id"].endswith("manifest-v3.schema.json")


def test_the_installed_command_runs() -> None:
    for start in ([sys.executable, "-m", "blobmap"], [COMMAND]):
        done = subprocess.run([*start, "--version"], capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout == f"blobmap {__version__}\n"


def test_whoever_reads_may_stop_reading(roots: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "manifests").mkdir()
    (tmp_path / "keys").write_bytes(b"some/key\n" * 100_000)
    with (
        (tmp_path / "keys").open("rb") as keys,
        subprocess.Popen(
            [COMMAND, *roots, "resolve", "-"], stdin=keys, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0
