"""`python -m tests.soak [--minutes M] [--seed N]`: a long run, with its figures in the end."""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import sys
import tempfile
from pathlib import Path

from tests.services.gateway_binary import installed_gateway
from tests.soak.soak import Report, soak


def show(report: Report) -> str:
    """Spells the figures of a run."""
    score = report.score
    lines = [
        f"stores {report.stores}, puts {report.puts}, objects {score.objects}, archivable {score.archivable}",
        f"told: by event {score.by_event}, by backfill only {score.by_backfill}; records {dict(report.records)}",
        f"last write to last record of a store: median {statistics.median(report.delays_s):.1f} s",
        f"last write to last record of a store: at most {report.delays_s[-1]:.1f} s",
        f"alerts {report.alerts}; left in queues {report.waiting}",
        f"missing {len(score.missing)}, unclaimed {len(score.unclaimed)}, forbidden {len(score.forbidden)}",
        f"alerts wrong {len(score.repeated_alerts)}, unheard {len(score.unheard)}, scopes {len(score.other_scopes)}",
        *(f"  {what}: {count}" for what, count in sorted(report.attacks.items())),
    ]
    lines += [f"  ! {thing}" for things in score.wrong for thing in things[:10]]
    return "\n".join(lines)


def main() -> int:
    """Runs one soak; exit code 1 where anything is missing or wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dir", type=Path, help="where logs are left; else they are removed")
    args = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL)  # aiormq tells of every connection that a killed broker refuses
    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        directory = args.dir or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        report = asyncio.run(soak(directory, installed_gateway(), seed=args.seed, war_s=args.minutes * 60))
    sys.stdout.write(show(report) + "\n")
    return 1 if report.waiting or not report.score.is_clean else 0


if __name__ == "__main__":
    sys.exit(main())
