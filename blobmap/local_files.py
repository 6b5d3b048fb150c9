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
from typing import TYPE_CHECKING

from blobmap.errors import BlobmapError, MissingError, RefusedError, UnavailableError
from blobmap.objects import Body, Entry, Level

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

_PAGE = 1000  # objects a page: what S3 gives
_EPOCH = datetime.fromtimestamp(0, UTC)
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG})
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})


class LocalFiles:
    """Objects below one directory; a key is the path below it, byte for byte.

    A link is an object where it leads to a regular file below the root; any other link is named as unreadable and not
    followed, so that no walk leaves the root or goes round in a circle.

    Args:
        root: the directory; links in this path itself are resolved once, here.
        exclude: names that are left out with all that is below them.
        unreadable: told the key of everything that could not be listed.
    """

    def __init__(self, root: str, *, exclude: Collection[str], unreadable: Callable[[str], None]) -> None:
        self.root = os.path.realpath(root)
        self._below = self.root.rstrip("/") + "/"
        self._exclude = frozenset(exclude)
        self._unreadable = unreadable

    def pages(self, prefix: str, after: str | None) -> Iterator[list[Entry]]:
        """Every file below `prefix` (greater than `after`), in the order of the file system.

        One open directory a level is all that is held, however many files there are.
        """
        page: list[Entry] = []
        for entry in self._walk(prefix):
            if after is not None and entry["path"] <= after:
                continue
            page.append(entry)
            if len(page) == _PAGE:
                yield page
                page = []
        if page:
            yield page

    def level(self, prefix: str) -> Level:
        """The directories and files directly in `prefix`; empty where there is no such directory."""
        prefixes: list[str] = []
        objects: list[Entry] = []
        for item in self._scan(prefix):
            key = f"{prefix}/{item.name}" if prefix else item.name
            if item.is_dir(follow_symlinks=False):
                prefixes.append(key)
            else:
                entry = self._entry(item, key)
                if entry is not None:
                    objects.append(entry)
        return Level(tuple(prefixes), tuple(objects))

    def get(self, key: str) -> Body:
        """The content of a file, with the etag of that very content.

        Raises:
            MissingError: there is no such file, or it is no regular file below the root.
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

    def _walk(self, prefix: str) -> Iterator[Entry]:
        levels = [(f"{prefix}/" if prefix else "", self._scan(prefix))]
        while levels:
            base, items = levels[-1]
            for item in items:
                key = base + item.name
                if item.is_dir(follow_symlinks=False):
                    levels.append((key + "/", self._scan(key)))
                    break
                entry = self._entry(item, key)
                if entry is not None:
                    yield entry
            else:
                levels.pop()

    def _scan(self, prefix: str) -> Iterator[os.DirEntry[str]]:
        exclude = self._exclude
        try:
            with os.scandir(self.inside(prefix) if prefix else self.root) as items:
                for item in items:
                    name = item.name
                    if name in exclude:
                        continue
                    if not name.isascii() and not _is_text(name):
                        self._unreadable(_printable(f"{prefix}/{name}" if prefix else name))
                        continue
                    yield item
        except OSError as error:
            if not prefix:
                raise fault(error, Path(self.root)) from error
            if error.errno not in _ABSENT:
                self._unreadable(prefix)

    def _entry(self, item: os.DirEntry[str], key: str) -> Entry | None:
        """The object that a directory entry is; None: no file, gone meanwhile, or a link that is not followed."""
        try:
            if item.is_file(follow_symlinks=False):
                found = item.stat(follow_symlinks=False)
            elif item.is_symlink():
                linked = self._linked(item, key)
                if linked is None:
                    return None
                found = linked
            else:
                return None
        except FileNotFoundError:
            return None
        return {
            "path": key,
            "last_modified": _modified(found),
            "size": found.st_size,
            "e_tag": etag_of(found),
            "version": None,
        }

    def _linked(self, item: os.DirEntry[str], key: str) -> os.stat_result | None:
        """What a link leads to, if that is a regular file below the root; anything else is named, not followed."""
        real = os.path.realpath(item.path)
        if real.startswith(self._below):
            with suppress(OSError):
                found = Path(real).stat()
                if stat.S_ISREG(found.st_mode):
                    return found
        self._unreadable(key)
        return None


def etag_of(found: os.stat_result) -> str:
    """The etag of a file: quoted, made of inode, modification time and size."""
    return f'"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"'


def fault(error: OSError, path: Path) -> BlobmapError:
    """The error of our tree for one of the operating system."""
    said = f"{_printable(str(path))}: {error.strerror or error}"
    if error.errno in _ABSENT:
        return MissingError(said)
    if error.errno in _REFUSED:
        return RefusedError(said)
    return UnavailableError(said)


def _modified(found: os.stat_result) -> datetime:
    try:
        return datetime.fromtimestamp(found.st_mtime, UTC)
    except (ValueError, OverflowError, OSError):
        return _EPOCH  # a clock that was set to nonsense is no reason to lose a listing


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _printable(key: str) -> str:
    return os.fsencode(key).decode("utf-8", "backslashreplace")
