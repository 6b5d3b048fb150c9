"""What every test shares: the hypothesis profiles, and the services that tests start themselves."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# Before anything imports it: its assertions belong to tests, and say as much when they fail.
pytest.register_assert_rewrite("tests.support.port_contracts")

pytest_plugins = ["tests.services.fixtures"]

# A shell that starts the tests in the background has SIGINT ignored, and every program below would inherit that: tests
# of Ctrl-C would wait for ever. A handler of ours becomes the default one in a program that is started.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# "ci" repeats the same examples on every machine; "explore" looks for new ones, as long as one likes.
settings.register_profile(
    "ci", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=2_000)
settings.load_profile(os.environ.get("BLOBMAP_TEST_HYPOTHESIS", "ci"))
