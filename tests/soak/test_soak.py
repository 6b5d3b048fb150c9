"""The soak as a test: short, and always the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.soak.__main__ import show
from tests.soak.soak import soak

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.services, pytest.mark.timeout(420)]

_WAR_S = 45.0


async def test_nothing_is_missing_after_a_war(tmp_path: Path, gateway_binary: Path) -> None:
    report = await soak(tmp_path, gateway_binary, seed=20261201, war_s=_WAR_S)
    shown = show(report)
    assert not report.waiting, shown
    assert report.score.is_clean, shown
    # A war without casualties, or one that nobody survived, proves nothing.
    assert report.score.by_event > 0, shown
    assert report.score.by_backfill > 0, shown
    assert sum(count for what, count in report.attacks.items() if "killed" in what) > 2, shown
