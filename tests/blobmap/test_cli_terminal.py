"""What people at a terminal see: progress, tables that fit, coloured help; and all of it plain without the extra."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from blobmap.cli.progress import progress
from tests.support.command_line import SCOPE, SMALL, CommandLine, small_bucket

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COMMAND = str(Path(sys.executable).with_name("blobmap"))
WITHOUT_RICH = (
    "import sys; sys.modules['rich'] = sys.modules['rich_argparse'] = None;"
    "from blobmap.cli import main; sys.exit(main(sys.argv[1:]))"
)


@pytest.fixture
def blobmap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    line = small_bucket(capsys, tmp_path)
    line("partition", SCOPE, *SMALL)
    return line


def on_a_terminal(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run a command at a terminal of 80 columns; returns what it showed."""
    ours, theirs = pty.openpty()
    base = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    sized = {**base, "COLUMNS": "80", **environment}
    with subprocess.Popen(words, stdout=theirs, stderr=theirs, stdin=theirs, env=sized) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                block = os.read(ours, 1 << 16)
            except OSError:  # what a terminal gives at its end
                break
            shown += block
        assert process.wait(60) == 0
    os.close(ours)
    return shown.decode().replace("\r\n", "\n")


COLOURS = {"TERM": "xterm"}


@pytest.mark.parametrize(
    ("environment", "coloured"), [(COLOURS, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colours_are_for_terminals(blobmap: CommandLine, environment: dict[str, str], coloured: bool) -> None:
    words = [COMMAND, *blobmap.roots, "show"]
    piped = subprocess.run(words, capture_output=True, check=True, timeout=60)
    assert b"\x1b" not in piped.stdout + piped.stderr
    assert ("\x1b[1m" in on_a_terminal(words, environment)) is coloured
    assert ("\x1b[" in on_a_terminal([COMMAND, "scan", "--help"], environment)) is coloured


def test_help_keeps_its_brackets_and_paragraphs() -> None:
    shown = on_a_terminal([COMMAND, "partition", "--help"], COLOURS)
    assert "s3://bucket[/prefix]" in re.sub(r"\x1b\[[0-9;]*m", "", shown)
    plain = on_a_terminal([COMMAND, "partition", "--help"], {"NO_COLOR": "1"})
    assert "\n\nCut one store into blobs and write its manifest.\n\n" in plain
    assert max(map(len, plain.splitlines())) <= 80


def test_a_table_fits_the_terminal(blobmap: CommandLine) -> None:
    shown = on_a_terminal([COMMAND, *blobmap.roots, "partition", SCOPE, "--dry-run"], COLOURS)
    lines = [line for line in shown.splitlines() if "\x1b" not in line]
    assert max(map(len, lines)) <= 80


def test_without_the_extra_everything_is_plain(blobmap: CommandLine) -> None:
    words = [sys.executable, "-c", WITHOUT_RICH]
    assert "a/st.zarr" in on_a_terminal([*words, *blobmap.roots, "show"], COLOURS)
    assert "\x1b[1m" not in on_a_terminal([*words, "--help"], COLOURS)
    assert "1 store: 0 new" in on_a_terminal([*words, *blobmap.roots, "scan"], COLOURS)


class Screen(io.StringIO):
    """A terminal that keeps what it was sent."""

    def isatty(self) -> bool:
        return True


def look_at_stderr(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Let stderr be a terminal with colours."""
    found = Screen()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return found


def test_progress_is_shown_as_a_bar_and_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = look_at_stderr(monkeypatch)
    with progress() as show:
        show("12 objects")
        show("24 objects", 3, 4)
    assert "24 objects" in screen.getvalue()


def test_progress_without_colours_is_one_line_that_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = look_at_stderr(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with progress() as show:
        show("too soon")
        now = 0.5
        show("12 objects")
        show("too soon")
        now = 1.0
        show("24 objects", 3, 4)
    assert screen.getvalue() == "\r\x1b[K12 objects\r\x1b[K24 objects (3 of 4)\r\x1b[K"


def test_progress_needs_no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = look_at_stderr(monkeypatch)
    monkeypatch.setitem(sys.modules, "blobmap.cli.pretty", None)
    with progress() as show:
        show("12 objects")
    assert screen.getvalue() == "\r\x1b[K"


def test_progress_is_not_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as show:
        show("12 objects")
    assert capsys.readouterr() == ("", "")
