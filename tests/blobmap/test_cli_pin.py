from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, NoReturn

import pytest

from blobmap.manifest import Manifest, Pin
from tests.support.command_line import SCOPE, SMALL, CommandLine, small_bucket

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@pytest.fixture
def blobmap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    line = small_bucket(capsys, tmp_path)
    line("partition", SCOPE, *SMALL)
    return line


def test_a_pin_is_added_and_holds(blobmap: CommandLine) -> None:
    key = "a/st.zarr/tas/c/0/0/0"
    words = ("pin", "add", SCOPE, "tas", "--reason", "active analysis", "--until", "2099-12-01", "--by", "me")
    assert blobmap(*words) == (0, "pinned: 'tas' of 'a/st.zarr', epoch 2\n", "")
    (pin,) = blobmap.manifests.read(SCOPE).manifest.pinned
    assert (pin.prefix, pin.reason, pin.by, pin.until) == ("tas", "active analysis", "me", "2099-12-01")
    assert pin.at is not None
    assert pin.at.endswith("+00:00")
    assert blobmap("resolve", key).out == "pinned\n"

    blobmap("partition", SCOPE, "--force", "--yes", "--t-max", "640")
    assert blobmap("resolve", key).out == "pinned\n"
    assert blobmap("pin", "remove", SCOPE, "tas/").out == "no longer pinned: 'tas' of 'a/st.zarr', epoch 4\n"
    assert blobmap("resolve", key).out == "b_tas_0\n"


def test_a_whole_scope_is_pinned_by_whoever_asks(blobmap: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert blobmap("pin", "add", SCOPE, "--reason", "x").out == "pinned: all of 'a/st.zarr', epoch 2\n"
    assert blobmap.manifests.read(SCOPE).manifest.pinned[0].by == getpass.getuser()

    def nobody() -> NoReturn:
        raise KeyError("no such user id")

    monkeypatch.setattr(getpass, "getuser", nobody)
    blobmap("pin", "add", SCOPE, "--reason", "y")
    assert blobmap.manifests.read(SCOPE).manifest.pinned[0].by is None


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("add", SCOPE, "tas"), 2, "required: --reason"),
        (("add", SCOPE, "tas", "--reason", " "), 2, "--reason is empty"),
        (("add", SCOPE, "tas", "--reason", "x", "--until", "soon"), 2, "'soon' is no date"),
        (("add", SCOPE, "../tas", "--reason", "x"), 2, "'../tas' is no prefix"),
        (("add", "..", "--reason", "x"), 2, "scope '..' is no key"),
        (("add", "b.zarr", "--reason", "x"), 5, "scope 'b.zarr' has no manifest"),
        (("remove", SCOPE, "pr"), 2, "no pin on 'pr'; it has pins on: none"),
        (("show", "b.zarr"), 5, "scope 'b.zarr' has no manifest"),
        ((), 2, "required: ACTION"),
    ],
)
def test_a_wrong_pin_changes_nothing(blobmap: CommandLine, words: Iterable[str], code: int, said: str) -> None:
    answer = blobmap("pin", *words)
    assert (answer.code, answer.out) == (code, "")
    assert said in answer.err
    assert answer.err.count("\n") == 1
    assert blobmap.manifests.read(SCOPE).manifest.epoch == 1


def test_a_pin_on_nothing_is_set_with_a_warning(blobmap: CommandLine) -> None:
    answer = blobmap("pin", "add", SCOPE, "tos", "--reason", "x")
    assert answer.code == 0
    assert answer.err == (
        "blobmap: nothing is stored below 'a/st.zarr/tos', so the pin holds nothing: is it spelled right?\n"
    )
    assert "PREFIX is relative to SCOPE" in blobmap("pin", "add", SCOPE, SCOPE + "/tas", "--reason", "x").err
    without_data = blobmap.bare(*blobmap.roots[2:], "pin", "add", SCOPE, "tas", "--reason", "x")
    assert "without --data" in without_data.err


def show_many(blobmap: CommandLine) -> None:
    held = blobmap.manifests.read(SCOPE)
    pins = (
        Pin("time", "fine", until="2099-01-01"),
        Pin("tas", "expired", by="me", until="2020-01-01"),
        Pin("gone", "dangling", until="2099-01-01"),
        Pin("tas/c/0", "open-ended"),
    )
    manifest = Manifest(SCOPE, 2, (), held.manifest.blobs, pins)
    blobmap.manifests.write(manifest, etag=held.etag)


def test_pins_are_shown_with_what_they_hold(blobmap: CommandLine) -> None:
    show_many(blobmap)
    answer = blobmap("pin", "show")
    assert (answer.code, answer.err) == (0, "")
    assert [line.split()[-1] for line in answer.lines[1:5]] == ["expired", "dangling", "open-ended", "fine"]
    assert answer.lines[1].split() == [SCOPE, "tas", "80", "2.5", "KiB", "2020-01-01", "expired", "me", "expired"]
    assert answer.lines[5] == "4 pins, 120 objects, 6.4 KiB: 1 expired, 1 dangling, 1 open-ended"

    shown = blobmap("pin", "show", SCOPE, "--json").json
    assert (shown["objects"], shown["bytes"], shown["problems"]) == (120, 6560, [])
    assert [(pin["prefix"], pin["objects"], pin["concerns"]) for pin in shown["pins"]] == [
        ("tas", 80, ["expired"]),
        ("gone", 0, ["dangling"]),
        ("tas/c/0", 2, ["open-ended"]),
        ("time", 40, []),
    ]


def test_pins_are_shown_without_data_too(blobmap: CommandLine) -> None:
    assert blobmap("pin", "show") == (0, "", "blobmap: no pins\n")
    show_many(blobmap)
    answer = blobmap.bare(*blobmap.roots[2:], "pin", "show")
    assert answer.lines[-1] == "4 pins: 1 expired, 1 open-ended"
    assert "without --data" in answer.err


def test_a_broken_manifest_is_named_beside_the_pins(blobmap: CommandLine) -> None:
    show_many(blobmap)
    (blobmap.manifest_root / "b.zarr").mkdir()
    (blobmap.manifest_root / "b.zarr/manifest.json").write_text("{")
    answer = blobmap("pin", "show")
    assert (answer.code, len(answer.lines)) == (5, 6)
    assert "b.zarr/manifest.json" in answer.err
    assert blobmap("pin", "show", SCOPE).code == 0
