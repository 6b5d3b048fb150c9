"""Cut one store into blobs and write its manifest.

The table has one row an array: what is stored, the blobs that it falls into, and why. A cut that exists stays as it is;
new rules only fill what nobody claims, unless --force makes all of them anew.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

from blobmap.cli.options import open_data, open_manifests, scope_given
from blobmap.cli.output import many, printable, some, warn, write_json, write_line, write_table
from blobmap.cli.progress import progress
from blobmap.cli.terminal import is_terminal
from blobmap.errors import MissingError, UnreadableError, UsageError
from blobmap.orphans import orphaned
from blobmap.policy import Policy, format_size, parse_size
from blobmap.service import partition_store

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from blobmap.decisions import Decision
    from blobmap.manifests import ManifestStore
    from blobmap.orphans import Orphaned
    from blobmap.service import Outcome
    from blobmap.storage import Storage

EXIT_FINDINGS: Final = 1
_NAMED: Final = 8  # ids that a line names at most


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `partition` takes."""
    parser.add_argument("scope", metavar="SCOPE", help='key of the store, relative to --data; "" for one at the root')
    parser.add_argument("--t-max", metavar="SIZE", help="what a blob holds at most (100GiB)")
    parser.add_argument("--t-hot", metavar="SIZE", help="an array with less than this stored stays on disk (16MiB)")
    parser.add_argument("--t-aux", metavar="SIZE", help="an auxiliary coordinate up to this size stays on disk (1GiB)")
    parser.add_argument("--width-clamp", metavar="N", type=int, help="trust a compression ratio up to N (8)")
    parser.add_argument("--pow2-floor", metavar="N", type=int, help="widths from N on are powers of two (64)")
    parser.add_argument("--dry-run", action="store_true", help="decide, and write nothing")
    parser.add_argument("--force", action="store_true", help="make every cut anew; this moves objects between blobs")
    parser.add_argument("--yes", action="store_true", help="do not ask before --force writes")
    parser.add_argument("--strict", action="store_true", help="exit 1 if an array could not be claimed")


def run(args: argparse.Namespace) -> int:
    """Partition, and show what was decided."""
    if args.force and not (args.yes or args.dry_run or is_terminal(sys.stdin)):
        raise UsageError("--force moves objects between blobs, and nobody can be asked here: give --yes, or --dry-run")
    scope = scope_given(args.scope)
    given = _thresholds(args)
    data, manifests = open_data(args), open_manifests(args, write=not args.dry_run, may_be_missing=True)
    policy = _policy(given, scope, manifests)
    told: tuple[Orphaned, ...] | None = None

    def tell(outcome: Outcome) -> tuple[Orphaned, ...]:
        orphans = _orphans(outcome, data)
        if not args.json:
            _show(outcome)
        for line in (*_said_of(orphans), *outcome.problems, *outcome.warnings):
            warn(line)
        return orphans

    def agreed(outcome: Outcome) -> bool:
        nonlocal told
        listed.close()  # so that no progress is written over the question
        told = tell(outcome)
        return _agreed(scope)

    ask = args.force and not (args.yes or args.dry_run)
    with ExitStack() as listed:
        show = listed.enter_context(progress())
        outcome = partition_store(
            data,
            manifests,
            scope,
            policy=policy,
            force=args.force,
            dry_run=args.dry_run,
            confirm=agreed if ask else None,
            on_progress=lambda now: show(f"{now.objects:,} objects", now.arrays_done, now.arrays),
        )
    orphans = tell(outcome) if told is None else told
    if args.json:
        write_json(_as_json(outcome, orphans))
    else:
        write_line(_ending(outcome, dry_run=args.dry_run))
    if outcome.problems:
        return UnreadableError.exit_code
    unclaimed = any(row.verdict == "unclaimed" for row in outcome.decisions)
    return EXIT_FINDINGS if args.strict and unclaimed else 0


def _thresholds(args: argparse.Namespace) -> dict[str, int]:
    sizes = {"t_max_bytes": args.t_max, "t_hot_bytes": args.t_hot, "t_aux_bytes": args.t_aux}
    given = {name: parse_size(text) for name, text in sizes.items() if text is not None}
    counts = {"width_clamp": args.width_clamp, "pow2_floor": args.pow2_floor}
    given |= {name: count for name, count in counts.items() if count is not None}
    Policy(**given)  # so that nonsense is told before anything is read
    return given


