"""Say which blob each key belongs to, or why it belongs to none.

One line a key, in the order given: the blob id, or `hot`, `pinned` or `unmanaged`. A key that was never written
resolves like any other. Only the manifests that can cover the keys are read.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Final, cast

from blobmap.chunk_keys import METADATA_NAMES
from blobmap.cli.options import open_manifests
from blobmap.cli.output import many, warn, write_json, write_json_line, write_line, write_table
from blobmap.covering import Covering
from blobmap.errors import UnreadableError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Sequence
    from io import BufferedIOBase

    from blobmap.rules import Resolution

BLOCK_BYTES: Final = 1 << 16
EXIT_FINDINGS: Final = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `resolve` takes."""
    parser.add_argument(
        "keys",
        metavar="KEY",
        nargs="+",
        help="keys relative to the bucket; - reads them from stdin, one a line or with a NUL after each",
    )
    parser.add_argument("--summary", action="store_true", help="each blob once, with how many of the keys it has")
    parser.add_argument("--strict", action="store_true", help="exit 1 if a key is unmanaged")


def run(args: argparse.Namespace) -> int:
    """Answer for each key; exit 5 if a manifest had to be skipped, else 1 under `--strict` with an unmanaged key."""
    covering = Covering(open_manifests(args))
    answers = _answers(_batches(args.keys), covering)
    hint = _Hint(args.data)
    if args.summary:
        unmanaged = _summarise(answers, hint, as_json=args.json)
    else:
        unmanaged = _write_each(answers, hint, as_json=args.json)
    for problem in covering.problems:
        warn(problem)
    if covering.problems:
        return UnreadableError.exit_code
    return EXIT_FINDINGS if args.strict and unmanaged else 0


def _write_each(answers: Iterable[tuple[str, Resolution]], hint: _Hint, *, as_json: bool) -> int:
    """Write one line a key; returns how many are unmanaged."""
    unmanaged = 0
    for key, found in answers:
        if found.kind == "unmanaged":
            unmanaged += 1
            hint.look_at(key)
        if as_json:
            write_json_line(
                {"key": key, "kind": found.kind, "blob_id": found.blob_id, "scope": found.scope, "epoch": found.epoch}
            )
        else:
            write_line(found.blob_id or found.kind)
    return unmanaged


def _summarise(answers: Iterable[tuple[str, Resolution]], hint: _Hint, *, as_json: bool) -> int:
    """Write each blob once, the same for any order of the keys; returns how many keys are unmanaged."""
    blobs: Counter[tuple[str, str]] = Counter()
    others: Counter[str] = Counter()
    for key, found in answers:
        if found.scope is not None and found.blob_id is not None:
            blobs[found.scope, found.blob_id] += 1
        elif found.kind == "hot" and key.rpartition("/")[2] in METADATA_NAMES:
            others["metadata"] += 1
        else:
            others[found.kind] += 1
            if found.kind == "unmanaged":
                hint.look_at(key)
    rows = [(scope, blob_id, blobs[scope, blob_id]) for scope, blob_id in sorted(blobs, key=_by_number)]
    rest = {kind: others[kind] for kind in ("metadata", "hot", "pinned", "unmanaged")}
    if as_json:
        named = [{"scope": scope, "blob_id": blob_id, "keys": count} for scope, blob_id, count in rows]
        write_json({"keys": blobs.total() + others.total(), "blobs": named, **rest})
    else:
        if rows:
            write_table(
                ("scope", "blob", "keys"),
                [(scope, blob_id, f"{count:,}") for scope, blob_id, count in rows],
                right=(2,),
            )
        for kind, count in rest.items():
            if count:
                write_line(f"{kind}: {many(count, 'key')}")
    return rest["unmanaged"]


def _by_number(blob: tuple[str, str]) -> tuple[str, str, int, str]:
    """Order blobs of one rule by their number, which has more digits the larger it is."""
    scope, blob_id = blob
    rule, _, number = blob_id.rpartition("_")
    return scope, rule, len(number), number


def _answers(batches: Iterable[Sequence[str]], covering: Covering) -> Iterator[tuple[str, Resolution]]:
    for batch in batches:
        covering.cover(batch)
        yield from zip(batch, covering.trie.lookup_many(batch), strict=True)


def _batches(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """Give the keys in batches that are small in memory, the answers of each of which need no later one."""
    given: list[str] = []
    for word in words:
        if word != "-":
            given.append(word)
            continue
        yield given
        given = []
        # Typed as what any binary file can do; that of a text stream can also read what is there.
        yield from read_keys(cast("BufferedIOBase", sys.stdin.buffer))
    yield given


def read_keys(stream: BufferedIOBase) -> Iterator[list[str]]:
    """Split a stream into keys without holding it in memory.

    Args:
        stream: keys that end in a newline each, or in NUL (as `find -print0` and `blobmap objects -0` write them, for
            keys that hold a newline). Whether a NUL is in the first block decides.

    Yields:
        The keys of each block as it comes in; bytes that are not UTF-8 as lone surrogates, which no rule claims.
    """
    block = b""
    while not (b"\0" in block or b"\n" in block):
        more = stream.read1(BLOCK_BYTES)
        if not more:
            break
        block += more
    end = b"\0" if b"\0" in block else b"\n"
    rest = b""
    while block:
        *whole, rest = (rest + block).split(end)
        yield [key.decode("utf-8", "surrogateescape") for key in whole]
        block = stream.read1(BLOCK_BYTES)
    if rest:
        yield [rest.decode("utf-8", "surrogateescape")]


class _Hint:
    """Says once, on stderr, that keys look as if they had the bucket in front.

    Args:
        data: what `--data` says, if anything.
    """

    def __init__(self, data: str | None) -> None:
        segments = [segment for segment in (data or "").split("://")[-1].split("/") if segment]
        self._bucket = "".join(f"{segment}/" for segment in segments)
        self._is_told = False

    def look_at(self, key: str) -> None:
        """Look at a key that nobody claims."""
        if self._is_told:
            return
        scheme, separator, rest = key.partition("://")
        if separator and scheme.isalnum():
            self._tell(f"{key!r} is a URL, and keys are relative to the bucket", rest.partition("/")[2])
            return
        bucket = self._bucket
        while bucket:
            if key.removeprefix("/").startswith(bucket):
                self._tell(f"{key!r} begins as --data ends, and keys are relative to it", key.partition(bucket)[2])
                return
            bucket = bucket.partition("/")[2]

    def _tell(self, hint: str, key: str) -> None:
        self._is_told = True
        warn(f"hint: {hint}: did you mean {key!r}?")
