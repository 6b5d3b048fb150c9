"""Cut one store into blobs and write its manifest.

The table has one row an array: what is stored, the blobs that it falls into, and why. A cut that exists stays as it is;
new rules only fill what nobody claims, unless --force makes all of them anew.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from blobmap.cli.options import open_data, open_manifests
from blobmap.cli.output import warn, write_json, write_line, write_table
from blobmap.errors import MissingError, UnreadableError, UsageError
from blobmap.policy import Policy, format_size, parse_size
from blobmap.service import partition_store

if TYPE_CHECKING:
    import argparse

    from blobmap.manifests import ManifestStore
    from blobmap.partition import Decision
    from blobmap.service import Outcome

NAME = "partition"

EXIT_FINDINGS = 1


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
    if args.force and not (args.yes or args.dry_run or sys.stdin.isatty()):
        raise UsageError("--force moves objects between blobs, and nobody can be asked here: give --yes, or --dry-run")
    data, manifests = open_data(args), open_manifests(args, write=not args.dry_run)
    policy = _policy(args, manifests)
    ask = args.force and not (args.yes or args.dry_run)
    outcome = partition_store(data, manifests, args.scope, policy=policy, force=args.force, dry_run=args.dry_run or ask)
    _show(outcome, as_json=args.json)
    if ask and outcome.manifest != outcome.previous:
        if not _agreed(args.scope):
            warn("nothing was written")
            return 0
        outcome = partition_store(data, manifests, args.scope, policy=policy, force=True)
    if not args.json:
        write_line(_ending(outcome, dry_run=args.dry_run))
    if outcome.problems:
        return UnreadableError.exit_code
    unclaimed = any(row.verdict == "unclaimed" for row in outcome.decisions)
    return EXIT_FINDINGS if args.strict and unclaimed else 0


def _policy(args: argparse.Namespace, manifests: ManifestStore) -> Policy | None:
    """Return the recorded thresholds with those of the command line in their place; None: none was given."""
    sizes = {"t_max_bytes": args.t_max, "t_hot_bytes": args.t_hot, "t_aux_bytes": args.t_aux}
    given = {name: parse_size(text) for name, text in sizes.items() if text is not None}
    counts = {"width_clamp": args.width_clamp, "pow2_floor": args.pow2_floor}
    given |= {name: count for name, count in counts.items() if count is not None}
    if not given:
        return None
    try:
        recorded = manifests.read(args.scope).manifest.policy
    except MissingError:
        recorded = None
    return replace(Policy.from_json(recorded or {}), **given)


def _agreed(scope: str) -> bool:
    sys.stderr.write(f"Write this for {scope!r}? Blobs named above as moved or removed are orphaned on tape. [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _show(outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        manifest, previous = outcome.manifest, outcome.previous
        write_json(
            {
                "scope": manifest.scope,
                "epoch": manifest.epoch,
                "previous_epoch": previous.epoch if previous else None,
                "written": outcome.written,
                "policy": dict(manifest.policy or {}),
                "arrays": [asdict(row) for row in outcome.decisions],
                "difference": asdict(outcome.difference),
                "warnings": list(outcome.warnings),
                "problems": list(outcome.problems),
            }
        )
    else:
        write_table(
            ("array", "objects", "stored", "object", "blob", "role", "reason"),
            [_row(row) for row in outcome.decisions],
            right=(1, 2, 3),
        )
        _show_difference(outcome)
    for line in (*outcome.problems, *outcome.warnings):
        warn(line)


def _row(row: Decision) -> tuple[str, ...]:
    return (
        row.path or "(the store itself)",
        f"{row.objects:,}",
        format_size(row.stored_bytes),
        format_size(row.mean_object_bytes) if row.objects else "-",
        _blobs(row),
        row.role,
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


def _show_difference(outcome: Outcome) -> None:
    difference = asdict(outcome.difference)
    for field, what in (
        ("added", "new rules"),
        ("moved", "rules whose members move, orphaning their blobs"),
        ("removed", "rules that are gone, orphaning their blobs"),
        ("hot_added", "now hot"),
        ("hot_removed", "no longer hot"),
    ):
        if difference[field]:
            write_line(f"{what}: {', '.join(difference[field])}")


def _ending(outcome: Outcome, *, dry_run: bool) -> str:
    manifest = outcome.manifest
    objects = sum(row.objects for row in outcome.decisions)
    stored = sum(row.stored_bytes for row in outcome.decisions)
    totals = f"{len(outcome.decisions)} arrays, {objects:,} objects, {format_size(stored)}"
    if outcome.written:
        return f"{totals}: wrote epoch {manifest.epoch} of {manifest.scope!r}"
    if outcome.manifest == outcome.previous:
        return f"{totals}: nothing changes, epoch {manifest.epoch} of {manifest.scope!r} stays"
    return f"{totals}: " + (f"a dry run, epoch {manifest.epoch} was not written" if dry_run else "not written")
