"""The arithmetic of one rule: from the parts of a key below its prefix to the number of its blob.

A rule without arithmetic has one blob, number 0. The others read the parts that follow the prefix: all must be
canonical indices, separated as the rule says, and the one that it divides gives the number. What a prefix covers, and
which of several rules decides, is not known here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from blobmap.chunk_keys import floor_divide

if TYPE_CHECKING:
    from blobmap.manifest import Blob, Bucket, Manifest

Kind = Literal["blob", "hot", "pinned", "unmanaged"]

# Possessive, so that no key makes the matching slow: an index ends where its digits end.
_INDEX: Final = "(?:0|[1-9][0-9]*+)"
# No string has so many parts; regular expressions cannot count further.
_MOST_SKIPPED: Final = 2**32 - 2
LONG: Final = 18
"""Indices of fewer digits are divided as machine integers."""
_MOST_RECENT: Final = 4


@dataclass(frozen=True, slots=True)
class Resolution:
    """The answer for one key.

    Attributes:
        kind: `blob`, `hot` (never archivable), `pinned` (kept on disk on purpose) or `unmanaged` (nobody claims it).
        blob_id: the blob, unique within the scope; None unless `kind` is `blob`.
        scope: of the manifest that decided; for an unmanaged key or a metadata document the longest scope that covers
            it; None where there is none.
        epoch: of that manifest, or None.
    """

    kind: Kind
    blob_id: str | None
    scope: str | None
    epoch: int | None


class Rule:
    """One prefix of one rule, ready to answer for the keys below it.

    Attributes:
        prefix: what the keys below it begin with: scope and prefix, each with its separator.
        start: its length, where the parts begin that are read.
        fullmatch: reads them; the group is the index that is divided. None without arithmetic.
        separator: what stands between two parts; empty without arithmetic.
        width: how many indices make a blob; 0 without arithmetic.
    """

    __slots__ = ("_epoch", "_id", "_recent", "_scope", "fullmatch", "prefix", "separator", "start", "width")

    def __init__(self, blob: Blob, prefix: str, manifest: Manifest) -> None:
        self.prefix = "".join(f"{part}/" for part in (manifest.scope, prefix) if part)
        self.start = len(self.prefix)
        self.fullmatch = _pattern(blob.bucket).fullmatch if blob.bucket else None
        self.separator = separator_of(blob.bucket) if blob.bucket else ""
        self.width = blob.bucket.width if blob.bucket else 0
        self._id = blob.id
        self._scope = manifest.scope
        self._epoch = manifest.epoch
        # The answers given last, by their number: keys of one blob mostly come together.
        self._recent: dict[int | str, Resolution] = {}

    def answer(self, key: str) -> Resolution | None:
        """Answer for a key at or below the prefix; None: the arithmetic does not fit it."""
        if self.fullmatch is None:
            return self.resolution(0)
        match = self.fullmatch(key, self.start)
        if match is None:
            return None
        digits = match[1]
        return self.resolution(int(digits) // self.width if len(digits) < LONG else floor_divide(digits, self.width))

    def resolution(self, number: int | str) -> Resolution:
        """Answer with one of the rule's blobs."""
        resolution = self._recent.get(number)
        if resolution is None:
            if len(self._recent) >= _MOST_RECENT:
                self._recent.clear()
            resolution = Resolution("blob", f"{self._id}_{number}", self._scope, self._epoch)
            self._recent[number] = resolution
        return resolution


def separator_of(bucket: Bucket) -> str:
    """Say what stands between two of the parts that a bucket reads."""
    return "." if bucket.key_encoding == "v2_flat" else "/"


def _pattern(bucket: Bucket) -> re.Pattern[str]:
    """Spell what the parts below a prefix look like together; the one that is divided is the group."""
    separator = re.escape(separator_of(bucket))
    skipped = min(bucket.index, _MOST_SKIPPED)
    if skipped == 0:
        before = ""
    elif bucket.key_encoding == "v2_slash":
        before = f"(?:{_INDEX}{separator}){{{skipped}}}+"
    else:
        # Where at least one part is skipped, the first may be the `c` of zarr v3.
        before = f"(?:c|{_INDEX}){separator}(?:{_INDEX}{separator}){{{skipped - 1}}}+"
    return re.compile(f"{before}({_INDEX})(?:{separator}{_INDEX})*+")
