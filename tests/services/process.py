"""One service process of a test: its own process group, signals by pid, and an end no later than the test run's."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

# A shell that waits for the end of its input, which comes when this process ends, however it ends, and then kills the
# group. PR_SET_PDEATHSIG would follow the thread that started the service, which may be a short-lived one.
GUARD = 'read -r _; kill -s KILL -- "-$1"'

POLL_S = 0.02


class ServiceError(RuntimeError):
    """A service did not start, stop or answer; the message has the end of its log."""


class ServiceMissingError(RuntimeError):
    """A service cannot be had on this machine; the message says what to install, or who refused."""


class ServiceProcess:
    """A running service, started by its constructor.

    Args:
        command: Program and arguments.
        environment: The whole environment of the process.
        log: File that its output is appended to; its directory is the current one of the process.
    """

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                command,
                cwd=log.parent,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, "guard", str(self.pid)], stdin=subprocess.PIPE, start_new_session=True
        )

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its process group."""
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        if self._child.returncode is not None:
            return False
        # Looked at, not collected: until `kill` has ended the group nobody else may get its number.
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, not to its helpers. After SIGSTOP it has stopped, every thread of it.

        Raises:
            ServiceError: The process has ended.
        """
        if not self.running:
            raise ServiceError(f"process {self.pid} has ended, {number.name} cannot be sent{self.tail()}")
        os.kill(self.pid, number)
        if number is signal.SIGSTOP:  # a thread on another core goes on until it next enters the kernel
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def stop(self, timeout_s: float) -> None:
        """End the process in order (SIGTERM), then whatever its group left behind.

        Raises:
            ServiceError: It had ended before, or it did not end in time and was killed.
        """
        try:
            self.send(signal.SIGTERM)
            deadline = time.monotonic() + timeout_s
            while self.running:
                if time.monotonic() > deadline:
                    raise ServiceError(f"process {self.pid} did not end within {timeout_s} s of SIGTERM{self.tail()}")
                time.sleep(POLL_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """End the whole group at once (SIGKILL); more than once does no harm."""
        if self._child.returncode is not None:
            return
        # The guard first: it knows the group only by its number, which is free once the child is collected.
        self._guard.kill()
        self._guard.communicate()
        os.killpg(self.pid, signal.SIGKILL)
        self._child.wait()

    def tail(self, lines: int = 15) -> str:
        """The end of the log, as the rest of a message."""
        text = self.log.read_text(errors="replace").splitlines()
        return "".join(f"\n  {line}" for line in text[-lines:])


def wait_until(ready: Callable[[], bool], process: ServiceProcess, *, what: str, timeout_s: float) -> None:
    """Wait until a service answers.

    Args:
        ready: Whether it does.
        process: The service.
        what: Its name, for the message.
        timeout_s: How long to wait.

    Raises:
        ServiceError: It ended, or time was up.
    """
    deadline = time.monotonic() + timeout_s
    while process.running:
        if ready():
            return
        if time.monotonic() > deadline:
            raise ServiceError(f"{what} did not answer within {timeout_s} s{process.tail()}")
        time.sleep(POLL_S)
    raise ServiceError(f"{what} ended while starting{process.tail()}")