def _policy(given: dict[str, int], scope: str, manifests: ManifestStore) -> Policy | None:
    """Return the recorded thresholds with those of the command line in their place; None: none was given."""
    if not given:
        return None
    try:
        recorded = manifests.read(scope).manifest.policy
    except MissingError:
        recorded = None
    return replace(Policy.from_json(recorded or {}), **given)


def _agreed(scope: str) -> bool:
    sys.stderr.write(f"Write this for {scope!r}? Tape copies of the blobs named above would be orphaned. [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    warn("nothing was written")
    return False


def _orphans(outcome: Outcome, data: Storage) -> tuple[Orphaned, ...]:
    changed = (*outcome.difference.moved, *outcome.difference.removed)
    if outcome.previous is None or not changed:
        return ()
    return orphaned(data, outcome.previous, outcome.manifest, changed)


def _said_of(orphans: Iterable[Orphaned]) -> list[str]:
    return [
        f"orphaned on tape: {many(len(found.blob_ids), 'blob')} of {found.rule}, of which "
        f"{many(found.objects, 'object')} ({format_size(found.stored_bytes)}) leave: {some(found.blob_ids, _NAMED)}"
        for found in orphans
    ]


def _as_json(outcome: Outcome, orphans: Iterable[Orphaned]) -> dict[str, object]:
    manifest, previous = outcome.manifest, outcome.previous
    return {
        "scope": manifest.scope,
        "epoch": manifest.epoch,
        "previous_epoch": previous.epoch if previous else None,
        "written": outcome.written,
        "policy": dict(manifest.policy or {}),
        "arrays": [asdict(row) for row in outcome.decisions],
        "difference": asdict(outcome.difference),
        "orphaned": [asdict(found) for found in orphans],
        "warnings": list(outcome.warnings),
        "problems": list(outcome.problems),
    }


def _show(outcome: Outcome) -> None:
    write_table(
        ("array", "objects", "stored", "object", "blob", "role", "reason"),
        [_row(row) for row in outcome.decisions],
        right=(1, 2, 3),
    )
    difference = asdict(outcome.difference)
    for field, what in (
        ("added", "new rules"),
        ("moved", "rules whose members move"),
        ("removed", "rules that are gone"),
        ("hot_added", "now hot"),
        ("hot_removed", "no longer hot"),
    ):
        if difference[field]:
            write_line(printable(f"{what}: {', '.join(difference[field])}"))


def _row(row: Decision) -> tuple[str, ...]:
    return (
        row.path or "(the store itself)",
        f"{row.objects:,}",
        format_size(row.stored_bytes),
        format_size(row.mean_object_bytes) if row.objects else "-",
        _blobs(row),
        f"{row.role}, sharded" if row.sharded else row.role,
        row.reason,
    )


def _blobs(row: Decision) -> str:
    found = row.blobs
    if found is None:
        return row.verdict
    ids = f"{found.id}_{found.first}" + (f"..{found.last}" if found.last > found.first else "")
    if found.width is None:
        return f"{ids} (whole, {format_size(found.blob_bytes)})"
    return f"{ids} (width={found.width}, ~{format_size(found.blob_bytes)}/blob)"


def _ending(outcome: Outcome, *, dry_run: bool) -> str:
    manifest = outcome.manifest
    objects = sum(row.objects for row in outcome.decisions)
    stored = sum(row.stored_bytes for row in outcome.decisions)
    totals = f"{many(len(outcome.decisions), 'array')}, {many(objects, 'object')}, {format_size(stored)}"
    if outcome.written:
        return f"{totals}: wrote epoch {manifest.epoch} of {manifest.scope!r}"
    if outcome.manifest == outcome.previous:
        return f"{totals}: nothing changes, epoch {manifest.epoch} of {manifest.scope!r} stays"
    return f"{totals}: " + (f"a dry run, epoch {manifest.epoch} was not written" if dry_run else "not written")
