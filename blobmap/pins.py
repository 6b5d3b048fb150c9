"""Pins: prefixes that somebody keeps on disk on purpose, set and taken away in the manifest of their scope.

A pin holds until it is removed; a date in it is when somebody wants to look at it again. So expiry is reported, and
nothing here enforces it.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

from blobmap.covered import covered_objects
from blobmap.epochs import Epochs
from blobmap.errors import ConflictError, ListingError, UsageError
from blobmap.manifest import Pin, is_addressable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from blobmap.manifest import Manifest
    from blobmap.manifests import ManifestStore
    from blobmap.resolve import Trie
    from blobmap.storage import Storage

_ATTEMPTS: Final = 8
_PAUSE_S: Final = 0.05

Concern = Literal["expired", "no valid date", "dangling", "open-ended"]
"""Why a pin wants looking at, the most pressing first."""

_CONCERNS: Final[tuple[Concern, ...]] = ("expired", "no valid date", "dangling", "open-ended")


@dataclass(frozen=True, slots=True)
class PinnedSize:
    """One pin and what it holds.

    Attributes:
        scope: of its manifest.
        pin: as it is written there.
        concerns: why it wants looking at, the most pressing first; none for a pin in order.
        objects: how many objects it keeps on disk, metadata documents not among them; None if nobody counted.
        stored_bytes: their size together, or None.
    """

    scope: str
    pin: Pin
    concerns: tuple[Concern, ...]
    objects: int | None = None
    stored_bytes: int | None = None


def add_pin(manifests: ManifestStore, scope: str, pin: Pin) -> Manifest:
    """Pin a prefix; a pin that its scope has on this prefix already is replaced.

    Args:
        manifests: the manifest root.
        scope: which must have a manifest.
        pin: its prefix is relative to the scope.

    Returns:
        The manifest as it is now.

    Raises:
        UsageError: the prefix is no key.
        MissingError: the scope has no manifest.
        ManifestError: its manifest cannot be read.
        ConflictError: others kept changing it; nothing was written.
        RefusedError: the manifest root may not be written, or does not keep two writers apart.
        UnavailableError: the manifest root cannot be reached.
    """
    pin = replace(pin, prefix=_checked(pin.prefix))

    def change(pins: tuple[Pin, ...]) -> tuple[Pin, ...]:
        at = next((place for place, held in enumerate(pins) if _is_at(held, pin.prefix)), len(pins))
        others = tuple(held for held in pins if not _is_at(held, pin.prefix))
        return (*others[:at], pin, *others[at:])

    return _change(manifests, scope, change)


def remove_pin(manifests: ManifestStore, scope: str, prefix: str) -> Manifest:
    """Take the pin on a prefix away.

    Args:
        manifests: the manifest root.
        scope: of the pin.
        prefix: of the pin; "" for one on the whole scope. Pins on what lies below it stay.

    Returns:
        The manifest as it is now.

    Raises:
        UsageError: there is no such pin. For the rest as `add_pin`.
    """

    def change(pins: tuple[Pin, ...]) -> tuple[Pin, ...]:
        others = tuple(pin for pin in pins if not _is_at(pin, prefix.removesuffix("/")))
        if len(others) == len(pins):
            known = ", ".join(repr(pin.prefix) for pin in pins) or "none"
            raise UsageError(f"scope {scope!r} has no pin on {prefix!r}; it has pins on: {known}")
        return others

    return _change(manifests, scope, change)


def parse_until(text: str) -> str:
    """Read until when a pin is wanted.

    Args:
        text: an ISO 8601 date, or a date and time.

    Returns:
        The same date; a time with an offset in UTC.

    Raises:
        UsageError: this is no such thing.
    """
    try:
        if len(text) <= len("2026-12-01"):
            return date.fromisoformat(text).isoformat()
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is no date: write it as 2026-12-01, or 2026-12-01T12:00:00Z") from error
    return (moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()


def concerns(pin: Pin, now: datetime, *, is_empty: bool = False) -> tuple[Concern, ...]:
    """Say why a pin wants looking at, the most pressing first.

    Args:
        pin: of any writer.
        now: what expiry is measured by.
        is_empty: whether it is known to hold nothing.
    """
    found: list[Concern] = []
    if pin.until is not None:
        try:
            end = parse_until(pin.until)
        except UsageError:
            found.append("no valid date")
        else:
            # A date ends with its day.
            moment = datetime.fromisoformat(end)
            if (moment if moment.tzinfo else moment.replace(tzinfo=UTC) + timedelta(days=1)) < now:
                found.append("expired")
    if is_empty:
        found.append("dangling")
    if pin.until is None:
        found.append("open-ended")
    return tuple(found)


def list_pins(
    manifests: Iterable[Manifest], *, now: datetime, measure: Callable[[Manifest, Pin], tuple[int, int] | None]
) -> list[PinnedSize]:
    """List pins, those that want looking at first.

    Args:
        manifests: whose pins.
        now: what expiry is measured by.
        measure: counts the objects and bytes that a pin holds, as `measure_pin` does, or gives None.

    Returns:
        Expired ones, then those whose date nobody can read, those that hold nothing, open-ended ones, then the rest.
    """
    found = []
    for manifest in manifests:
        for pin in manifest.pinned:
            objects, stored_bytes = measure(manifest, pin) or (None, None)
            found.append(
                PinnedSize(manifest.scope, pin, concerns(pin, now, is_empty=objects == 0), objects, stored_bytes)
            )
    return sorted(found, key=_rank)


def total_pinned(pins: Sequence[PinnedSize]) -> tuple[int | None, int | None]:
    """Add up what pins hold, each object once.

    Args:
        pins: as listed.

    Returns:
        Objects and bytes; None for both if nobody counted.
    """
    places = {_full_prefix(found.scope, found.pin): found for found in pins}
    outermost = [found for place, found in places.items() if not any(outer in places for outer in _around(place))]
    counts = [(found.objects, found.stored_bytes) for found in outermost]
    if any(objects is None for objects, _ in counts):
        return None, None
    return sum(objects or 0 for objects, _ in counts), sum(stored_bytes or 0 for _, stored_bytes in counts)


def measure_pin(data: Storage, trie: Trie, scope: str, pin: Pin) -> tuple[int, int]:
    """Count the objects that one pin holds, by listing its prefix.

    Args:
        data: the bucket.
        trie: its manifests, at least those around and inside the prefix.
        scope: of the pin.
        pin: to count.

    Returns:
        Objects and bytes, without metadata documents, which stay on disk anyway. What two pins hold counts for each.

    Raises:
        ListingError: a part of the prefix cannot be listed.
        UnavailableError: the bucket cannot be reached.
        RefusedError: the bucket does not serve us.
    """
    prefix = _full_prefix(scope, pin)
    objects = stored_bytes = 0
    for page in covered_objects(data, prefix):
        answers = trie.lookup_many(entry["path"] for entry in page)
        for entry, answer in zip(page, answers, strict=True):
            if answer.kind == "pinned":
                objects += 1
                stored_bytes += entry["size"]
    if gaps := data.gaps(prefix):
        raise ListingError(f"{data.name}: {gaps[0]!r} could not be listed, so what is pinned cannot be counted")
    return objects, stored_bytes


def _change(manifests: ManifestStore, scope: str, change: Callable[[tuple[Pin, ...]], tuple[Pin, ...]]) -> Manifest:
    epochs = Epochs(manifests, scope)
    attempt = 0
    while True:
        attempt += 1
        held = manifests.read(scope)
        pins = change(held.manifest.pinned)
        manifest = replace(held.manifest, epoch=epochs.above(held.manifest.epoch), pinned=pins)
        try:
            manifests.write(manifest, etag=held.etag)
        except ConflictError:
            if attempt == _ATTEMPTS:
                raise
            # So that several who meet do not meet again.
            time.sleep(random.uniform(0, _PAUSE_S * attempt))  # noqa: S311 - nothing secret about a pause
        else:
            return manifest


def _checked(prefix: str) -> str:
    checked = prefix.removesuffix("/")
    if checked and not is_addressable(checked):
        raise UsageError(f"{prefix!r} is no prefix: give segments with '/' between them, none empty, '.' or '..'")
    return checked


def _full_prefix(scope: str, pin: Pin) -> str:
    return "/".join(part for part in (scope, pin.prefix.removesuffix("/")) if part)


def _around(key: str) -> Iterator[str]:
    """Everything above a key, up to the root."""
    while key:
        key = key.rpartition("/")[0]
        yield key


def _is_at(pin: Pin, prefix: str) -> bool:
    return pin.prefix.removesuffix("/") == prefix


def _rank(found: PinnedSize) -> tuple[int, str, str, str]:
    pressing = _CONCERNS.index(found.concerns[0]) if found.concerns else len(_CONCERNS)
    return pressing, found.pin.until or "", found.scope, found.pin.prefix
