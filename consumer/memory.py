"""What workers remember of a scope: their part of `.blobmap/state/<scope>.json`, under the name `consumer`.

Source: "Beside the manifests" of the manifest format. Any number of workers share it: every change reads, changes and
writes on condition, so that none undoes another's. What is forgotten (a state that was deleted) costs work, never data:
stores are alerted once more, and backfills tell again what was told.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from blobmap.errors import ManifestError
from blobmap.manifest import Manifest, parse_manifest, render_manifest
from blobmap.state import change_state, read_state, state_key
from consumer.flag_steps import Looked

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from blobmap.state import ScopeState
    from blobmap.storage import Storage

AlertKind: TypeAlias = Literal["unmanaged-store", "unclaimed-array", "hot-outgrown", "manifest-invalid"]

_FIELD = "consumer"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Flagged(_Part):
    """The flags of a scope, put together.

    Attributes:
        first_seen: UTC; when the first unclaimed object was seen that no look at the store has covered.
        last_seen: UTC; when the latest one was seen, as far as flags have told.
        first_object: key that the latest flag has named.
    """

    first_seen: AwareDatetime
    last_seen: AwareDatetime
    first_object: str


class Raised(_Part):
    """An alert, which is raised once in the life of its subject.

    Attributes:
        raised: UTC; when it was confirmed.
        key: of an object that nobody claimed then.
        resolved: UTC; when it was confirmed that it is over, None while it is not.
    """

    raised: AwareDatetime
    key: str
    resolved: AwareDatetime | None = None


class Backfilled(_Part):
    """The last backfill that came to its end.

    Attributes:
        began: UTC; when its listing began. What was written later, events have told or flags will tell.
        document: the manifest under which it told, as a document.
        around: epoch of every other scope that covered a part of what it listed; 0 where that changed meanwhile.
    """

    began: AwareDatetime
    document: dict[str, Any]
    around: dict[str, int] = {}

    def manifest(self) -> Manifest:
        """Rules, pins and hot patterns under which everything was told.

        Raises:
            ManifestError: it cannot be read any more.
        """
        return parse_manifest(json.dumps(self.document).encode(), source="the manifest that was backfilled")


class Backfilling(_Part):
    """A backfill that is under way.

    Attributes:
        run: names the chain of its tasks.
        epoch: of the manifest under which it tells.
        began: UTC; when its listing began.
        heartbeat: UTC; when it was last worked on.
        after: where its present task begins: that key and all before it are done. None: at the beginning.
        reached: the last key that this task has done, None where it has done none.
        whole: everything is told, whatever was told before.
        around: as in `Backfilled`, so far.
    """

    run: str
    epoch: Annotated[int, Field(ge=0)]
    began: AwareDatetime
    heartbeat: AwareDatetime
    after: str | None = None
    reached: str | None = None
    whole: bool = False
    around: dict[str, int] = {}


class Memory(_Part):
    """Everything that workers remember of a scope.

    Attributes:
        flagged: its flags, None where there was none.
        looked: the last look that a flag has led to, None where there was none.
        alerts: what was raised, by kind.
        foreign: what lies there instead of a zarr store, None where that is not known or not so.
        backfilled: the last backfill that came to its end.
        backfilling: the one that is under way.
        suspect: the manifest was seen missing or unreadable: what was told meanwhile is not known.
    """

    flagged: Flagged | None = None
    looked: Looked | None = None
    alerts: dict[AlertKind, Raised] = {}
    foreign: str | None = None
    backfilled: Backfilled | None = None
    backfilling: Backfilling | None = None
    suspect: bool = False

    @property
    def backfilled_epoch(self) -> int:
        """Epoch of the manifest that was backfilled last, 0 where none was."""
        return self.backfilled.document["epoch"] if self.backfilled is not None else 0


def backfilled(manifest: Manifest, began: datetime, around: dict[str, int]) -> Backfilled:
    """What is remembered of a backfill that is done."""
    return Backfilled(began=began, document=json.loads(render_manifest(manifest)), around=around)


def recall(storage: Storage, scope: str) -> tuple[Memory, ScopeState]:
    """Reads what is remembered of a scope.

    Args:
        storage: the manifest root.
        scope: any scope.

    Returns:
        The workers' part, and the whole state that it is a part of.

    Raises:
        ManifestError: the state is no such document.
        UnavailableError: the manifest root cannot be reached.
        RefusedError: the manifest root does not serve us.
    """
    state = read_state(storage, scope)
    return _memory(storage, scope, state), state


def remember(storage: Storage, scope: str, change: Callable[[Memory], Memory]) -> Memory:
    """Changes what is remembered of a scope, and loses nothing that others write meanwhile.

    Args:
        storage: the manifest root.
        scope: any scope.
        change: gives the new memory for the one that was read; called again after a conflict.

    Returns:
        The new memory. Nothing is written where it equals the old one.

    Raises:
        ManifestError: the state is no such document; it is left as it is.
        ConflictError: others changed it at every attempt; nothing was written.
        UnavailableError: the manifest root cannot be reached.
        RefusedError: the manifest root does not serve us.
    """

    def changed(state: ScopeState) -> ScopeState:
        before = _memory(storage, scope, state)
        after = change(before)
        if after == before:
            return state
        return replace(state, others={**state.others, _FIELD: after.model_dump(mode="json", exclude_defaults=True)})

    return _memory(storage, scope, change_state(storage, scope, changed))


def _memory(storage: Storage, scope: str, state: ScopeState) -> Memory:
    try:
        return Memory.model_validate(state.others.get(_FIELD, {}))
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, (_FIELD, *fault["loc"])))
        raise ManifestError(
            f"{storage.name}/{state_key(scope)}: {place}: {fault['msg']}; move it away to go on without"
        ) from error
