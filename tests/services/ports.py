"""Ports of 127.0.0.1 for the services that tests start: free now, and left alone by every other run of ours.

A port that the kernel names (bind to 0) lies among those that it gives to outgoing connections, so any client may hold
it by the time the service binds, or while a test restarts the service. Ours lie below that range, and a file lock keeps
a port ours also while nothing listens on it.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import IO

# Below 32768, where Linux begins to number outgoing connections (net.ipv4.ip_local_port_range).
FIRST_PORT = 20_000
LAST_PORT = 32_000

# More than any test run leases at once; a machine where this many tries fail has another fault.
TRIES = 200


class PortLease:
    """One port of 127.0.0.1, ours until `release`.

    Attributes:
        number: The port.
    """

    def __init__(self, number: int, lock: IO[bytes]) -> None:
        self.number = number
        self._lock = lock

    def release(self) -> None:
        """Let other runs have the port; more than once does no harm."""
        self._lock.close()


def lease_port() -> PortLease:
    """A port on which nothing listens and which no other run has leased.

    Raises:
        OSError: No free port was found.
    """
    directory = Path(tempfile.gettempdir()) / f"blobmap-ports-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    choose = random.SystemRandom()  # a seed set by a test, or by a hypothesis run, must not make two runs choose alike
    for _ in range(TRIES):
        number = choose.randint(FIRST_PORT, LAST_PORT)
        lease = _lock(directory / str(number), number)
        if lease is None:
            continue
        if is_free(number):
            return lease
        lease.release()
    raise OSError(f"no free port of 127.0.0.1 between {FIRST_PORT} and {LAST_PORT} in {TRIES} tries")


def is_free(number: int) -> bool:
    """Whether a service could listen on this port of 127.0.0.1 now."""
    with socket.socket() as probe:
        # As servers do: connections of an earlier listener that still fade away do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", number))
        except OSError:
            return False
        return True


def _lock(path: Path, number: int) -> PortLease | None:
    """The lease of a port, or None where another run has it."""
    lock = path.open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return PortLease(number, lock)
