"""The manifest root, put away and brought back: pins and ids are the part of it that no data can give again.

A backup holds every manifest as it lies there, broken ones too, and what is remembered of epochs. A restore writes each
manifest on condition, with an epoch above every one that is known of its scope, since somebody may have acted on those.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from blobmap.archive import read_archive, write_archive
from blobmap.epochs import Epochs
from blobmap.errors import ConflictError, ListingError, ManifestError, MissingError, UnreadableError
from blobmap.manifest import manifest_key, parse_manifest, scope_of_key
from blobmap.state import change_state, state_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from blobmap.archive import Written
    from blobmap.manifest import Manifest
    from blobmap.manifests import ManifestStore
    from blobmap.state import ScopeState

_READERS: Final = 16
_STATES: Final = state_key("").removesuffix("/.json")
_SAYS: Final = ("blobs", "hot_always", "pinned", "policy")  # what an epoch counts the changes of


@dataclass(frozen=True, slots=True)
class BackedUp:
    """What a backup holds.

    Attributes:
        archive: the file.
        scopes: those whose manifests are in it, in order.
        problems: one line for each manifest in it that is broken.
    """

    archive: Written
    scopes: tuple[str, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RestoredScope:
    """What became of one manifest of an archive.

    Attributes:
        scope: of the manifest.
        epoch: that it has now.
        written: False where the root has the same one.
        changed_rules: ids of rules that differ from those of the manifest that was there.
    """

    scope: str
    epoch: int
    written: bool
    changed_rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did.

    Attributes:
        scopes: manifests of the archive that are in force now.
        others: scopes that have a manifest and are not in the archive; they were left alone.
        conflicts: scopes that somebody else changed meanwhile; they were left as that left them.
        problems: one line for each document that could not be restored.
    """

    scopes: tuple[RestoredScope, ...]
    others: tuple[str, ...]
    conflicts: tuple[str, ...]
    problems: tuple[str, ...]


def back_up(manifests: ManifestStore, path: Path, *, at: str, by: str) -> BackedUp:
    """Put the manifest root into an archive.

    Args:
        manifests: the root.
        path: of the archive, which must not exist.
        at: when, for whoever finds it.
        by: which program.

    Returns:
        What it holds.

    Raises:
        ListingError: a part of the root cannot be listed; no archive was written.
        UsageError: the file exists, or its directory does not.
        RefusedError: the file cannot be written, or the root does not serve us; no archive was written.
        UnavailableError: the root cannot be reached; no archive was written.
    """
    scopes: list[str] = []
    problems: list[str] = []

    def documents() -> Iterator[tuple[str, bytes]]:
        # Epochs first: whoever reads the archive knows them before the manifests that need them.
        yield from _read_all(manifests, _keys(manifests, _STATES))
        keys = [key for key in _keys(manifests, "") if scope_of_key(key) is not None]
        for key, data in _read_all(manifests, keys):
            scopes.append(scope_of_key(key) or "")
            try:
                parse_manifest(data, source=f"{manifests.storage.name}: {key!r}", scope=scopes[-1])
            except ManifestError as error:
                problems.append(str(error))
            yield key, data

    archive = write_archive(path, documents(), about={"at": at, "by": by, "root": manifests.storage.name})
    return BackedUp(archive, tuple(scopes), tuple(problems))


