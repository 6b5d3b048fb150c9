"""Conditional writes to local files that hold between processes: one lock a root, and a rename that is all or nothing.

The lock is the kernel's (flock), so it ends with its holder, however that one died. It holds between the processes of
one host, and between hosts where the file system carries flock (NFS does).
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from blobmap.errors import ConflictError, UnavailableError
from blobmap.local_files import INCOMING, LOCK, OWN, etag_of, fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blobmap.local_files import LocalFiles

_POLL_S = 0.002


class LocalWrites:
    """Writes below one root; what fails leaves the old file as it was.

    Args:
        files: the reading side, whose etags the conditions compare.
        wait_s: seconds that a write waits for the writers before it.
    """

    def __init__(self, files: LocalFiles, *, wait_s: float) -> None:
        self._files = files
        self._wait_s = wait_s
        self._lock = Path(files.root, OWN, LOCK)
        self._beside = Path(files.root, OWN, INCOMING)  # one name is enough: who writes it holds the lock

    def create(self, key: str, data: bytes) -> str:
        """Write a file that must not exist yet; returns its etag.

        Raises:
            ConflictError: it exists.
            RefusedError: we may not write there.
            UnavailableError: others held the lock for too long, or the file system failed.
        """
        with self._locked():
            if self._files.find(key) is not None:
                raise ConflictError(f"{self._files.inside(key)} exists: somebody else made it meanwhile")
            return self._replace(key, data)

    def update(self, key: str, data: bytes, etag: str) -> str:
        """Replace the file that still has this etag; returns the new one. Raises as `create`."""
        with self._locked():
            found = self._files.find(key)
            if found is None or etag_of(found) != etag:
                now = "gone" if found is None else f"at {etag_of(found)}"
                raise ConflictError(
                    f"{self._files.inside(key)} was read at {etag} and is {now}: somebody else changed it meanwhile"
                )
            return self._replace(key, data)

    def put(self, key: str, data: bytes) -> str:
        """Write a file whatever is there; returns its etag. Raises as `create`, but never ConflictError."""
        with self._locked():
            return self._replace(key, data)

    def delete(self, key: str) -> None:
        """Remove a file; one that is not there is no error."""
        path = self._files.inside(key)
        with self._locked():
            if self._files.find(key) is None:
                return
            try:
                path.unlink()
                _sync(path.parent)
            except OSError as error:
                raise fault(error, path, writing=True) from error

    def _replace(self, key: str, data: bytes) -> str:
        """Write beside, then rename over the old file, both synced: a crash leaves the one or the other, whole."""
        path = self._files.inside(key)
        before = self._files.find(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._beside.open("wb") as file:
                file.write(data)
                file.flush()
                written = _stamped(file.fileno(), before)
                os.fsync(file.fileno())
            self._beside.replace(path)
            for directory in path.parents:
                _sync(directory)
                if before is not None or str(directory) == self._files.root:
                    break  # the directories above an old file were synced with its first version
        except OSError as error:
            with suppress(OSError):
                self._beside.unlink()
            raise fault(error, path, writing=True) from error
        return etag_of(written)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of this root against other threads and processes."""
        try:
            self._lock.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise fault(error, self._lock, writing=True) from error
        try:
            self._wait(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _wait(self, descriptor: int) -> None:
        give_up = time.monotonic() + self._wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= give_up:
                    raise UnavailableError(
                        f"{self._lock} is held by another process for more than {self._wait_s:g} s"
                    ) from None
                time.sleep(_POLL_S)
            except OSError as error:
                raise fault(error, self._lock, writing=True) from error
            else:
                return


def _stamped(descriptor: int, before: os.stat_result | None) -> os.stat_result:
    """Make the modification time greater than the one before, so that an etag never comes back.

    Clocks of file systems tick coarsely (4 ms, or whole seconds), and inode numbers are used again: without this the
    third version of a file could carry the etag of the first.
    """
    found = os.fstat(descriptor)
    if before is not None:
        for step_ns in (1, 1_000_000_000):
            if found.st_mtime_ns > before.st_mtime_ns:
                break
            os.utime(descriptor, ns=(before.st_mtime_ns + step_ns, before.st_mtime_ns + step_ns))
            found = os.fstat(descriptor)
    return found


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # network file systems that sync no directories
            raise
    finally:
        os.close(descriptor)
