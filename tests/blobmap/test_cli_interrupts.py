"""Ctrl-C, in every kind of waiting: one line, exit 130, soon, and nothing half done."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.command_line import SCOPE, SMALL, CommandLine, small_bucket

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

COMMAND = str(Path(sys.executable).with_name("blobmap"))
PATIENT = (
    sys.executable,
    "-c",
    "import sys; from blobmap.cli import interrupts, main; interrupts._GRACE_S = 3600; sys.exit(main())",
)
"""The command, but after one Ctrl-C it would wait for an hour."""


@pytest.fixture
def blobmap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return small_bucket(capsys, tmp_path)


@contextmanager
def waiting(words: Sequence[str], *start: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command that has asked a server which accepts everything and answers nothing."""
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = ("--endpoint", f"http://127.0.0.1:{silent.getsockname()[1]}", "--allow-http", "--timeout", "3600")
        with subprocess.Popen(
            [*(start or (COMMAND,)), *server, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            bufsize=0,
        ) as process:
            try:
                with silent.accept()[0] as connection:
                    connection.recv(1)
                    yield process
            finally:
                process.kill()


@pytest.mark.parametrize(
    "words",
    [
        ["scan"],
        ["report"],
        ["verify"],
        ["partition", SCOPE],
        ["partition", SCOPE, "--data", "{data}"],
        ["resolve", "x"],
        ["pin", "add", SCOPE, "tas", "--reason", "x"],
    ],
    ids=" ".join,
)
def test_one_ctrl_c_is_enough_where_a_server_is_silent(blobmap: CommandLine, words: Sequence[str]) -> None:
    given = [word.format(data=blobmap.data) for word in words]
    with waiting(["--data", "s3://bucket", "--manifests", "s3://manifests", *given]) as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"blobmap: interrupted\n")


def test_a_second_ctrl_c_waits_for_nothing(blobmap: CommandLine) -> None:
    blobmap.manifest_root.mkdir()
    with waiting(["--data", "s3://bucket", *blobmap.roots[2:], "scan"], *PATIENT) as process:
        while process.poll() is None:  # two that come at once count as one
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"blobmap: interrupted\n")


def test_where_everything_can_end_it_ends_in_order(blobmap: CommandLine) -> None:
    blobmap.manifest_root.mkdir()
    with subprocess.Popen(
        [*PATIENT, *blobmap.roots, "resolve", "x", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"y\n" * 2_000)  # more than it buffers: it has begun when some are answered
        first = process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"blobmap: interrupted\n")
    assert set((first + out).splitlines()) == {b"unmanaged"}


def test_whoever_reads_may_be_gone(blobmap: CommandLine) -> None:
    blobmap.manifest_root.mkdir()
    with subprocess.Popen(
        [COMMAND, *blobmap.roots, "resolve", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"y\n" * 2_000)
        assert process.stdout.read(1)
        process.stdout.close()
        process.send_signal(signal.SIGINT)
        assert (process.stderr.read(), process.wait(60)) == (b"blobmap: interrupted\n", 130)


def test_a_partition_that_was_begun_leaves_no_manifest(blobmap: CommandLine) -> None:
    """The question comes when everything is listed and decided."""
    blobmap("partition", SCOPE, *SMALL)
    before = {path: path.read_bytes() for path in blobmap.manifest_root.rglob("*") if path.is_file()}
    terminal, theirs = os.openpty()
    with subprocess.Popen(
        [COMMAND, *blobmap.roots, "partition", SCOPE, "--force", "--t-max", "640"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TERM": "dumb"},
    ) as process:
        os.close(theirs)
        assert process.stderr is not None
        said = b""
        while not said.endswith(b"[y/N] "):
            said += os.read(process.stderr.fileno(), 4096)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    os.close(terminal)
    assert (process.returncode, err) == (130, b"blobmap: interrupted\n")
    assert {path: path.read_bytes() for path in blobmap.manifest_root.rglob("*") if path.is_file()} == before
