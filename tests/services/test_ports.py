from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from tests.services.ports import FIRST_PORT, LAST_PORT, TRIES, is_free, lease_port

TRY_THIS_ONE = """
import sys
from pathlib import Path
from tests.services.ports import _lock
print(_lock(Path(sys.argv[1]), 0))
"""


def test_leases_differ_and_lie_below_the_ports_of_outgoing_connections() -> None:
    leases = [lease_port() for _ in range(50)]

    numbers = {lease.number for lease in leases}

    for lease in leases:
        lease.release()
    assert len(numbers) == 50
    assert all(FIRST_PORT <= number <= LAST_PORT for number in numbers)


def test_a_port_is_not_free_while_somebody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = server.getsockname()[1]
        assert not is_free(number)
    assert is_free(number)


def test_another_process_cannot_lease_ours_until_we_release_it() -> None:
    lease = lease_port()
    command = [sys.executable, "-c", TRY_THIS_ONE, lease._lock.name]

    while_held = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lease.release()
    after = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert while_held == "None\n"
    assert "PortLease" in after


def test_a_range_without_a_free_port_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = server.getsockname()[1]
        monkeypatch.setattr("tests.services.ports.FIRST_PORT", number)
        monkeypatch.setattr("tests.services.ports.LAST_PORT", number)

        with pytest.raises(OSError, match=f"no free port of 127.0.0.1 between {number} and {number} in {TRIES} tries"):
            lease_port()
