"""Write the manifests of an archive back.

Each gets an epoch above every one that is known of its scope, and is written only if nobody else changes it meanwhile.
A manifest that the root has already, saying the same, is left as it is; so are scopes that the archive does not have.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from blobmap.backup import restore
from blobmap.cli.options import open_manifests
from blobmap.cli.output import many, printable, some, warn, write_json, write_line
from blobmap.errors import ConflictError, UnreadableError

if TYPE_CHECKING:
    import argparse

    from blobmap.backup import Restored

_NAMED: Final = 8  # rules or scopes that a line names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `restore` takes."""
    parser.add_argument("file", metavar="FILE", help="an archive that `backup` made")


def run(args: argparse.Namespace) -> int:
    """Restore; exit 5 if something could not be restored, 4 if somebody else changed a manifest meanwhile."""
    done = restore(open_manifests(args, write=True), Path(args.file))
    if args.json:
        write_json(asdict(done))
    else:
        _show(done)
    for restored in done.scopes:
        if restored.changed_rules:
            rules = some(restored.changed_rules, _NAMED)
            warn(f"{restored.scope!r}: rules that differ from those that were there, so blobs may be orphaned: {rules}")
    for scope in done.conflicts:
        warn(f"{scope!r}: somebody else changed it meanwhile; it was left as it is")
    for problem in done.problems:
        warn(f"not restored: {problem}")
    if done.problems:
        return UnreadableError.exit_code
    return ConflictError.exit_code if done.conflicts else 0


def _show(done: Restored) -> None:
    written = [restored for restored in done.scopes if restored.written]
    for restored in written:
        write_line(printable(f"restored: {restored.scope!r}, epoch {restored.epoch}"))
    if done.others:
        write_line(printable(f"not in the archive, left alone: {some([repr(scope) for scope in done.others], _NAMED)}"))
    write_line(f"{many(len(written), 'manifest')} written, {len(done.scopes) - len(written):,} unchanged")
