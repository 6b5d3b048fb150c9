"""Processes that count large arrays on local files, for threads that wait for them.

A walk over directories is one short system call after another, each of which gives up the interpreter's lock and takes
it again: two threads need longer than one. What crosses to another process and back is an order and its sums, never
an object.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from multiprocessing import Pipe
from threading import Lock
from typing import TYPE_CHECKING, Final

from blobmap.counting import READY, Counted, count
from blobmap.errors import BlobmapError, ListingError

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from threading import Event

    from blobmap.counting import Order

SHARES: Final = 2
"""How many shares a large array is counted in, and so how many processes there are."""

# Not `multiprocessing`, which would run the caller's own script again in each process.
_SERVE: Final = (
    "import sys; from multiprocessing.connection import Connection; asked = Connection(int(sys.argv[1])); "
    "sys.path[:] = asked.recv(); from blobmap.counting import serve; serve(asked)"
)
_ENDING_S: Final = 5.0
_LOOK_S: Final = 0.2  # so often somebody who waits looks whether the answer is still wanted


class Counters:
    """Processes of this interpreter, started when they are first needed and used again until they are ended."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._idle: list[_Counter] = []
        self._useful = _processors() > 1 and bool(sys.executable) and not getattr(sys, "frozen", False)

    @property
    def useful(self) -> bool:
        """Whether a process can be started here, and could be faster, as far as is known."""
        return self._useful

    def count(self, order: Order, stopping: Event, on_objects: Callable[[int], None]) -> Counted:
        """Have an order counted by a process; by the calling thread where none can be started.

        Args:
            order: what to count.
            stopping: ends it early when set; the answer is then of no use.
            on_objects: told the number of objects as they are counted.

        Raises:
            ListingError: the process ended before it was done, or something unforeseen went wrong in it.
            RefusedError: the root may not be read.
            UnavailableError: the root cannot be read.
        """
        with self._lock:
            counter = self._idle.pop() if self._idle else None
        try:
            counter = counter or (_started(stopping) if self._useful else None)
            if counter is None:
                self._useful = False
                return count(order, stopping, on_objects)
            answer = counter.ask(order, stopping, on_objects)
        except BaseException:
            if counter is not None:
                counter.end()
            raise
        if stopping.is_set():
            counter.end()
        else:
            with self._lock:
                self._idle.append(counter)
        if isinstance(answer, BlobmapError):
            raise answer
        return answer

    def end(self) -> None:
        """End every process; for when nothing is being counted any more."""
        while self._idle:
            self._idle.pop().end()


class _Counter:
    """One process, and the line to it."""

    def __init__(self, process: subprocess.Popen[bytes], line: Connection) -> None:
        self._process = process
        self._line = line

    def ask(self, order: Order, stopping: Event, on_objects: Callable[[int], None]) -> Counted | BlobmapError:
        """Have one order counted; a process that ends over it is an error, never a smaller array."""
        try:
            self._line.send(order)
            while True:
                said = self.hear(stopping)
                if isinstance(said, int):
                    on_objects(said)
                elif isinstance(said, Counted | BlobmapError):
                    return said
                else:
                    return Counted(order.tally)
        except (EOFError, OSError) as error:
            raise ListingError(
                f"{order.root}: {order.key!r} was not counted to its end, as the process that did so ended "
                f"(exit status {self._left()})"
            ) from error

    def hear(self, stopping: Event) -> object:
        """The next thing it says; None when nobody wants to know any more."""
        while not self._line.poll(_LOOK_S):
            if stopping.is_set():
                return None
        said: object = self._line.recv()
        return said

    def _left(self) -> int:
        """The exit status of a process that is about to end by itself."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(_ENDING_S)
        return self.end()

    def end(self) -> int:
        """End the process, whatever it is doing; returns its exit status."""
        self._line.close()
        self._process.kill()
        return self._process.wait()


def _started(stopping: Event) -> _Counter | None:
    """A process that is ready; None where it could not be started or is of another version."""
    ours, theirs = Pipe()
    with theirs:
        line = theirs.fileno()
        try:
            process = subprocess.Popen(  # noqa: S603 - this interpreter, and code of our own
                # Without -P a module in the current directory could stand in for one of the standard library.
                [sys.executable, "-P", "-c", _SERVE, str(line)],
                pass_fds=[line],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            ours.close()
            return None
    counter = _Counter(process, ours)
    try:
        ours.send(sys.path)
        if counter.hear(stopping) == READY:
            return counter
    except (EOFError, OSError):
        pass
    counter.end()
    return None


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
