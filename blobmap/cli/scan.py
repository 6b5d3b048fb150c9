"""Find every store below a prefix, and which of them nobody has cut yet.

A store is NEW, or has a manifest of its own with an epoch, or lies within what the manifest of another scope claims.
Arrays that no manifest claims are named, and so is what is no zarr store at all. With --partition every store that is
new or has such arrays is cut.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from blobmap.cli.options import open_data, open_manifests
from blobmap.cli.output import many, printable, some, warn, write_json, write_line, write_table
from blobmap.cli.progress import progress
from blobmap.errors import ConflictError, MissingError, UnreadableError
from blobmap.policy import format_size
from blobmap.scan import scan_stores
from blobmap.service import partition_store

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from blobmap.manifests import ManifestStore
    from blobmap.scan import FoundStore, Scan
    from blobmap.storage import Storage

_NAMED: Final = 3  # arrays or stores that a cell names at most


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `scan` takes."""
    parser.add_argument("prefix", metavar="PREFIX", nargs="?", default="", help="where to look; everywhere if left out")
    parser.add_argument("--partition", action="store_true", help="cut what nobody has cut")
    parser.add_argument("--dry-run", action="store_true", help="with --partition: decide, and write nothing")


def run(args: argparse.Namespace) -> int:
    """Scan, and cut what is not cut if that was asked for."""
    writes = args.partition and not args.dry_run
    data, manifests = open_data(args), open_manifests(args, write=writes, may_be_missing=True)
    prefix = args.prefix.strip("/")
    with progress() as show:
        found = scan_stores(
            data,
            manifests,
            prefix,
            on_progress=lambda folders, stores: show(f"{many(folders, 'folder')}, {many(stores, 'store')}"),
        )
    if prefix and not (found.stores or found.foreign or found.problems):
        raise MissingError(f"{data.name}: nothing is stored below {prefix!r}")
    cuts = tuple(_cut_each(found, data, manifests, dry_run=args.dry_run)) if args.partition else ()
    if args.json:
        write_json(_as_json(found, cuts))
    else:
        _show(found, cuts, dry_run=args.dry_run)
    for problem in found.problems:
        warn(problem)
    if found.problems:
        return UnreadableError.exit_code
    return max((cut.exit_code for cut in cuts), default=0)


@dataclass(frozen=True, slots=True)
class _Cut:
    """What became of one store that was to be cut."""

    scope: str
    epoch: int | None = None
    written: bool = False
    new_rules: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str | None = None
    exit_code: int = 0


def _cut_each(found: Scan, data: Storage, manifests: ManifestStore, *, dry_run: bool) -> Iterator[_Cut]:
    """Cut what is not cut; a store that cannot be cut keeps no other one from it."""
    for store in found.stores:
        if not (store.is_new or store.unclaimed):
            continue
        try:
            outcome = partition_store(data, manifests, store.scope, dry_run=dry_run)
        except (ConflictError, UnreadableError) as error:
            yield _Cut(store.scope, error=str(error), exit_code=error.exit_code)
        else:
            yield _Cut(
                store.scope,
                outcome.manifest.epoch,
                outcome.written,
                outcome.difference.added,
                (*outcome.problems, *outcome.warnings),
                exit_code=UnreadableError.exit_code if outcome.problems else 0,
            )


def _show(found: Scan, cuts: Iterable[_Cut], *, dry_run: bool) -> None:
    if found.stores:
        write_table(
            ("scope", "manifest", "arrays", "unclaimed arrays"),
            [
                (store.scope or '""', _standing(store), f"{store.arrays:,}", some(store.unclaimed, _NAMED) or "-")
                for store in found.stores
            ],
            right=(2,),
        )
    for store in found.stores:
        if store.inner:
            write_line(printable(f"inside {store.scope!r}: {some(store.inner, _NAMED)}"))
    for other in found.foreign:
        size = format_size(other.stored_bytes)
        write_line(printable(f"no store: {other.kind} in {other.prefix!r}, {many(other.objects, 'object')}, {size}"))
    for cut in cuts:
        write_line(printable(_said(cut, dry_run=dry_run)))
        for line in cut.warnings:
            warn(f"{cut.scope!r}: {line}")
    new = sum(store.is_new for store in found.stores)
    unclaimed = sum(bool(store.unclaimed) for store in found.stores if not store.is_new)
    write_line(f"{many(len(found.stores), 'store')}: {new:,} new, {unclaimed:,} with a manifest and unclaimed arrays")


def _standing(store: FoundStore) -> str:
    if store.is_new:
        return "NEW"
    if store.epoch is not None:
        return f"epoch {store.epoch}"
    return "that of " + some([repr(scope) for scope in store.claimed_by], 1)


def _said(cut: _Cut, *, dry_run: bool) -> str:
    if cut.error is not None:
        return f"not cut: {cut.scope!r}: {cut.error}"
    rules = some(cut.new_rules, _NAMED) or "no new rules"
    if not cut.written:
        return f"{'would cut' if dry_run else 'unchanged'}: {cut.scope!r}, epoch {cut.epoch}: {rules}"
    return f"cut: {cut.scope!r}, epoch {cut.epoch}: {rules}"


def _as_json(found: Scan, cuts: Iterable[_Cut]) -> dict[str, object]:
    return {
        "stores": [{**asdict(store), "is_new": store.is_new} for store in found.stores],
        "foreign": [
            {"prefix": other.prefix, "kind": other.kind, "objects": other.objects, "bytes": other.stored_bytes}
            for other in found.foreign
        ],
        "partitioned": [{name: value for name, value in asdict(cut).items() if name != "exit_code"} for cut in cuts],
        "problems": list(found.problems),
    }
