"""Every manifest, held against its format, its place, its neighbours and the data.

Nothing is changed, and no object but documents is read. What is found is said of one manifest each; whether it is a
fault is for whoever knows why it is so.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from blobmap.census import take_census
from blobmap.claims import is_neighbour
from blobmap.errors import MissingError, UnreadableError
from blobmap.findings import Finding, check_all
from blobmap.inventory import Inventory
from blobmap.resolve import Trie
from blobmap.state import read_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from blobmap.manifest import Manifest
    from blobmap.manifests import ManifestStore
    from blobmap.storage import Storage

_READERS: Final = 16


@dataclass(frozen=True, slots=True)
class Verification:
    """What came out.

    Attributes:
        scopes: those whose manifests were verified, broken ones too.
        findings: by scope.
        problems: what could not be looked at, one line each.
    """

    scopes: tuple[str, ...]
    findings: tuple[Finding, ...]
    problems: tuple[str, ...]


def verify_manifests(
    data: Storage,
    manifests: ManifestStore,
    scope: str | None = None,
    *,
    on_progress: Callable[[int], None] | None = None,
) -> Verification:
    """Verify every manifest, or one.

    Args:
        data: the bucket.
        manifests: its manifest root.
        scope: only the manifest of this scope, None for all.
        on_progress: told how many objects were counted so far.

    Returns:
        What was found.

    Raises:
        MissingError: the scope has no manifest.
        UnavailableError: a store cannot be reached.
        RefusedError: a store does not serve us.
    """
    places = sorted(place for place in manifests.scopes() if scope in (None, place) or is_neighbour(scope or "", place))
    if scope is not None and scope not in places:
        raise MissingError(f"{manifests.storage.name}: scope {scope!r} has no manifest")
    held, findings = _read_all(manifests, places)
    trie = Trie()
    trie.add_all(held.values())
    wanted = [manifest for manifest in held.values() if scope in (None, manifest.scope)]
    prefixes = _outermost(manifest.scope for manifest in wanted)
    inventory = Inventory(data, take_census(data, trie, prefixes, on_progress=on_progress))
    for manifest in wanted:
        outer = [held[place] for place in _around(manifest.scope) if place in held]
        findings += check_all(manifest, outer, inventory, data)
    for store, problem in inventory.problems:
        owner = next((place for place in (store, *_around(store)) if place in held), store)
        findings.append(Finding(owner, "document", store, problem))
    gaps = sorted({gap for prefix in prefixes for gap in data.gaps(prefix)})
    gaps_beside = manifests.storage.gaps()
    return Verification(
        tuple(place for place in places if scope in (None, place)),
        tuple(sorted((found for found in findings if scope in (None, found.scope)), key=lambda found: found.scope)),
        (
            *(f"{data.name}: {gap!r} could not be listed, and is not verified" for gap in gaps),
            *(f"{manifests.storage.name}: {gap!r} could not be listed, and is not verified" for gap in gaps_beside),
        ),
    )


def _read_all(manifests: ManifestStore, scopes: Iterable[str]) -> tuple[dict[str, Manifest], list[Finding]]:
    held: dict[str, Manifest] = {}
    findings: list[Finding] = []
    with ThreadPoolExecutor(_READERS, thread_name_prefix="manifests") as readers:
        for manifest, found in readers.map(partial(_read, manifests), scopes):
            if manifest is not None:
                held[manifest.scope] = manifest
            findings += found
    return held, findings


def _read(manifests: ManifestStore, scope: str) -> tuple[Manifest | None, list[Finding]]:
    found: list[Finding] = []
    manifest = None
    try:
        manifest = manifests.read(scope).manifest
    except MissingError:
        return None, []  # deleted since the listing
    except UnreadableError as error:
        found.append(Finding(scope, "unreadable", "", str(error)))
    try:
        read_state(manifests.storage, scope)
    except UnreadableError as error:
        found.append(Finding(scope, "unreadable", "state", str(error)))
    return manifest, found


def _outermost(scopes: Iterable[str]) -> list[str]:
    found = set(scopes)
    return sorted(scope for scope in found if not any(outer in found for outer in _around(scope)))


def _around(scope: str) -> list[str]:
    """Everything above a scope, up to the root, from the inside out."""
    found = []
    while scope:
        scope = scope.rpartition("/")[0]
        found.append(scope)
    return found
