from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

import pytest

from blobmap import __version__
from tests.support.command_line import SCOPE, SMALL, CommandLine, small_bucket
from tests.support.stores import RawArray

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def blobmap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return small_bucket(capsys, tmp_path)


class Terminal(io.StringIO):
    """Somebody who types."""

    def isatty(self) -> bool:
        return True


def test_the_table_is_shown_and_the_manifest_written(blobmap: CommandLine) -> None:
    answer = blobmap("partition", SCOPE + "/", *SMALL)
    assert (answer.code, answer.err) == (0, "")
    assert answer.lines[0].split() == ["array", "objects", "stored", "object", "blob", "role", "reason"]
    assert answer.lines[1].startswith("tas         80  2.5 KiB    32 B  b_tas_0..1 (width=20, ~1.2 KiB/blob)  data")
    assert answer.lines[2].startswith("time        40  3.9 KiB   100 B  hot")
    assert "new rules: b_tas" in answer.lines
    assert answer.lines[-1] == "2 arrays, 120 objects, 6.4 KiB: wrote epoch 1 of 'a/st.zarr'"
    manifest = blobmap.manifests.read(SCOPE).manifest
    assert manifest.generated_by == f"blobmap {__version__}"
    assert manifest.policy is not None
    assert manifest.policy["t_max_bytes"] == 1280

    again = blobmap("partition", SCOPE)
    assert again.code == 0
    assert again.lines[-1].endswith("nothing changes, epoch 1 of 'a/st.zarr' stays")


def test_a_dry_run_writes_nothing(blobmap: CommandLine) -> None:
    blobmap.manifest_root.mkdir()
    answer = blobmap("partition", SCOPE, "--dry-run")
    assert answer.code == 0
    assert answer.lines[-1].endswith("a dry run, epoch 1 was not written")
    assert list(blobmap.manifest_root.iterdir()) == []


def test_shards_are_named_as_such(blobmap: CommandLine) -> None:
    blobmap.fill("b.zarr", [RawArray("tas", (40,), (4,), ["x"], inner=(2,), nbytes=32)])
    assert "data, sharded" in blobmap("partition", "b.zarr", *SMALL).lines[1]


def test_the_answer_in_json(blobmap: CommandLine) -> None:
    answer = blobmap("--json", "partition", SCOPE, *SMALL).json
    assert (answer["epoch"], answer["previous_epoch"], answer["written"]) == (1, None, True)
    assert [(row["path"], row["verdict"]) for row in answer["arrays"]] == [("tas", "cut"), ("time", "hot")]
    assert answer["difference"]["added"] == ["b_tas"]


def test_thresholds_that_are_not_given_stay_as_recorded(blobmap: CommandLine) -> None:
    blobmap("partition", SCOPE, *SMALL)
    answer = blobmap("partition", SCOPE, "--force", "--yes", "--t-max", "640")
    assert answer.code == 0
    assert "rules whose members move: b_tas" in answer.lines
    manifest = blobmap.manifests.read(SCOPE).manifest
    assert (manifest.epoch, manifest.policy and manifest.policy["t_hot_bytes"]) == (2, 64)
    assert manifest.blobs[0].bucket is not None
    assert manifest.blobs[0].bucket.width == 10


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--t-max", "0"], "'0' is less than one byte"),
        (["--t-max=-5"], "'-5' is not a size"),
        (["--t-hot", "many"], "'many' is not a size"),
        (["--t-aux", "1QiB"], "'1QiB' is not a size"),
        (["--width-clamp", "0"], "width_clamp is 0, allowed: an integer from 1"),
        (["--width-clamp", "x"], "invalid int value: 'x'"),
        (["--pow2-floor=-1"], "pow2_floor is -1, allowed: an integer from 1"),
    ],
)
def test_nonsense_is_refused_before_anything_is_read(blobmap: CommandLine, words: list[str], said: str) -> None:
    answer = blobmap("partition", "no/such/store", *words)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert answer.err.count("\n") == 1
    assert not blobmap.manifest_root.exists()


@pytest.mark.parametrize(("text", "size"), [("1TB", 10**12), ("1 TiB", 2**40), ("2PiB", 2**51), ("4kb", 4000)])
def test_units_mean_what_they_say(blobmap: CommandLine, text: str, size: int) -> None:
    assert blobmap("partition", SCOPE, "--t-max", text, "--json").json["policy"]["t_max_bytes"] == size


def test_force_names_what_it_orphans_and_asks(blobmap: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    blobmap("partition", SCOPE, *SMALL)
    force = ("partition", SCOPE, "--force", "--t-max", "640")
    refused = blobmap(*force)
    assert refused == (
        2,
        "",
        "blobmap: --force moves objects between blobs, and nobody can be asked here: give --yes, or --dry-run\n",
    )
    orphans = "blobmap: orphaned on tape: 2 blobs of b_tas, of which 60 objects (1.9 KiB) leave: b_tas_0, b_tas_1\n"
    assert blobmap(*force, "--dry-run").err == orphans

    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    declined = blobmap(*force)
    assert (declined.code, blobmap.manifests.read(SCOPE).manifest.epoch) == (0, 1)
    assert declined.err.startswith(orphans)
    assert declined.err.endswith("[y/N] blobmap: nothing was written\n")
    assert declined.lines[-1].endswith("not written")

    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    agreed = blobmap(*force, "--json")
    assert (agreed.code, blobmap.manifests.read(SCOPE).manifest.epoch) == (0, 2)
    assert (agreed.json["written"], agreed.json["previous_epoch"]) == (True, 1)
    assert agreed.json["orphaned"] == [
        {"rule": "b_tas", "blob_ids": ["b_tas_0", "b_tas_1"], "objects": 60, "stored_bytes": 1920}
    ]


def test_nothing_is_written_but_what_was_agreed_to(blobmap: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            assert blobmap("pin", "add", SCOPE, "tas", "--reason", "x").code == 0
            return "y\n"

    blobmap("partition", SCOPE, *SMALL)
    monkeypatch.setattr(sys, "stdin", Slow())
    answer = blobmap("partition", SCOPE, "--force", "--t-max", "640")
    assert answer.code == 4
    assert "somebody else changed it meanwhile" in answer.err
    held = blobmap.manifests.read(SCOPE).manifest
    assert (held.epoch, [pin.prefix for pin in held.pinned]) == (2, ["tas"])


def test_strict_tells_of_arrays_without_a_rule(blobmap: CommandLine) -> None:
    odd = RawArray("odd", (40, 8), (1, 8), nbytes=32, members={"chunk_key_encoding": {"name": "suffixed"}})
    blobmap.fill("odd.zarr", [odd])
    assert blobmap("partition", "odd.zarr", *SMALL).code == 0
    answer = blobmap("partition", "odd.zarr", *SMALL, "--strict")
    assert answer.code == 1
    assert "'odd' gets no rule" in answer.err


def test_a_document_that_cannot_be_read_is_exit_5(blobmap: CommandLine) -> None:
    (blobmap.data / SCOPE / "tas/zarr.json").write_text("{")
    answer = blobmap("partition", SCOPE, *SMALL)
    assert answer.code == 5
    assert "a/st.zarr/tas/zarr.json" in answer.err


def test_no_store_is_exit_5(blobmap: CommandLine) -> None:
    answer = blobmap("partition", "a/nothing.zarr")
    assert answer.code == 5
    assert "there is no zarr store at 'a/nothing.zarr'" in answer.err
