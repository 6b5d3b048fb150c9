"""Say which blob each key belongs to, or why it belongs to none.

One line a key, in the order given: the blob id, or `hot`, `pinned` or `unmanaged`. A key that was never written
resolves like any other.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from blobmap.cli.options import open_manifests
from blobmap.cli.output import warn, write_json_line, write_line
from blobmap.errors import UnreadableError
from blobmap.resolve import Trie

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

NAME = "resolve"

BLOCK_BYTES = 1 << 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `resolve` takes."""
    parser.add_argument("keys", metavar="KEY", nargs="+", help="keys relative to the bucket; - reads them from stdin")


def run(args: argparse.Namespace) -> int:
    """Answer for each key; exit 5 if a manifest had to be skipped."""
    store = open_manifests(args)
    trie = Trie()
    trie.add_all(store.load_all())
    for key in _keys(args.keys):
        found = trie.lookup(key)
        if args.json:
            write_json_line(
                {"key": key, "kind": found.kind, "blob_id": found.blob_id, "scope": found.scope, "epoch": found.epoch}
            )
        else:
            write_line(found.blob_id or found.kind)
    for problem in store.problems:
        warn(problem)
    return UnreadableError.exit_code if store.problems else 0


def _keys(words: Iterable[str]) -> Iterator[str]:
    for word in words:
        if word == "-":
            yield from read_keys(sys.stdin.buffer)
        else:
            yield word


def read_keys(stream: BinaryIO) -> Iterator[str]:
    """Split a stream into keys without holding it in memory.

    Args:
        stream: keys that end in a newline each, or in NUL (as `find -print0` and `blobmap objects -0` write them, for
            keys that hold a newline). A NUL in the first block decides: an S3 key is at most 1,024 bytes long.

    Yields:
        Each key; bytes that are not UTF-8 as lone surrogates, which no rule claims.
    """
    block = stream.read(BLOCK_BYTES)
    end = b"\0" if b"\0" in block else b"\n"
    rest = b""
    while block:
        *whole, rest = (rest + block).split(end)
        yield from (key.decode("utf-8", "surrogateescape") for key in whole)
        block = stream.read(BLOCK_BYTES)
    if rest:
        yield rest.decode("utf-8", "surrogateescape")
