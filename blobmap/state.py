"""What is remembered about a scope beside its manifest: `.blobmap/state/<scope>.json` of the manifest root.

Source: "Beside the manifests" of the manifest format. Several programs keep their own fields in this one document, so a
change reads it, replaces its own fields only, and writes on condition; what it does not know it leaves as it is.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from blobmap.constraints import ConstraintError, check_integer, check_optional_text, check_text, refuse, within
from blobmap.errors import ConflictError, ManifestError, MissingError
from blobmap.strict_json import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from blobmap.storage import Storage

_ATTEMPTS: Final = 16
_MAX_BYTES: Final = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Unclaimable:
    """Why an array got no rule, and what has to change before it is worth another try.

    Attributes:
        reason: in words.
        etag: of its metadata document then.
        version: of the program that tried.
    """

    reason: str
    etag: str | None
    version: str


@dataclass(frozen=True, slots=True)
class ScopeState:
    """What is remembered about one scope.

    Attributes:
        highest_epoch: the highest epoch that was ever written, 0 if none was.
        unclaimable: arrays that got no rule, by path relative to the scope.
        others: fields of other programs, as they stand in the document.
    """

    highest_epoch: int = 0
    unclaimable: Mapping[str, Unclaimable] = field(default_factory=dict)
    others: Mapping[str, object] = field(default_factory=dict)


def state_key(scope: str) -> str:
    """Say where the state of a scope is kept, relative to the manifest root."""
    return f".blobmap/state/{scope}.json"


def read_state(storage: Storage, scope: str) -> ScopeState:
    """Read what is remembered about a scope.

    Args:
        storage: the manifest root.
        scope: any scope.

    Returns:
        The state; an empty one where nothing is remembered.

    Raises:
        ManifestError: what is there is not such a document.
    """
    return _read(storage, scope)[0]


def change_state(storage: Storage, scope: str, change: Callable[[ScopeState], ScopeState]) -> ScopeState:
    """Change what is remembered about a scope, without losing what others write meanwhile.

    Args:
        storage: the manifest root.
        scope: any scope.
        change: gives the new state for the one that was read; called again after a conflict.

    Returns:
        The new state. Nothing is written where it equals the old one.

    Raises:
        ManifestError: what is there is not such a document; it is left as it is.
        ConflictError: others changed it at every attempt; nothing was written.
    """
    attempt = 0
    while True:
        attempt += 1
        before, etag = _read(storage, scope)
        after = change(before)
        if after == before:
            return before
        try:
            if etag is None:
                storage.create(state_key(scope), _render(after))
            else:
                storage.update(state_key(scope), _render(after), etag)
        except ConflictError:
            if attempt == _ATTEMPTS:
                raise
        else:
            return after


def _read(storage: Storage, scope: str) -> tuple[ScopeState, str | None]:
    key = state_key(scope)
    try:
        body = storage.get(key)
    except MissingError:
        return ScopeState(), None
    try:
        return _parse(decode(body.data, most_bytes=_MAX_BYTES)), body.etag
    except ConstraintError as error:
        raise ManifestError(f"{storage.name}/{key}: {error}; move it away to go on without") from error


def _parse(document: dict[str, Any]) -> ScopeState:  # Any: the fields are checked one by one
    others = dict(document)
    highest_epoch, unclaimable = others.pop("highest_epoch", 0), others.pop("unclaimable", {})
    check_integer("highest_epoch", highest_epoch, least=0)
    if not isinstance(unclaimable, dict):
        refuse("unclaimable", unclaimable, "an object")
    with within("unclaimable"):
        return ScopeState(
            highest_epoch, {path: _parse_entry(path, entry) for path, entry in unclaimable.items()}, others
        )


def _parse_entry(path: str, entry: object) -> Unclaimable:
    if not isinstance(entry, dict):
        refuse(path, entry, "an object")
    with within(path):
        check_text("reason", entry.get("reason"))
        check_text("version", entry.get("version"))
        check_optional_text("etag", entry.get("etag"))
    return Unclaimable(entry["reason"], entry.get("etag"), entry["version"])


def _render(state: ScopeState) -> bytes:
    unclaimable = {path: asdict(entry) for path, entry in sorted(state.unclaimable.items())}
    document = {"highest_epoch": state.highest_epoch, "unclaimable": unclaimable, **state.others}
    return (json.dumps(document, indent=2, allow_nan=False) + "\n").encode()
