"""Put the manifest root into one checked archive.

Pins and blob ids are the part of a site that cannot be made again from its data. The archive is a tar.gz file with a
checksum of every manifest in it; it appears under its name only when it is whole, and never replaces another file.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import blobmap
from blobmap.backup import back_up
from blobmap.cli.options import open_manifests
from blobmap.cli.output import many, warn, write_json, write_line
from blobmap.errors import UnreadableError
from blobmap.policy import format_size

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `backup` takes."""
    parser.add_argument(
        "file", metavar="FILE", help="the archive, which must not exist: blobmap-2026-12-01.tar.gz, say"
    )


def run(args: argparse.Namespace) -> int:
    """Back up; exit 5 if a manifest in the archive is broken."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    made = back_up(open_manifests(args), Path(args.file), at=at, by=f"blobmap {blobmap.__version__}")
    if args.json:
        write_json(
            {
                "file": args.file,
                "bytes": made.archive.file_bytes,
                "sha256": made.archive.sha256,
                "scopes": list(made.scopes),
                "problems": list(made.problems),
            }
        )
    else:
        size = format_size(made.archive.file_bytes)
        write_line(f"wrote {args.file}: {many(len(made.scopes), 'manifest')}, {size}, sha256 {made.archive.sha256}")
    for problem in made.problems:
        warn(f"kept as it is, and broken: {problem}")
    return UnreadableError.exit_code if made.problems else 0
