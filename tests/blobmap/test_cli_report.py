from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from pathlib import Path

import pytest

from blobmap.blob_sizes import Window, hold_against
from blobmap.census import Size
from blobmap.cli.advice import advice
from blobmap.manifest import Pin
from blobmap.report import ArrayNote, Report, Row, Unclaimed
from tests.support.command_line import SCOPE, SMALL, CommandLine, small_bucket
from tests.support.stores import RawArray

COMMAND = str(Path(sys.executable).with_name("blobmap"))
NOW = datetime(2026, 6, 15, tzinfo=UTC)


@pytest.fixture
def blobmap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    line = small_bucket(capsys, tmp_path)
    line("partition", SCOPE, *SMALL)
    line.fill("b/new.zarr", [RawArray("tas", (40,), (1,), ["x"], nbytes=32)])
    return line


def test_the_report_for_people(blobmap: CommandLine) -> None:
    answer = blobmap("report", "--per-bucket", "--window", "1KiB..2KiB")
    assert (answer.code, answer.err) == (0, "")
    table = [line.split() for line in answer.lines[:4]]
    assert table[0] == ["bucket", "total", "archivable", "hot", "pinned", "unmanaged", "blobs", "objects"]
    assert [row[0] for row in table[1:]] == ["a", "b", "all"]
    assert answer.lines[5].startswith("hot: ")
    assert answer.lines[6] == (
        "blobs: 0 (0 B) below 1.0 KiB, 2 (2.5 KiB) inside, 0 (0 B) above 2.0 KiB; "
        "smallest 1.2 KiB, median 1.2 KiB, largest 1.2 KiB"
    )
    assert answer.lines[7] == "arrays: 160 of 160 objects of their grids are stored"
    assert answer.lines[9].startswith("Unmanaged: 40 objects, 1.2 KiB, ")
    assert answer.lines[10] == ("Never cut: 1 store, 'b/new.zarr' (1.2 KiB). Run `blobmap partition b/new.zarr`.")
    whole = blobmap("report")
    assert [line.split()[0] for line in whole.lines[:2]] == ["bucket", "all"]


def test_the_report_in_json_adds_up(blobmap: CommandLine) -> None:
    report = blobmap("report", "--per-bucket", "--json").json
    total = report["total"]
    parts = ("archivable", "hot", "pinned", "unmanaged")
    for unit in ("objects", "bytes"):
        assert sum(total[part][unit] for part in parts) == total["total"][unit]
        assert sum(row["total"][unit] for row in report["rows"]) == total["total"][unit]
        assert sum(size[unit] for size in report["hot"].values()) == total["hot"][unit]
    stored = [path.stat().st_size for path in blobmap.data.rglob("*") if path.is_file()]
    assert (total["total"]["objects"], total["total"]["bytes"]) == (len(stored), sum(stored))
    assert report["blobs"]["blobs"] == total["blobs"] == 2
    assert blobmap("report", "--json").json["rows"] == []


def test_a_prefix_and_what_is_not_there(blobmap: CommandLine) -> None:
    assert blobmap("report", "b/").lines[1].split()[0] == "b"
    answer = blobmap("report", "c")
    assert (answer.code, answer.out) == (5, "")
    assert "nothing is stored below 'c'" in answer.err


def test_an_empty_bucket_has_nothing_to_do(blobmap: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    answer = blobmap.bare("--data", str(tmp_path / "empty"), *blobmap.roots[2:], "report")
    assert (answer.code, answer.lines[-1]) == (0, "Nothing to do.")
    assert "blobs: none" in answer.lines
    assert "median_bytes" in blobmap.bare("--data", str(tmp_path / "empty"), *blobmap.roots[2:], "report", "--json").out


def test_what_cannot_be_read_is_exit_5(blobmap: CommandLine) -> None:
    (blobmap.data / "b/link").symlink_to(blobmap.data.parent)
    answer = blobmap("report")
    assert answer.code == 5
    assert "'b/link' could not be listed, and is not counted" in answer.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--window", "5"], "'5' is no window"),
        (["--window", "2GiB..1GiB"], "its low end is above its high end"),
        (["--plot", "x.jpg"], "ends in .png or .svg"),
        (["--plot", "/nonexistent/x.png"], "'/nonexistent' is no directory"),
    ],
)
def test_nonsense_is_refused_before_anything_is_counted(blobmap: CommandLine, words: list[str], said: str) -> None:
    answer = blobmap("report", *words)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert answer.err.count("\n") == 1


