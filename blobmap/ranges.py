"""The reverse of resolution: from a blob to the listings that can hold its objects.

Indices sort as text, so the indices of one blob lie scattered among shorter and longer ones: 8 to 11 are listed as
`10`, `11`, `8`, `9`, and between `10` and `11` come `100` and `1000`. On the first axis of an array that makes a few
ranges of keys, one for each number of digits at most, within which an ordered listing can leap over what is not wanted.
On any other axis the blob is scattered over the whole array.

A range misses nothing of the blob but may hold more: whether a key is of it is decided by resolving the key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from blobmap.chunk_keys import canonical_index
from blobmap.manifest import is_addressable
from blobmap.rules import separator_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from blobmap.manifest import Bucket, Manifest
    from blobmap.rules import Resolution

_E = TypeVar("_E", bound="Mapping[str, object]")

# Sorts just after the digits, which sort after the separators of indices.
_BEYOND: Final = ":"
# No key of an object is long enough for a longer number (S3 allows 1024 bytes).
_MOST_BITS: Final = 4096


@dataclass(frozen=True, slots=True)
class Wanted:
    """The indices that a range of keys is about.

    Attributes:
        base: what every key has before its index.
        first: the first index.
        last: the last index, included.
    """

    base: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A part of a listing.

    Attributes:
        prefix: what to list, by whole segments; `""` is everything.
        after: only keys greater than this; None: from the beginning.
        end: only keys smaller than this; None: to the end.
        one_level: only objects directly below the prefix.
        wanted: where an index of the first axis decides, the indices wanted.
    """

    prefix: str
    after: str | None = None
    end: str | None = None
    one_level: bool = False
    wanted: Wanted | None = None

    def holds(self, key: str) -> bool:
        """Say whether a key is part of it."""
        start = f"{self.prefix}/" if self.prefix else ""
        return (
            key.startswith(start)
            and (self.after is None or key > self.after)
            and (self.end is None or key < self.end)
            and not (self.one_level and "/" in key[len(start) :])
        )

    def resume(self, key: str) -> str | None:
        """Say where an ordered listing goes on that has come to a key.

        Args:
            key: the last key listed.

        Returns:
            The key, where objects of the blob can follow at once; a greater one, after which to list on, since all
            between is of other blobs; None where nothing of the blob can follow.
        """
        if self.end is not None and key >= self.end:
            return None
        if self.wanted is None or not key.startswith(self.wanted.base):
            return key
        following = _next_wanted(key.removeprefix(self.wanted.base), self.wanted)
        return None if following is None else max(key, _before(self.wanted.base, following))


def key_ranges(manifest: Manifest, blob_id: str) -> tuple[KeyRange, ...]:
    """Say what to list for the objects of one blob.

    Args:
        manifest: that of the blob's scope.
        blob_id: the blob, as a resolution names it.

    Returns:
        Ranges that hold all its objects, in the order of the rules; none if no rule of the manifest makes such a blob.
        An object can be part of several.
    """
    rule_id, _, digits = blob_id.rpartition("_")
    number = canonical_index(digits)
    if number is None:
        return ()
    found: list[KeyRange] = []
    for blob in manifest.blobs:
        if blob.id == rule_id:
            for prefix in blob.prefixes:
                path = "/".join(part for part in (manifest.scope, prefix.removesuffix("/")) if part)
                if path and not is_addressable(path):
                    continue
                found.extend(_of_bucket(path, blob.bucket, number) if blob.bucket else _of_prefix(path, number))
    return tuple(dict.fromkeys(found))


