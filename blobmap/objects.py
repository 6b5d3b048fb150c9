"""What a store hands over: an object in a listing, one level of a listing, a body. Shapes only, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from blobmap.errors import UnreadableError

if TYPE_CHECKING:
    from datetime import datetime


class Entry(TypedDict):
    """One object of a listing: the fields of obstore's ObjectMeta, which is passed through as it is, for speed.

    `path` is relative to the root of the store, `size` is in bytes, `e_tag` is quoted as the server sends it.
    """

    path: str
    last_modified: datetime
    size: int
    e_tag: str | None
    version: str | None


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a listing, as with delimiter `/`.

    Attributes:
        prefixes: full keys of what lies deeper, without a trailing slash, in no promised order.
        objects: the objects directly below the prefix.
    """

    prefixes: tuple[str, ...]
    objects: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class RawPage:
    """A page of a listing with its keys as the server has them, odd ones too.

    Attributes:
        objects: in key order.
        prefixes: the deeper prefixes of a level, each with the `/` that ends it.
    """

    objects: tuple[Entry, ...]
    prefixes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Body:
    """The content of an object, with the etag that came with just these bytes (None where a store has none)."""

    data: bytes
    etag: str | None


def check_size(size_bytes: int, limit_bytes: int | None, where: str) -> None:
    """Refuse an object before it is read.

    Raises:
        UnreadableError: it is larger than the limit.
    """
    if limit_bytes is not None and size_bytes > limit_bytes:
        raise UnreadableError(f"{where} has {size_bytes} bytes, allowed: {limit_bytes}")
