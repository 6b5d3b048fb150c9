"""Ctrl-C: the command ends in order if it can at once, and otherwise within a second, whatever it is waiting for.

Python hears a signal between two of its own instructions only, and a request to a silent server is none of them for as
long as it lasts. The kernel's handler, however, writes each signal into a descriptor at once; a thread that reads it
counts the time that is left. Nothing is lost by an abrupt end: a manifest is exchanged whole or not at all.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from blobmap.cli.terminal import is_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

EXIT_INTERRUPTED: Final = 130  # 128 + SIGINT, as shells count
_GRACE_S: Final = 1.0
_SAID: Final = b"blobmap: interrupted\n"
_CLEAR: Final = b"\r\x1b[K"


class Interrupts:
    """Says once that the command was interrupted. Use `interruptible`."""

    def __init__(self) -> None:
        self._untold = threading.Lock()

    def tell(self) -> None:
        """Say it, unless it was said; from any thread."""
        if self._untold.acquire(blocking=False):
            # Not by way of a stream, which another thread may be in the middle of.
            with suppress(OSError):
                os.write(2, (_CLEAR if is_terminal(sys.stderr) else b"") + _SAID)

    def watch(self, signals: int) -> None:
        """End the process a moment after the first Ctrl-C, or at the second one.

        Args:
            signals: descriptor from which the number of each signal is read; closed where it ends before any.
        """
        if _comes(signals, None):
            _comes(signals, _GRACE_S)
            self.tell()
            os._exit(EXIT_INTERRUPTED)
        os.close(signals)


def _comes(signals: int, wait_s: float | None) -> bool:
    """Wait for a Ctrl-C among the signals; False: they end before, or the time is over."""
    until = None if wait_s is None else time.monotonic() + wait_s
    while select.select([signals], [], [], None if until is None else max(until - time.monotonic(), 0.0))[0]:
        number = os.read(signals, 1)
        if not number or number[0] == signal.SIGINT:
            return bool(number)
    return False


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Take care of Ctrl-C as long as the context lasts; once interrupted, until the process ends.

    Yields:
        What says that the command was interrupted.
    """
    interrupts = Interrupts()
    held = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or held is signal.SIG_IGN:
        yield interrupts
        return
    interrupted = False

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal interrupted
        if not interrupted:  # a second one is for the thread
            interrupted = True
            raise KeyboardInterrupt

    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    threading.Thread(target=interrupts.watch, args=(reading,), daemon=True, name="interrupts").start()
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupts
    finally:
        if not interrupted:
            signal.signal(signal.SIGINT, held)
            signal.set_wakeup_fd(before)
            os.close(writing)
