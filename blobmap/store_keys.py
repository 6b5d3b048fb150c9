"""Which keys and prefixes of a store can be addressed, and where one that cannot is odd.

Where the rule comes from: `object_store::path::Path::parse`, as obstore 0.12.1 behaves. It refuses an empty segment,
`.`, `..` and control characters, and drops a slash at either end.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from blobmap.errors import MissingError, UsageError

_CONTROL = re.compile("[\x00-\x1f\x7f]")
_ODD_LETTER = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")  # the last are bytes that are no UTF-8
_NEVER = frozenset({"", ".", ".."})


class OddPart(NamedTuple):
    """Where a key is odd.

    Attributes:
        prefix: the key up to its first odd segment; it ends in `/` where the key goes on.
        behind: the least valid key greater than all that begins with `prefix`.
    """

    prefix: str
    behind: str


def odd_part(key: str) -> OddPart:
    """Find the first segment of a key that cannot be addressed; the last one where all can."""
    segments = key.split("/")
    place = next((place for place, segment in enumerate(segments) if _is_odd(segment)), len(segments) - 1)
    name = segments[place]
    base = "".join(f"{segment}/" for segment in segments[:place])
    goes_on = place + 1 < len(segments)
    control = _CONTROL.search(name)
    if control is not None:
        # Every name that continues so is odd as well.
        behind = name[: control.start()] + (" " if control.group() < " " else "\x80")
    else:
        behind = name + ("0" if goes_on else " ")  # the character behind "/", and the first valid one
    return OddPart(base + name + ("/" if goes_on else ""), base + behind)


def valid_offset(after: str) -> str | None:
    """The longest start of `after` that the library takes as an offset; None where there is none."""
    kept: list[str] = []
    for segment in after.split("/"):
        if _is_odd(segment):
            break
        kept.append(segment)
    return "/".join(kept) or None


def is_addressable(key: str) -> bool:
    """Whether a key can be read by its name, through every kind of store."""
    return not any(_is_odd(segment) for segment in key.split("/"))


def _is_odd(segment: str) -> bool:
    return segment in _NEVER or _ODD_LETTER.search(segment) is not None


def check_key(key: str, name: str) -> str:
    """Hand through what can be the key of an object.

    Raises:
        MissingError: it is empty or has a slash at an end, and would be read as its neighbour.
    """
    if not key or key.startswith("/") or key.endswith("/"):
        raise MissingError(f"{name}: {key!r} is no key of an object: it is empty, or starts or ends with '/'")
    return key


def check_prefix(prefix: str, name: str) -> str:
    """Hand through what can be a prefix of whole segments.

    Raises:
        UsageError: a listing could take it for another prefix, or for one that holds nothing.
    """
    if prefix and not _NEVER.isdisjoint(prefix.split("/")):
        raise UsageError(
            f"{name}: {prefix!r} is no prefix: allowed are segments other than '', '.' and '..', without outer '/'"
        )
    return prefix