def test_a_picture_is_drawn(blobmap: CommandLine, tmp_path: Path) -> None:
    picture = tmp_path / "report.png"
    assert blobmap("report", "--plot", str(picture)).code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    drawing = tmp_path / "report.svg"
    assert blobmap("report", "b", "--plot", str(drawing), "--json").code == 0
    assert ET.parse(drawing).getroot().tag.endswith("svg")  # noqa: S314 - our own file
    drawing.unlink()
    drawing.mkdir()
    answer = blobmap("report", "--plot", str(drawing))
    assert answer.code == 3
    assert "report.svg': Is a directory" in answer.err


def test_without_matplotlib_only_the_plot_is_missing(blobmap: CommandLine, tmp_path: Path) -> None:
    script = "import sys; sys.modules['matplotlib'] = None; from blobmap.cli import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", script, *blobmap.roots, "report"]
    assert subprocess.run(words, capture_output=True, check=True, timeout=60).stderr == b""
    done = subprocess.run(
        [*words, "--plot", str(tmp_path / "x.png")], capture_output=True, check=False, timeout=60, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'blobmap[plot]'" in done.stderr


def sentences(**parts: object) -> list[str]:
    total = Row("all", archivable=Size(10, 1000), unmanaged=parts.pop("unmanaged", Size()))  # type: ignore[arg-type]  # a Size
    blobs = parts.pop("blobs", {})
    report = Report("", total, [], {}, hold_against(Window(10, 100), blobs), **parts)  # type: ignore[arg-type]  # as named
    return list(advice(report, NOW))


def test_nothing_is_advised_where_nothing_is_wrong() -> None:
    assert sentences(blobs={("a", "b_0"): Size(1, 50)}, pins=[("a", Pin("x", "y", until="2099-01-01"))]) == []


def test_stores_are_named_with_the_command_to_run() -> None:
    new = [Unclaimed(f"s {number}.zarr", None, Size(1, 10), []) for number in range(5)]
    known = [Unclaimed(f"k{number}", f"k{number}", Size(1, 10), ["t"]) for number in range(4)]
    loose = {"raw": Size(2, 20)}
    said = sentences(unmanaged=Size(11, 110), unclaimed=[*new, *known], loose=loose)
    assert said[0].startswith("Unmanaged: 11 objects, 110 B, 9.9% of the bytes.")
    assert said[1] == (
        "Never cut: 5 stores, 's 0.zarr' (10 B), 's 1.zarr' (10 B), 's 2.zarr' (10 B) and 2 more. "
        "Run `blobmap partition 's 0.zarr'` or `blobmap scan --partition` for all of them."
    )
    assert said[2] == (
        "Not claimed by the manifest of 'k0': t, 10 B. Run `blobmap partition k0`, which says why if it cannot."
    )
    assert said[5] == "The same of 1 more store: see `blobmap scan`."
    assert said[6] == "In no zarr store: 2 objects, 20 B, below 'raw'. See `blobmap scan`."


def test_an_empty_object_can_be_unmanaged_too() -> None:
    assert sentences(unmanaged=Size(1, 0))[0].startswith("Unmanaged: 1 object, 0 B, 0.0% of the bytes.")


def test_arrays_and_blobs_and_pins_are_named() -> None:
    grown = [ArrayNote("a", f"v{number}", "data", 3, 3, 4096) for number in range(5)]
    said = sentences(
        outgrown=grown,
        large_coordinates=[ArrayNote("a", "", "dimension coordinate", 2, 2, 2**31)],
        incomplete=[ArrayNote("a", "w", "data", 1, 10, 5)],
        blobs={("a", "b_0"): Size(1, 5), ("a", "b_1"): Size(1, 500), ("a", "b_2"): Size(1, 50)},
        pins=[("a", Pin("x", "y")), ("a", Pin("z", "y", until="2020-01-01"))],
    )
    assert said[0] == (
        "'v0' of 'a' is hot as a small array and has grown to 4.0 KiB: run `blobmap partition a`, "
        "which gives it a rule."
    )
    assert said[3] == "The same of 2 more arrays."
    assert said[4].startswith("'a' is a dimension coordinate of 2.0 GiB in 2 objects, and stays on disk")
    assert said[5].startswith("Smaller than 10 B: 1 of 3 blobs, 5 B together")
    assert said[6].startswith("Larger than 100 B: 1 of 3 blobs, the most b_1 of 'a' with 500 B.")
    assert said[7].startswith("Not all of the grid is stored in 1 array, the least of 'w' of 'a' with 1 of 10 objects")
    assert said[8] == "Of 2 pins some want looking at (1 open-ended, 1 expired): see `blobmap pin show`."
