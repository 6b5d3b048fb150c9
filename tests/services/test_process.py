from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.services.process import ServiceError, ServiceProcess, wait_until
from tests.support.processes import living, wait_until_gone

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A service with a helper of its own: both ignore the request to end.
STUBBORN = ["/bin/sh", "-c", "trap '' TERM; sleep 600 & echo started; wait; sleep 600"]

START_AND_WAIT = """
import sys, time
from pathlib import Path
from tests.services.process import ServiceProcess
service = ServiceProcess(["/bin/sh", "-c", "sleep 600 & wait"], environment={}, log=Path(sys.argv[1]))
print(service.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def stubborn(tmp_path: Path) -> Iterator[ServiceProcess]:
    process = ServiceProcess(STUBBORN, environment={}, log=tmp_path / "log")
    wait_until(lambda: "started" in process.tail(), process, what="the service", timeout_s=60.0)
    yield process
    process.kill()


def test_a_killed_service_takes_its_helpers_along(stubborn: ServiceProcess) -> None:
    assert len(living(stubborn.pid)) == 2
    stubborn.kill()
    stubborn.kill()

    wait_until_gone(stubborn.pid)
    assert not stubborn.running


def test_a_service_that_does_not_end_is_killed_and_reported(stubborn: ServiceProcess) -> None:
    with pytest.raises(ServiceError, match=r"did not end within 0.2 s of SIGTERM\n  started"):
        stubborn.stop(0.2)

    wait_until_gone(stubborn.pid)


def test_a_service_that_ends_on_request_is_no_error(tmp_path: Path) -> None:
    process = ServiceProcess(["/bin/sleep", "600"], environment={}, log=tmp_path / "log")

    process.stop(60.0)

    assert not process.running


def test_a_service_that_ended_cannot_be_sent_a_signal(tmp_path: Path) -> None:
    process = ServiceProcess(["/bin/sh", "-c", "echo broken; exit 1"], environment={}, log=tmp_path / "log")
    with pytest.raises(ServiceError, match=r"the service ended while starting\n  broken"):
        wait_until(lambda: False, process, what="the service", timeout_s=60.0)

    with pytest.raises(ServiceError, match=r"has ended, SIGSTOP cannot be sent\n  broken"):
        process.send(signal.SIGSTOP)
    with pytest.raises(ServiceError, match="has ended, SIGTERM cannot be sent"):
        process.stop(60.0)


def test_a_service_that_never_answers_is_an_error(stubborn: ServiceProcess) -> None:
    with pytest.raises(ServiceError, match=r"the service did not answer within 0.1 s\n  started"):
        wait_until(lambda: False, stubborn, what="the service", timeout_s=0.1)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_service_ends_with_the_test_run_however_that_ends(tmp_path: Path, end: signal.Signals) -> None:
    command = [sys.executable, "-c", START_AND_WAIT, str(tmp_path / "log")]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert run.stdout is not None
    service = int(run.stdout.readline())
    assert living(service)

    run.send_signal(end)
    run.communicate()

    wait_until_gone(service)
