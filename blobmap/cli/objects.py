"""List every object of one blob: the reverse of `resolve`.

Only the parts of the bucket are listed that can hold objects of the blob. On a terminal each line has the size and the
key; into a pipe or file go the keys alone, one a line, or with a NUL after each under -0, ready for a copy tool.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from blobmap.cli.options import open_data, open_manifests, scope_given
from blobmap.cli.output import many, printable, warn, write, write_json, write_json_line, write_line
from blobmap.cli.terminal import is_terminal
from blobmap.contents import blob_objects
from blobmap.errors import UsageError
from blobmap.policy import format_size

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from blobmap.objects import Entry


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `objects` takes."""
    parser.add_argument("scope", metavar="SCOPE", help='of the blob, relative to --data; "" for the whole bucket')
    parser.add_argument("blob_id", metavar="BLOB_ID", help="as `resolve` names it")
    parser.add_argument("--count", action="store_true", help="how many they are, and their size together")
    parser.add_argument("-0", "--null", action="store_true", help="keys alone, with a NUL after each")


def run(args: argparse.Namespace) -> int:
    """List or count the objects."""
    if args.null and (args.json or args.count):
        raise UsageError("-0 lists keys: give it without --json and --count")
    scope = scope_given(args.scope)
    entries = blob_objects(open_data(args), open_manifests(args), scope, args.blob_id)
    if args.count:
        _count(entries, scope, args.blob_id, as_json=args.json)
    elif args.json:
        for entry in entries:
            write_json_line(
                {
                    "key": entry["path"],
                    "bytes": entry["size"],
                    "etag": entry["e_tag"],
                    "last_modified": entry["last_modified"].isoformat(),
                }
            )
    elif args.null:
        for entry in entries:
            write(entry["path"] + "\0")
    else:
        _list(entries)
    return 0


def _count(entries: Iterable[Entry], scope: str, blob_id: str, *, as_json: bool) -> None:
    objects = stored_bytes = 0
    for entry in entries:
        objects += 1
        stored_bytes += entry["size"]
    if as_json:
        write_json({"scope": scope, "blob_id": blob_id, "objects": objects, "bytes": stored_bytes})
    else:
        write_line(f"{many(objects, 'object')}, {format_size(stored_bytes)}")


def _list(entries: Iterable[Entry]) -> None:
    for_people = is_terminal(sys.stdout)
    objects = broken = 0
    for entry in entries:
        key = entry["path"]
        objects += 1
        if for_people:
            write_line(f"{format_size(entry['size']):>10}  {printable(key)}")
        else:
            broken += "\n" in key
            write_line(key)
    if broken:
        warn(f"a newline is part of {many(broken, 'key')}, so lines are not keys here: give -0")
    if not objects:
        warn("nothing is stored of this blob")
