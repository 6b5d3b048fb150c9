"""A directory tree as a store: a walk that names files as they are on disk, and their content.

No obstore here: its local listing ends whole at one control character or link loop, and follows links out of the root.
Manifests and zarr are unknown here; writing is `local_writes`.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from blobmap.errors import BlobmapError, MissingError, RefusedError, UnavailableError, UsageError
from blobmap.gaps import printable
from blobmap.objects import Body, Entry, Level, check_size

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator

    from blobmap.gaps import Gaps
    from blobmap.splits import Share

OWN = ".blobmap"  # directory below a root for what is ours
LOCK = "lock"
INCOMING = "incoming"

_PAGE = 1000  # objects a page: what S3 gives
_EPOCH = datetime.fromtimestamp(0, UTC)
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO})
_REFUSED = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EEXIST}
)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class LocalFiles:
    """Objects below one directory; a key is the path below it, byte for byte.

    A link is an object where it leads to a regular file below the root; any other link is named as unreadable and not
    followed, so that no walk leaves the root or goes round in a circle.

    Args:
        root: the directory; links in this path itself are resolved once, here.
        exclude: names that are left out with all that is below them.
        gaps: told the key of everything that could not be listed, and every name that is no text.

    Attributes:
        root: the directory, its path without links.
        exclude: as given.
        gaps: as given.
    """

    def __init__(self, root: str, *, exclude: Collection[str], gaps: Gaps) -> None:
        self.root = os.path.realpath(root)
        self._below = self.root.rstrip("/") + "/"
        self.exclude = frozenset(exclude)
        self.gaps = gaps

    def pages(self, prefix: str, after: str | None, share: Share | None = None) -> Iterator[list[Entry]]:
        """Every file below `prefix` (greater than `after`, of a share of them), in the order of the file system.

        One open directory a level is all that is held, however many files there are.

        Raises:
            RefusedError: the root may not be read.
            UnavailableError: the root cannot be read.
        """
        page: list[Entry] = []
        levels = self._opened(prefix, None, after, share)
        try:
            while levels:
                for found in levels[-1].found:
                    if isinstance(found, str):
                        levels += self._opened(found, levels[-1].descriptor, after, share)
                        break
                    page.append(found)
                    if len(page) == _PAGE:
                        yield page
                        page = []
                else:
                    levels.pop()
        finally:
            for level in levels:
                level.found.close()
        if page:
            yield page

    def level(self, prefix: str) -> Level:
        """The directories and files directly in `prefix`; empty where there is no such directory. Raises as `pages`."""
        prefixes: list[str] = []
        objects: list[Entry] = []
        for opened in self._opened(prefix, None, None):
            for found in opened.found:
                if isinstance(found, str):
                    prefixes.append(found)
                else:
                    objects.append(found)
        return Level(tuple(prefixes), tuple(objects))

    def get(self, key: str, limit: int | None) -> Body:
        """The content of a file of at most `limit` bytes, with the etag of that very content.

        Raises:
            MissingError: there is no such file, or it is no regular file below the root.
            UnreadableError: it is larger than `limit`.
            RefusedError: it may not be read.
        """
        path = self.inside(key)
        try:
            # A named pipe would block without O_NONBLOCK.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                found = os.fstat(descriptor)
                if not stat.S_ISREG(found.st_mode):
                    raise MissingError(f"{path} is no regular file")
                check_size(found.st_size, limit, str(path))
                return Body(file.read(), etag_of(found))
        except OSError as error:
            raise fault(error, path) from error

    def find(self, key: str) -> os.stat_result | None:
        """What a key has now; None where there is nothing."""
        path = self.inside(key)
        try:
            return path.stat()
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise fault(error, path) from error

    def is_link(self, key: str) -> bool:
        """Whether a key is, itself, a link."""
        return Path(self._below + key).is_symlink()

    def inside(self, key: str) -> Path:
        """The path of a key.

        Raises:
            MissingError: it has an empty, `.` or `..` segment, or leads out of the root through a link.
        """
        path = self._below + key
        if not {"", ".", ".."}.isdisjoint(key.split("/")) or "\0" in key:
            raise MissingError(f"{key!r} is no key below {self.root}: a segment is empty, '.' or '..'")
        if not os.path.realpath(path).startswith(self._below):
            raise MissingError(f"{key!r} leads out of {self.root} through a link: links are not followed out of it")
        return Path(path)

    def _opened(self, prefix: str, above: int | None, after: str | None, share: Share | None = None) -> list[_Opened]:
        """The directory of a prefix, opened from the one above it; none where it is gone or cannot be read."""
        try:
            if above is not None:
                # The name alone, and no link: nobody can lead the walk elsewhere while it runs.
                descriptor = os.open(prefix.rpartition("/")[2], _DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
            else:
                descriptor = os.open(self.inside(prefix) if prefix else self.root, _DIRECTORY)
        except MissingError:
            return []
        except OSError as error:
            if not prefix:
                raise fault(error, Path(self.root)) from error
            if error.errno not in _ABSENT:
                self.gaps.note_unreadable(prefix)
            return []
        return [_Opened(descriptor, self._read(prefix, descriptor, after, share))]

    def _read(self, prefix: str, descriptor: int, after: str | None, share: Share | None) -> Generator[Entry | str]:
        """What a directory holds: files as entries, directories as their keys. Closes the descriptor at its end."""
        base = f"{prefix}/" if prefix else ""
        hidden = self.exclude if prefix != OWN else self.exclude | {LOCK, INCOMING}
        try:
            with os.scandir(descriptor) as items:
                for item in items:
                    name = item.name
                    if name in hidden or (not name.isascii() and not self._is_text(base, name)):
                        continue
                    if share is not None and not share.takes(prefix, name):
                        continue
                    key = base + name
                    try:
                        if item.is_dir(follow_symlinks=False):
                            if _may_hold_more(key, after):
                                yield key
                            continue
                        found = self._stat(key, item) if after is None or key > after else None
                    except OSError as error:
                        if error.errno not in _ABSENT:
                            self.gaps.note_unreadable(key)
                        continue
                    if found is not None:
                        yield {
                            "path": key,
                            "last_modified": _modified(found),
                            "size": found.st_size,
                            "e_tag": etag_of(found),
                            "version": None,
                        }
        except OSError:
            self.gaps.note_unreadable(prefix)
        finally:
            os.close(descriptor)

    def _stat(self, key: str, item: os.DirEntry[str]) -> os.stat_result | None:
        """What a directory entry is, if it is an object: a regular file, or a link to one below the root."""
        if item.is_file(follow_symlinks=False):
            return item.stat(follow_symlinks=False)
        if not item.is_symlink():
            return None  # a pipe, a socket or a device holds no data
        real = os.path.realpath(self._below + key)
        if real.startswith(self._below):
            with suppress(OSError):
                found = Path(real).stat()
                if stat.S_ISREG(found.st_mode):
                    return found
        self.gaps.note_unreadable(key)
        return None

    def _is_text(self, base: str, name: str) -> bool:
        """Whether a name is UTF-8; one that is not is no key, and named."""
        try:
            name.encode()
        except UnicodeEncodeError:
            self.gaps.note_odd(base + name)
            self.gaps.note_unreadable(base + name)
            return False
        return True


class _Opened(NamedTuple):
    """A directory that is being read."""

    descriptor: int
    found: Generator[Entry | str]


def local_directory(given: str, *, create: bool) -> Path:
    """The directory that a path names, `~` included.

    Args:
        given: a path.
        create: make it, and what is above it, where it is missing.

    Raises:
        UsageError: it is no path of a directory, or missing and not to be made.
        RefusedError: it cannot be made or reached.
    """
    try:
        path = Path(given).expanduser().absolute()
    except RuntimeError as error:
        raise UsageError(f"{given!r} is no path: {error}") from error
    try:
        if create and given:
            path.mkdir(parents=True, exist_ok=True)
        is_directory = bool(given) and path.is_dir()
    except ValueError:  # a NUL
        is_directory = False
    except OSError as error:
        if error.errno not in _ABSENT and error.errno != errno.EEXIST:
            raise fault(error, path) from error
        is_directory = False
    if not is_directory:
        raise UsageError(f"{given!r} is no directory")
    return path


def etag_of(found: os.stat_result) -> str:
    """The etag of a file: quoted, made of inode, modification time and size."""
    return f'"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"'


def fault(error: OSError, path: Path, *, writing: bool = False) -> BlobmapError:
    """The error of our tree for one of the operating system."""
    said = f"{printable(str(path))}: {error.strerror or error}"
    if error.errno in _ABSENT:
        return RefusedError(said) if writing else MissingError(said)
    if error.errno in _REFUSED:
        return RefusedError(said)
    return UnavailableError(said)


def _may_hold_more(directory: str, after: str | None) -> bool:
    """Whether a key below a directory can be greater than `after`."""
    return after is None or after.startswith(directory + "/") or directory + "/" > after


def _modified(found: os.stat_result) -> datetime:
    try:
        return datetime.fromtimestamp(found.st_mtime, UTC)
    except (ValueError, OverflowError, OSError):
        return _EPOCH  # a clock that was set to nonsense is no reason to lose a listing
