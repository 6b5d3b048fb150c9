"""A manifest root as one file: a tar archive, compressed, with a checksum for each document and a list of them all.

The list is the last member, so an archive that was cut off has none and is refused. Nothing here knows what a manifest
means.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import tarfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from blobmap.errors import RefusedError, UnreadableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

_ROOT: Final = "root/"
_LIST: Final = "blobmap-archive.json"
_FORMAT: Final = 1
_BLOCK: Final = 2**20
MAX_BYTES: Final = 64 * 2**20
"""Size of a document at most."""


@dataclass(frozen=True, slots=True)
class Written:
    """An archive that was written.

    Attributes:
        documents: how many it holds.
        sha256: of the file, in hexadecimal.
        file_bytes: size of the file.
    """

    documents: int
    sha256: str
    file_bytes: int


def write_archive(path: Path, documents: Iterable[tuple[str, bytes]], *, about: Mapping[str, str]) -> Written:
    """Write an archive; a file appears at the path only when it is whole.

    Args:
        path: of the file, which must not exist.
        documents: keys and contents.
        about: what the list says beside the checksums.

    Returns:
        What was written.

    Raises:
        UsageError: the file exists, or its directory does not.
        RefusedError: the file cannot be written; none is left behind.
    """
    if path.exists():
        raise UsageError(f"{str(path)!r} exists: give another name, so that no backup is lost")
    if not path.parent.is_dir():
        raise UsageError(f"{str(path)!r}: {str(path.parent)!r} is no directory")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as file:
            count = _write(file, documents, about)
            file.flush()
            os.fsync(file.fileno())
        digest = _sha256_of(part)
        _name(part, path)
        return Written(count, digest, path.stat().st_size)
    except FileExistsError as error:
        raise UsageError(f"{str(path)!r} exists: give another name, so that no backup is lost") from error
    except OSError as error:
        raise RefusedError(f"{str(path)!r}: {error.strerror or error}, so no archive was written") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def read_archive(path: Path) -> Iterator[tuple[str, bytes]]:
    """Read an archive, which is checked whole before the first document is given.

    Args:
        path: of the file.

    Yields:
        Keys and contents, in the order of the archive.

    Raises:
        UsageError: there is no such file.
        RefusedError: it cannot be read.
        UnreadableError: it is no such archive, damaged, or not whole; nothing was given.
    """
    try:
        _check(path)
        for member, data in _members(path):
            if member != _LIST:
                yield member.removeprefix(_ROOT), data
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {str(path)!r}") from error
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UnreadableError(f"{str(path)!r} is no archive of ours, or damaged: {error}") from error
    except OSError as error:
        raise RefusedError(f"{str(path)!r}: {error.strerror or error}") from error


def _name(part: Path, path: Path) -> None:
    """Give a file its name without replacing another; where there are no hard links, without a lock against it."""
    try:
        path.hardlink_to(part)
    except FileExistsError:
        raise
    except OSError:
        part.rename(path)


def _write(file: io.BufferedWriter, documents: Iterable[tuple[str, bytes]], about: Mapping[str, str]) -> int:
    sums: dict[str, str] = {}
    # Without a name and a time in it, the same documents give the same file.
    with (
        gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for key, data in documents:
            sums[key] = hashlib.sha256(data).hexdigest()
            _add(archive, _ROOT + key, data)
        listed = {"format": _FORMAT, **about, "sha256": sums}
        _add(archive, _LIST, json.dumps(listed, indent=2).encode() + b"\n")
    return len(sums)


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def _check(path: Path) -> None:
    """Read the archive once through, and hold every member against the list."""
    found: dict[str, str] = {}
    listed: object = None
    for member, data in _members(path):
        if member == _LIST:
            listed = _read_list(path, data)
        else:
            found[member.removeprefix(_ROOT)] = hashlib.sha256(data).hexdigest()
    if listed is None:
        raise UnreadableError(f"{str(path)!r} is no archive of ours, or not whole: it has no {_LIST}")
    if listed != found:
        raise UnreadableError(f"{str(path)!r} is damaged: its documents are not those that its list names")


def _read_list(path: Path, data: bytes) -> object:
    try:
        listed = json.loads(data)
    except ValueError as error:
        raise UnreadableError(f"{str(path)!r} is damaged: its {_LIST} is no JSON") from error
    if not isinstance(listed, dict) or listed.get("format") != _FORMAT:
        raise UnreadableError(f"{str(path)!r} is an archive of a format that this version does not know")
    return listed.get("sha256")


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    with gzip.open(path) as packed:
        with tarfile.open(fileobj=packed, mode="r:") as archive:
            for member in archive:
                file = archive.extractfile(member)
                is_ours = member.name == _LIST or member.name.startswith(_ROOT)
                if file is None or not is_ours or member.size > MAX_BYTES:
                    raise tarfile.TarError(f"{member.name!r} with {member.size} bytes does not belong there")
                yield member.name, file.read()
        # The checksum of the whole comes after what a reader of tar archives reads.
        while packed.read(_BLOCK):
            pass


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
