from __future__ import annotations

from itertools import islice

import pytest
from structlog.testing import capture_logs

from blobmap.errors import RefusedError, UnavailableError
from consumer import retry
from consumer.retry import growing_delays, persist


def test_delays_double_up_to_the_longest() -> None:
    assert list(islice(growing_delays(), 7)) == [0.2, 0.4, 0.8, 1.6, 3.0, 3.0, 3.0]


@pytest.fixture
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_FIRST_S", 0.001)


class Attempts:
    """Fails some times, then works."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.made = 0
        self._failures = failures
        self._error = error

    async def __call__(self) -> str:
        self.made += 1
        if self.made <= self._failures:
            raise self._error
        return "there"


@pytest.mark.usefixtures("_short_delays")
async def test_tries_until_it_works_and_says_once_that_it_waits() -> None:
    attempts = Attempts(4, UnavailableError("away"))
    with capture_logs() as logs:
        assert await persist(attempts, what="reach it", give_up_s=10) == "there"
    assert attempts.made == 5
    assert [(line["event"], line["what"], line["reason"]) for line in logs] == [("waiting", "reach it", "away")]


@pytest.mark.usefixtures("_short_delays")
async def test_gives_up_with_the_last_reason() -> None:
    attempts = Attempts(1_000_000, UnavailableError("away"))
    with pytest.raises(UnavailableError) as caught:
        await persist(attempts, what="reach it", give_up_s=0.05)
    assert str(caught.value) == "cannot reach it, tried for 0.05 s: away"
    assert attempts.made > 2


async def test_what_trying_again_cannot_help_is_raised_at_once() -> None:
    attempts = Attempts(1, RefusedError("no"))
    with pytest.raises(RefusedError, match=r"^no$"):
        await persist(attempts, what="reach it", give_up_s=10)
    assert attempts.made == 1
