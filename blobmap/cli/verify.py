"""Check every manifest against its format, its place, its neighbours and the data.

Each finding is a line: whose manifest, what kind, and what it is about. Nothing is changed. Exit code 1 if anything was
found, also where a manifest cannot be read.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from blobmap.cli.options import open_data, open_manifests, scope_given
from blobmap.cli.output import many, warn, write_json, write_line, write_table
from blobmap.cli.progress import progress
from blobmap.errors import UnreadableError
from blobmap.verify import verify_manifests

if TYPE_CHECKING:
    import argparse

EXIT_FINDINGS: Final = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `verify` takes."""
    parser.add_argument("scope", metavar="SCOPE", nargs="?", help="only the manifest of this scope")


def run(args: argparse.Namespace) -> int:
    """Verify; exit 1 on findings, 5 if a part of the data or of the manifest root could not be looked at."""
    data, manifests = open_data(args), open_manifests(args)
    scope = None if args.scope is None else scope_given(args.scope)
    with progress() as show:
        found = verify_manifests(data, manifests, scope, on_progress=lambda objects: show(many(objects, "object")))
    if args.json:
        write_json(
            {
                "scopes": list(found.scopes),
                "findings": [asdict(finding) for finding in found.findings],
                "problems": list(found.problems),
            }
        )
    else:
        if found.findings:
            write_table(
                ("scope", "finding", "what"),
                [(finding.scope or '""', finding.kind, finding.text) for finding in found.findings],
            )
        write_line(f"{many(len(found.scopes), 'manifest')}, {many(len(found.findings), 'finding')}")
    for problem in found.problems:
        warn(problem)
    if found.problems:
        return UnreadableError.exit_code
    return EXIT_FINDINGS if found.findings else 0
