"""Whether the manifests lie inside the data, or the data inside the manifests: seen from the two URLs alone.

Either nesting would let one be listed as the other: manifests counted as objects of a bucket, or a store's own
`manifest.json` taken for one of ours.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from blobmap.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection

OWN = ".blobmap"
"""What the manifest root keeps for itself: a segment that cannot tell data from manifests."""


def check_roots(data: str, manifests: str, exclude: Collection[str]) -> None:
    """Refuse roots of which one lies in the other.

    Args:
        data: URL or path of the data.
        manifests: URL or path of the manifest root, at the same server if both are S3.
        exclude: segments that are left out of listings. One of them on the way from the outer to the inner root keeps
            the two apart.

    Raises:
        UsageError: they are one place, or one lies in the other and is not left out by name.
    """
    outer, inner = _place(data), _place(manifests)
    if outer == inner:
        raise UsageError(
            f"--data {data!r} and --manifests {manifests!r} are one place: manifests need a root of their own"
        )
    swapped = len(outer) > len(inner)
    if swapped:
        outer, inner = inner, outer
    way = inner[len(outer) :]
    kept_apart = set(exclude) - {OWN} if swapped else set(exclude)
    if inner[: len(outer)] != outer or not kept_apart.isdisjoint(way):
        return
    what = (
        f"--data {data!r} lies in --manifests {manifests!r}"
        if swapped
        else f"--manifests {manifests!r} lies in --data {data!r}"
    )
    raise UsageError(
        f"{what}: give it another place, or leave it out of the outer one by name, as --exclude {way[0]!r}"
    )


def local_path(url: str) -> Path | None:
    """The path that a root has on this machine, links in it followed; None where it has none."""
    scheme, separator, _ = url.partition("://")
    if separator and scheme != "file":
        return None
    try:
        return Path(unquote(urlsplit(url).path) if separator else url).expanduser().resolve()
    except (OSError, RuntimeError, ValueError):
        return None  # whoever opens it says what is wrong


def _place(url: str) -> tuple[str, ...]:
    """Where a root is: what holds it, then its segments."""
    path = local_path(url)
    if path is not None:
        return ("file", *path.parts[1:])
    scheme, _, rest = url.partition("://")
    return (scheme, *(segment for segment in rest.split("/") if segment))
