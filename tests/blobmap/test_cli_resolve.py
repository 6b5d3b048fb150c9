from __future__ import annotations

import io
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from blobmap.cli.resolve import BLOCK_BYTES, read_keys
from blobmap.manifest import Blob, Bucket, Manifest, Pin
from tests.support.command_line import SCOPE, SMALL, CommandLine, small_bucket

if TYPE_CHECKING:
    from collections.abc import Iterable

COMMAND = str(Path(sys.executable).with_name("blobmap"))


@pytest.fixture
def blobmap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    line = small_bucket(capsys, tmp_path)
    line("partition", SCOPE, *SMALL)
    return line


def feed(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


KEYS = ("a/st.zarr/tas/c/5000/0/0", "a/st.zarr/time/c/0", "other/x", "a/st.zarr/zarr.json")


def test_the_answers_have_the_order_of_the_keys(blobmap: CommandLine) -> None:
    answer = blobmap("resolve", *KEYS)
    assert answer == (0, "b_tas_250\nhot\nunmanaged\nhot\n", "")
    first, *_ = blobmap("resolve", "--json", *KEYS).lines
    assert json.loads(first) == {
        "key": KEYS[0],
        "kind": "blob",
        "blob_id": "b_tas_250",
        "scope": SCOPE,
        "epoch": 1,
    }


@pytest.mark.parametrize("end", ["\n", "\0"])
def test_keys_come_from_stdin_in_their_place(blobmap: CommandLine, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    feed(monkeypatch, end.join((*KEYS, "")).encode())
    assert blobmap("resolve", "x", "-", KEYS[0]).lines == [
        "unmanaged",
        "b_tas_250",
        "hot",
        "unmanaged",
        "hot",
        "b_tas_250",
    ]


def test_bytes_that_are_no_text_are_keys_too(blobmap: CommandLine) -> None:
    words = [COMMAND, *blobmap.roots, "resolve", "-", "--json"]
    done = subprocess.run(words, input=b"a/\xff\n", capture_output=True, check=True, timeout=60)
    assert json.loads(done.stdout)["key"] == "a/\udcff"
    assert json.loads(done.stdout)["kind"] == "unmanaged"


def test_a_broken_manifest_is_skipped_and_named(blobmap: CommandLine) -> None:
    (blobmap.manifest_root / "manifest.json").write_text("{")
    code, out, err = blobmap("resolve", "a/st.zarr/tas/c/0/0/0", "--strict")
    assert (code, out) == (5, "b_tas_0\n")
    assert err.startswith("blobmap: ")
    assert "manifest.json" in err


def test_strict_is_exit_1_when_a_key_is_unmanaged(blobmap: CommandLine) -> None:
    assert blobmap("resolve", "--strict", *KEYS).code == 1
    assert blobmap("resolve", "--strict", *KEYS[:2]).code == 0
    assert blobmap("resolve", "--strict", "--summary", *KEYS).code == 1


def write_many(blobmap: CommandLine) -> tuple[list[str], list[tuple[str, str, int]]]:
    """Twenty blobs in two scopes; returns keys of all of them, and what a summary should say."""
    expected = []
    keys = []
    for scope in ("b.zarr", "a/b.zarr"):
        rule = Blob("b_v", ("v/c",), Bucket(0, 100, "v3_slash"))
        blobmap.manifests.write(Manifest(scope, 1, ("time/**",), (rule,), (Pin("w", "x"),)), etag=None)
        for number in range(10):
            members = [f"{scope}/v/c/{number * 100 + index}/0" for index in range(20 + number)]
            keys += members
            expected.append((scope, f"b_v_{number}", len(members)))
    return keys, sorted(expected, key=lambda row: (row[0], len(row[1]), row[1]))


def test_a_summary_has_each_blob_once_for_any_order(blobmap: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, expected = write_many(blobmap)
    keys += [f"b.zarr/v{number}/zarr.json" for number in range(30)]
    keys += [f"unknown/{number}" for number in range(10)]
    keys += ["b.zarr/time/c/0", "b.zarr/w/c/0", "b.zarr/w/c/1"]
    answers = set()
    for seed in range(3):
        random.Random(seed).shuffle(keys)  # noqa: S311 - an order, not a secret
        feed(monkeypatch, "\n".join(keys).encode())
        answers.add(blobmap("resolve", "--summary", "-", "--json").out)
    (answer,) = answers
    summary = json.loads(answer)
    blobs = summary.pop("blobs")
    assert [(row["scope"], row["blob_id"], row["keys"]) for row in blobs] == expected
    assert summary == {"keys": len(keys), "metadata": 30, "hot": 1, "pinned": 2, "unmanaged": 10}

    feed(monkeypatch, "\n".join(keys).encode())
    lines = blobmap("resolve", "--summary", "-").lines
    assert [line.split() for line in lines[1:21]] == [[scope, blob, str(count)] for scope, blob, count in expected]
    assert lines[21:] == ["metadata: 30 keys", "hot: 1 key", "pinned: 2 keys", "unmanaged: 10 keys"]


def test_blobs_are_summed_up_in_the_order_of_their_numbers(blobmap: CommandLine) -> None:
    keys = [f"{SCOPE}/tas/c/{number}/0/0" for number in (200, 40, 10**30)]
    named = [row["blob_id"] for row in blobmap("resolve", "--summary", "--json", *keys).json["blobs"]]
    assert named == ["b_tas_2", "b_tas_10", f"b_tas_{10**30 // 20}"]


@pytest.mark.parametrize(
    ("data", "key", "meant"),
    [
        ("s3://cordex", "s3://cordex/a/st.zarr/tas", "a/st.zarr/tas"),
        ("s3://cordex", "cordex/a/st.zarr/tas", "a/st.zarr/tas"),
        ("s3://cordex/nukleus", "cordex/nukleus/st.zarr", "st.zarr"),
        ("s3://cordex/nukleus", "nukleus/st.zarr", "st.zarr"),
        ("/lustre/cordex/", "/lustre/cordex/st.zarr", "st.zarr"),
        (None, "https://host/bucket/key", "bucket/key"),
    ],
)
def test_a_key_with_the_bucket_in_front_gets_a_hint(
    blobmap: CommandLine, data: str | None, key: str, meant: str
) -> None:
    roots = [*(("--data", data) if data else ()), "--manifests", str(blobmap.manifest_root)]
    answer = blobmap.bare(*roots, "resolve", key, key)
    assert (answer.code, answer.lines) == (0, ["unmanaged"] * 2)
    assert answer.err.startswith("blobmap: hint: ")
    assert answer.err.endswith(f"did you mean {meant!r}?\n")
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("key", ["cordex2/x", "a/cordex/x", "a:b/c", "x"])
def test_any_other_key_gets_none(blobmap: CommandLine, key: str) -> None:
    answer = blobmap.bare("--data", "s3://cordex", "--manifests", str(blobmap.manifest_root), "resolve", key)
    assert answer == (0, "unmanaged\n", "")


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\nb b\n", ["a", "b b"]),
        (b"a\nb", ["a", "b"]),
        (b"a", ["a"]),
        (b"a\nb\0c\0", ["a\nb", "c"]),
        (b"\xff\n", ["\udcff"]),
        (b"k\n" * BLOCK_BYTES, ["k"] * BLOCK_BYTES),
    ],
)
def test_a_stream_is_split_into_keys(text: bytes, keys: list[str]) -> None:
    assert joined(read_keys(io.BytesIO(text))) == keys


@pytest.mark.parametrize("end", [b"\n", b"\0"])
def test_a_stream_may_come_in_pieces(end: bytes) -> None:
    class Dripping(io.BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            return super().read1(min(1, size or 1))

    assert joined(read_keys(Dripping(b"ab" + end + b"c" + end))) == ["ab", "c"]


def joined(batches: Iterable[list[str]]) -> list[str]:
    return [key for batch in batches for key in batch]


def test_a_long_stream_takes_no_more_memory(blobmap: CommandLine) -> None:
    """Ten times as many keys of as many arrays may not cost a tenth of what they would hold."""

    def peak_kib(keys: int) -> int:
        script = (
            "import resource, sys; from blobmap.cli import main; main(sys.argv[1:]); sys.stdout.flush();"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
        )
        words = [sys.executable, "-c", script, *blobmap.roots, "resolve", "-"]
        fed = b"".join(b"a/st.zarr/tas/c/%d/0/%d\n" % (number % 5000, number % 7) for number in range(keys))
        done = subprocess.run(words, input=fed, capture_output=True, check=True, timeout=100)
        assert done.stdout.count(b"\n") == keys
        return int(done.stderr)

    assert peak_kib(300_000) - peak_kib(30_000) < 4 * 1024


def test_blocks_are_small() -> None:
    sizes = [len(batch) for batch in read_keys(io.BytesIO(b"k\n" * BLOCK_BYTES * 4))]
    assert max(sizes) <= BLOCK_BYTES
