from __future__ import annotations

import io
import resource
import secrets
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from blobmap import archive
from blobmap.archive import read_archive, write_archive
from blobmap.errors import RefusedError, UnavailableError, UnreadableError, UsageError
from tests.support.powerless import powerless

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCUMENTS = [("a/b.json", b"{}"), ("ü/x y.json", b"\x00\xff" * 1000), ("empty", b"")]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "x.tar.gz"
    write_archive(path, DOCUMENTS, about={"at": "now"})
    return path


def test_what_is_written_is_read(written: Path) -> None:
    assert list(read_archive(written)) == DOCUMENTS
    assert [path.name for path in written.parent.iterdir()] == ["x.tar.gz"]
    with tarfile.open(written) as found:
        assert found.getnames()[-1] == "blobmap-archive.json"


def test_the_same_documents_give_the_same_file(written: Path) -> None:
    again = write_archive(written.with_name("y.tar.gz"), DOCUMENTS, about={"at": "now"})
    assert written.with_name("y.tar.gz").read_bytes() == written.read_bytes()
    assert (again.documents, again.file_bytes) == (3, written.stat().st_size)
    assert len(again.sha256) == 64


def test_an_archive_replaces_no_file(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = written.read_bytes()
    with pytest.raises(UsageError, match="exists: give another name"):
        write_archive(written, [], about={})
    monkeypatch.setattr(Path, "exists", lambda _: False)  # it appeared after we looked
    with pytest.raises(UsageError, match="exists: give another name"):
        write_archive(written, [], about={})
    assert written.read_bytes() == before


def test_a_file_system_without_hard_links_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path, target: Path) -> NoReturn:
        raise PermissionError(1, f"no links here, {target}")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    write_archive(tmp_path / "x.tar.gz", DOCUMENTS, about={})
    assert list(read_archive(tmp_path / "x.tar.gz")) == DOCUMENTS
    assert len(list(tmp_path.iterdir())) == 1


def test_nothing_is_left_where_writing_fails(tmp_path: Path) -> None:
    def documents() -> Iterator[tuple[str, bytes]]:
        yield DOCUMENTS[0]
        raise UnavailableError("gone")

    with pytest.raises(UnavailableError):
        write_archive(tmp_path / "x.tar.gz", documents(), about={})
    with pytest.raises(UsageError, match="is no directory"):
        write_archive(tmp_path / "no/x.tar.gz", [], about={})
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the size of files fails a write just as a full disk does: with an error of the operating system."""
    held = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, held[1]))
    try:
        with pytest.raises(RefusedError, match="File too large, so no archive was written"):
            write_archive(tmp_path / "x.tar.gz", [("x", secrets.token_bytes(20_000))], about={})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, held)
    assert list(tmp_path.iterdir()) == []


def test_rights_are_needed() -> None:
    with powerless() as directory:
        write_archive(directory / "x.tar.gz", DOCUMENTS, about={})
        (directory / "x.tar.gz").chmod(0)
        with pytest.raises(RefusedError, match="Permission denied"):
            list(read_archive(directory / "x.tar.gz"))
        directory.chmod(0o500)
        with pytest.raises(RefusedError, match="Permission denied, so no archive was written"):
            write_archive(directory / "y.tar.gz", DOCUMENTS, about={})


def repacked(path: Path, members: list[tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w:gz") as packed:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            packed.addfile(member, io.BytesIO(data))
    return path


def members_of(path: Path) -> list[tuple[str, bytes]]:
    with tarfile.open(path) as packed:
        return [(member.name, file.read()) for member in packed if (file := packed.extractfile(member)) is not None]


def test_damage_is_found_before_anything_is_given(written: Path, tmp_path: Path) -> None:
    members = members_of(written)
    listed = members[-1]
    cases = {
        "a document is missing": [*members[1:]],
        "a document was changed": [(members[0][0], b"[]"), *members[1:]],
        "a document is new": [("root/new", b""), *members],
        "the list is missing": members[:-1],
        "the list is broken": [*members[:-1], (listed[0], b"{")],
        "the list is another one": [*members[:-1], (listed[0], b'{"format": 2}')],
        "something else is in it": [("evil", b""), *members],
        "it leads elsewhere": [("../evil", b""), *members],
    }
    for name, changed in cases.items():
        with pytest.raises(UnreadableError):
            pytest.fail(f"{name}: {next(read_archive(repacked(tmp_path / 'damaged.tar.gz', changed)))}")


def test_a_document_has_a_size_at_most(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_BYTES", 1999)
    with pytest.raises(UnreadableError, match="with 2000 bytes does not belong there"):
        list(read_archive(written))


@pytest.mark.parametrize("cut", [0, 1, 50, 200, -1, -9])
def test_an_archive_that_was_cut_off_is_refused(written: Path, cut: int) -> None:
    written.write_bytes(written.read_bytes()[:cut])
    with pytest.raises(UnreadableError):
        list(read_archive(written))


def test_bits_that_flip_are_found(written: Path) -> None:
    data = bytearray(written.read_bytes())
    for place in range(12, len(data), 7):
        flipped = bytearray(data)
        flipped[place] ^= 1
        written.write_bytes(flipped)
        with pytest.raises(UnreadableError):
            list(read_archive(written))


def test_there_may_be_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        list(read_archive(tmp_path / "x.tar.gz"))
    with pytest.raises(RefusedError, match="Is a directory"):
        list(read_archive(tmp_path))