def restore(manifests: ManifestStore, path: Path) -> Restored:
    """Write the manifests of an archive back.

    Pins that were set since are kept: what somebody wants on disk does not leave it because of an older archive.

    Args:
        manifests: the root. What it has beside the scopes of the archive is left alone.
        path: of the archive, which is checked whole before anything is written.

    Returns:
        What was done.

    Raises:
        UsageError: there is no such file.
        UnreadableError: it is no archive of ours, or damaged; nothing was written.
        RefusedError: the file cannot be read, or the root may not be written or does not keep two writers apart.
        UnavailableError: the root cannot be reached; some manifests may have been written.
    """
    epochs: dict[str, int] = {}
    done: list[RestoredScope] = []
    conflicts: list[str] = []
    problems: list[str] = []
    for key, data in read_archive(path):
        scope = scope_of_key(key)
        try:
            if scope is None:
                scope = key.removeprefix(f"{_STATES}/").removesuffix(".json")
                epochs[scope] = _number(data, "highest_epoch")
                _remember(manifests, scope, epochs[scope])
            else:
                manifest = parse_manifest(data, source=f"{str(path)!r}: {key!r}", scope=scope)
                done.append(_restore(manifests, manifest, epochs.get(scope, 0)))
        except ConflictError:
            conflicts.append(scope or "")
        except UnreadableError as error:
            problems.append(str(error))
    known = {restored.scope for restored in done} | set(conflicts)
    others = sorted(scope for scope in manifests.scopes() if scope not in known)
    return Restored(tuple(done), tuple(others), tuple(conflicts), tuple(problems))


def _restore(manifests: ManifestStore, manifest: Manifest, remembered: int) -> RestoredScope:
    scope = manifest.scope
    key = manifest_key(scope)
    held: Manifest | None = None
    etag, epoch = None, 0
    try:
        body = manifests.storage.get(key)
    except MissingError:
        pass
    else:
        etag, epoch = body.etag, _number(body.data, "epoch")
        try:
            held = parse_manifest(body.data, source=key, scope=scope)
        except ManifestError:
            held = None  # a broken one is what a restore is for
    if held is not None:
        known = {pin.prefix for pin in manifest.pinned}
        manifest = replace(
            manifest, pinned=(*manifest.pinned, *(pin for pin in held.pinned if pin.prefix not in known))
        )
    if held is not None and all(getattr(held, name) == getattr(manifest, name) for name in _SAYS):
        return RestoredScope(scope, held.epoch, written=False)
    anew = replace(manifest, epoch=Epochs(manifests, scope).above(epoch, manifest.epoch, remembered))
    manifests.write(anew, etag=etag)
    return RestoredScope(scope, anew.epoch, written=True, changed_rules=_changed(held, anew))


def _remember(manifests: ManifestStore, scope: str, epoch: int) -> None:
    """Raise the remembered epoch of a scope, also of one that has no manifest any more."""

    def change(state: ScopeState) -> ScopeState:
        return replace(state, highest_epoch=max(state.highest_epoch, epoch))

    manifests.check_conditions()
    change_state(manifests.storage, scope, change)


def _changed(before: Manifest | None, after: Manifest) -> tuple[str, ...]:
    if before is None:
        return ()
    then, now = ({blob.id: blob for blob in manifest.blobs} for manifest in (before, after))
    return tuple(sorted(name for name in then.keys() | now.keys() if then.get(name) != now.get(name)))


def _keys(manifests: ManifestStore, prefix: str) -> list[str]:
    storage = manifests.storage
    keys = sorted(entry["path"] for page in storage.pages(prefix) for entry in page)
    if gaps := storage.gaps(prefix):
        raise ListingError(f"{storage.name}: {gaps[0]!r} could not be listed, so a backup would not be whole")
    return keys


def _read_all(manifests: ManifestStore, keys: list[str]) -> Iterator[tuple[str, bytes]]:
    with ThreadPoolExecutor(_READERS, thread_name_prefix="backup") as readers:
        for start in range(0, len(keys), 4 * _READERS):
            batch = keys[start : start + 4 * _READERS]
            for key, data in zip(batch, readers.map(lambda key: _read(manifests, key), batch), strict=True):
                if data is not None:
                    yield key, data


def _read(manifests: ManifestStore, key: str) -> bytes | None:
    try:
        return manifests.storage.get(key).data
    except MissingError:
        return None  # deleted since the listing


def _number(data: bytes, field: str) -> int:
    """A number in a document that may be broken; 0 where there is none."""
    try:
        found = json.loads(data)[field]
    except (ValueError, TypeError, KeyError, RecursionError):
        return 0
    return found if isinstance(found, int) and found > 0 else 0
