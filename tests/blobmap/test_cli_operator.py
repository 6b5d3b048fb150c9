"""As an operator meets it: rights that are missing, a disk that is full, a gateway, people who do the same at once."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from obstore.store import LocalStore

from blobmap.cli import COMMANDS
from tests.support.command_line import SCOPE, SMALL, Answer, CommandLine, small_bucket
from tests.support.powerless import powerless
from tests.support.small_disk import PAGE_BYTES, fill, small_disk
from tests.support.stores import RawArray, write_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.services.gateway import Gateway

COMMAND = str(Path(sys.executable).with_name("blobmap"))


@pytest.fixture
def blobmap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return small_bucket(capsys, tmp_path)


@pytest.fixture
def imported(blobmap: CommandLine) -> None:
    """Every module that a command imports: whoever has no rights may not read the installation either."""
    for command in COMMANDS:
        blobmap.bare(command, "--help")


@pytest.mark.usefixtures("imported")
def test_a_manifest_root_that_may_not_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    with powerless() as directory:
        blobmap = small_bucket(capsys, directory)
        blobmap("partition", SCOPE, *SMALL)
        for path in (blobmap.manifest_root, *blobmap.manifest_root.rglob("*")):
            path.chmod(0o500 if path.is_dir() else 0o400)
        for words in (
            ["partition", SCOPE, "--force", "--yes", "--t-max", "640"],
            ["pin", "add", SCOPE, "tas", "--reason", "x"],
        ):
            answer = blobmap(*words)
            assert answer.code == 3
            assert "Permission denied" in answer.err.splitlines()[-1]
        for words in (["scan"], ["resolve", "x"], ["report"], ["verify"], ["show"], ["partition", SCOPE, "--dry-run"]):
            assert blobmap(*words).code == 0


def test_a_full_disk_while_the_manifest_is_written(blobmap: CommandLine) -> None:
    """A limit on the size of files fails a write just as a full disk does, in the middle."""
    blobmap.manifest_root.mkdir()
    held = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, held[1]))
    try:
        answer = blobmap("partition", SCOPE, *SMALL)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, held)
    assert answer.code == 3
    assert "File too large" in answer.err
    assert answer.err.count("\n") == 1
    assert list(blobmap.manifests.scopes()) == []
    left = [path.name for path in blobmap.manifest_root.rglob("*") if path.is_file() and path.name != "lock"]
    assert left == ["st.zarr.json"]
    again = blobmap("partition", SCOPE, *SMALL)
    assert (again.code, blobmap("verify").code) == (0, 0)


@pytest.mark.parametrize("pages", [0, 1])
def test_a_file_system_that_is_full(blobmap: CommandLine, pages: int) -> None:
    """With one page left there is room for what is remembered of the scope, and not for the manifest."""
    blobmap.fill("many.zarr", [RawArray(f"variable_{number}", (40,), (1,), ["x"], nbytes=32) for number in range(40)])
    blobmap.manifest_root.mkdir()
    with small_disk(blobmap.manifest_root) as disk:
        assert blobmap("partition", "many.zarr", *SMALL).code == 0
        before = (disk / "many.zarr/manifest.json").read_bytes()
        assert len(before) > PAGE_BYTES
        fill(disk, but_for=pages)
        answer = blobmap("partition", "many.zarr", "--force", "--yes", "--t-max", "640")
        assert (answer.code, answer.err.splitlines()[-1].rpartition(": ")[2]) == (3, "No space left on device")
        assert answer.err.count("No space") == 1
        assert (disk / "many.zarr/manifest.json").read_bytes() == before
        assert [path.name for path in (disk / ".blobmap").iterdir() if path.is_file()] == ["lock"]
        (disk / "filler").unlink()
        again = blobmap("partition", "many.zarr", "--force", "--yes", "--t-max", "640")
        assert (again.code, blobmap("verify").code) == (0, 0)


@pytest.mark.usefixtures("imported")
def test_chunks_that_nobody_may_open_are_not_opened(capsys: pytest.CaptureFixture[str]) -> None:
    """As on a file system whose files are stubs of what is on tape: opening one brings it back."""
    with powerless() as directory:
        blobmap = small_bucket(capsys, directory)
        chunks = [path for path in blobmap.data.rglob("*") if path.is_file() and path.name != "zarr.json"]
        for path in chunks:
            path.chmod(0)
        before = [path.stat() for path in chunks]
        for words in (["scan"], ["partition", SCOPE, *SMALL], ["report"], ["verify"], ["objects", SCOPE, "b_tas_0"]):
            assert blobmap(*words).code == 0
        after = [path.stat() for path in chunks]
        assert [(now.st_atime_ns, now.st_mode) for now in after] == [
            (then.st_atime_ns, then.st_mode) for then in before
        ]


class AtGateway:
    """`blobmap` as installed, over two buckets of a gateway."""

    def __init__(self, gateway: Gateway, data: str, manifests: str) -> None:
        self._environment = {**os.environ, **gateway.environment()}
        self._roots = ("--data", f"s3://{data}", "--manifests", f"s3://{manifests}/of/{data}")

    def __call__(self, *words: str) -> Answer:
        return finished(self.start(*words))

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [COMMAND, *self._roots, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
        )


def finished(process: subprocess.Popen[str]) -> Answer:
    out, err = process.communicate(timeout=100)
    return Answer(process.returncode, out, err)


@pytest.fixture
def at_gateway(gateway: Gateway, bucket: str) -> AtGateway:
    manifests = f"{bucket}-manifests"
    gateway.create_bucket(manifests)
    (gateway.root / bucket).mkdir(exist_ok=True)
    arrays = [
        RawArray("tas", (40, 8, 8), (1, 4, 8), ["time", "lat", "lon"], nbytes=32),
        RawArray("time", (40,), (1,), ["time"], nbytes=100),
    ]
    write_store(LocalStore(gateway.root / bucket), SCOPE, arrays)
    return AtGateway(gateway, bucket, manifests)


@pytest.mark.services
def test_a_gateway_and_its_directory_give_the_same_answers(
    at_gateway: AtGateway, gateway: Gateway, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    local = CommandLine(capsys, tmp_path)
    local.data = gateway.root / bucket
    for words in (
        ["partition", SCOPE, *SMALL, "--json"],
        ["pin", "add", SCOPE, "tas/c/3", "--reason", "x"],
        ["scan"],
        ["scan", "--json"],
        ["show"],
        ["resolve", f"{SCOPE}/tas/c/5/0/0", f"{SCOPE}/tas/c/3/0/0", "x"],
        ["report", "--json", "--per-bucket"],
        ["verify"],
        ["objects", SCOPE, "b_tas_0", "--count"],
        ["pin", "show", "--json"],
    ):
        there, here = at_gateway(*words), local(*words)
        assert (there.code, here.code) == (0, 0)
        assert without_times(there.out) == without_times(here.out)
    assert sorted(at_gateway("objects", SCOPE, "b_tas_1").lines) == sorted(local("objects", SCOPE, "b_tas_1").lines)


def without_times(out: str) -> object:
    try:
        answer = json.loads(out)
    except ValueError:
        return [line.rpartition("  ")[0] if "T" in line.rpartition("  ")[2] else line for line in out.splitlines()]
    for pin in answer.get("pins", []):
        del pin["at"]
    return answer


@pytest.mark.services
def test_people_who_cut_at_once(at_gateway: AtGateway) -> None:
    first = [finished(process) for process in [at_gateway.start("partition", SCOPE, *SMALL) for _ in range(3)]]
    assert [answer.code for answer in first] == [0, 0, 0]
    assert sum("wrote epoch" in answer.out for answer in first) == 1
    forced = [
        at_gateway.start("partition", SCOPE, "--force", "--yes", "--t-max", size) for size in ("640", "320", "160")
    ]
    answers = [finished(process) for process in forced]
    codes = [answer.code for answer in answers]
    assert 0 in codes
    assert set(codes) <= {0, 4}
    for answer in answers:
        if answer.code == 4:
            assert "somebody else changed it meanwhile" in answer.err
    assert at_gateway("verify").code == 0


@pytest.mark.services
def test_a_store_that_goes_away(at_gateway: AtGateway, gateway: Gateway, bucket: str) -> None:
    at_gateway("partition", SCOPE, *SMALL)
    shutil.rmtree(gateway.root / bucket / SCOPE)
    gone = at_gateway("partition", SCOPE)
    assert (gone.code, gone.out) == (5, "")
    assert gone.err.endswith(f"there is no zarr store at '{SCOPE}'\n")
    assert "nothing is stored below 'a/st.zarr'" in at_gateway("verify").out


@pytest.mark.services
@pytest.mark.parametrize(
    ("words", "changed", "said"),
    [
        (["--data", "s3://no-such-bucket"], {}, "the bucket does not exist"),
        (["--manifests", "s3://no-such-bucket"], {}, "the bucket does not exist"),
        ([], {"AWS_SECRET_ACCESS_KEY": "wrong"}, "access denied, SignatureDoesNotMatch"),
        (["--endpoint", "http://127.0.0.1:9", "--timeout", "2"], {}, "the connection was refused"),
        (
            ["--endpoint", "http://no.such.host.invalid", "--timeout", "2"],
            {},
            "the name of the host cannot be resolved",
        ),
    ],
)
def test_what_does_not_serve_us_is_one_line(
    at_gateway: AtGateway, words: Sequence[str], changed: dict[str, str], said: str
) -> None:
    at_gateway("partition", SCOPE, *SMALL)
    at_gateway._environment |= changed
    for command in ("scan", "report", "verify"):
        answer = at_gateway(*words, command)
        assert (answer.code, answer.out) == (3, "")
        assert said in answer.err
        assert answer.err.count("\n") == 1
