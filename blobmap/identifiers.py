"""Identifiers of new rules: a pure function of the array's path, whatever else exists.

Source: "Identifiers" of the manifest format. An id is a join key against tape addresses, so what comes out of here for
a path never changes within a format version; frozen examples are in `tests/golden`.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

_PLAIN: Final = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*")
_OTHER: Final = re.compile(r"[^a-z0-9]+")


def array_id(path: str) -> str:
    """Name the rule of an array.

    Args:
        path: of the array relative to the scope; empty where the scope is the array.

    Returns:
        `b_` and the segments joined by `__`, where every segment is plain (`atm/tas` gives `b_atm__tas`); else the
        hashed form. Two paths never share one, short of a collision of the hash.
    """
    segments = path.split("/")
    if all(_PLAIN.fullmatch(segment) for segment in segments):
        return "b_" + "__".join(segments)
    return hashed_id(path)


def hashed_id(path: str) -> str:
    """Name the rule of an array whose plain name is not to be had.

    Args:
        path: of the array relative to the scope.

    Returns:
        `b_`, a readable remainder of the path (`store` if nothing remains), `___`, and the first 8 hexadecimal digits
        of the SHA-256 of the path in UTF-8.
    """
    readable = _OTHER.sub("_", path.lower()).strip("_") or "store"
    digest = hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()
    return f"b_{readable}___{digest[:8]}"