def members(
    manifest: Manifest,
    blob_id: str,
    *,
    pages: Callable[[str, str | None], Iterable[Sequence[_E]]],
    objects: Callable[[str], Iterable[_E]],
    lookup: Callable[[str], Resolution],
    ordered: bool,
) -> Iterator[_E]:
    """List the objects of one blob, each once.

    Args:
        manifest: that of the blob's scope.
        blob_id: the blob, as a resolution names it.
        pages: lists everything below a prefix after a key, in pages.
        objects: lists what lies directly below a prefix.
        lookup: resolves a key, under all manifests of the bucket.
        ordered: whether `pages` are in key order; then it is asked at most once for each index of the blob, and a few
            times more, besides going on through full pages.

    Returns:
        The listed objects, whose `path` is their key, as they come.
    """
    ranges = key_ranges(manifest, blob_id)
    for number, part in enumerate(ranges):
        listed = objects(part.prefix) if part.one_level else _listed(part, pages, ordered=ordered)
        for entry in listed:
            key = str(entry["path"])
            if not part.holds(key) or any(earlier.holds(key) for earlier in ranges[:number]):
                continue
            resolution = lookup(key)
            if (resolution.scope, resolution.blob_id) == (manifest.scope, blob_id):
                yield entry


def _listed(
    part: KeyRange, pages: Callable[[str, str | None], Iterable[Sequence[_E]]], *, ordered: bool
) -> Iterator[_E]:
    after: str | None = part.after
    leaping = True
    while leaping:
        leaping = False
        for page in pages(part.prefix, after):
            yield from page
            if ordered and page:
                last = str(page[-1]["path"])
                after = part.resume(last)
                leaping = after not in (None, last)
                if after != last:
                    break


def _of_prefix(path: str, number: int) -> Iterator[KeyRange]:
    if number:
        return
    if path:
        # An object may have the prefix itself as its key: below it, a listing by whole segments does not show it.
        yield KeyRange(path.rpartition("/")[0], one_level=True)
    yield KeyRange(path)


def _of_bucket(path: str, bucket: Bucket, number: int) -> Iterator[KeyRange]:
    below = f"{path}/" if path else ""
    separator = separator_of(bucket)
    led = bucket.index == 1 and bucket.key_encoding != "v2_slash"
    if number.bit_length() > _MOST_BITS or not (bucket.index == 0 or led):
        yield KeyRange(path)
    elif led:
        yield from _of_axis(f"{below}c" if separator == "/" else path, f"{below}c{separator}", bucket.width, number)
        # The format lets an index stand in the place of the `c`.
        yield KeyRange(path, end=below + _BEYOND)
    else:
        yield from _of_axis(path, below, bucket.width, number)


def _of_axis(prefix: str, base: str, width: int, number: int) -> Iterator[KeyRange]:
    wanted = Wanted(base, number * width, (number + 1) * width - 1)
    spans = sorted((str(low), f"{high}0") for _, low, high in _by_length(wanted))
    merged = [spans[0]]
    for low, end in spans[1:]:
        if low < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((low, end))
    for low, end in merged:
        yield KeyRange(prefix, _before(base, low) or None, base + end, wanted=wanted)


def _by_length(wanted: Wanted) -> Iterator[tuple[int, int, int]]:
    """Give the wanted indices by their number of digits, each time the first and the last."""
    for length in range(len(str(wanted.first)), len(str(wanted.last)) + 1):
        low = max(wanted.first, 10 ** (length - 1) if length > 1 else 0)
        yield length, low, min(wanted.last, 10**length - 1)


def _next_wanted(below: str, wanted: Wanted) -> str | None:
    """Find the wanted index that a listing comes to next, from what a key has after the base; its own counts."""
    digits = below[: len(below) - len(below.lstrip("0123456789"))]
    candidates = []
    for length, low, high in _by_length(wanted):
        begun = digits[:length]
        step = 10 ** (length - len(begun))
        index = int(begun or "0") * step
        # The keys of an index all sort before its text with a 0 after it.
        if f"{index:0{length}}0" <= below:
            index += step
        if max(index, low) <= high:
            candidates.append(str(max(index, low)))
    return min(candidates, default=None)


def _before(base: str, index: str) -> str:
    """Spell what sorts before every key of an index and after every key of the indices listed before it."""
    if index == "0":
        return base.removesuffix("/")
    return f"{base}{index[:-1]}{chr(ord(index[-1]) - 1)}{_BEYOND}"
