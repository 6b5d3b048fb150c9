from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from obstore.store import LocalStore, MemoryStore

from blobmap.errors import ManifestError
from blobmap.state import Unclaimable, change_state, read_state
from blobmap.storage import as_storage
from consumer.flag_steps import Looked
from consumer.memory import Backfilling, Flagged, Memory, Raised, backfilled, recall, remember
from tests.support.manifests import manifest

if TYPE_CHECKING:
    from pathlib import Path

    from blobmap.state import ScopeState
    from blobmap.storage import Storage

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
FULL = Memory(
    flagged=Flagged(first_seen=NOW, last_seen=NOW + timedelta(seconds=1.5), first_object="s/a/c/0"),
    looked=Looked(covered=NOW, began=NOW, done=True, hot_since=NOW, failed="a reason"),
    alerts={"unmanaged-store": Raised(raised=NOW, key="s/a/c/0", resolved=NOW)},
    foreign="netCDF",
    backfilled=backfilled(manifest("s", epoch=3), NOW, {"": 2}),
    backfilling=Backfilling(run="r", epoch=4, began=NOW, heartbeat=NOW, after="s/a", reached="s/b"),
    suspect=True,
)


@pytest.fixture
def root() -> Storage:
    return as_storage(MemoryStore())


def test_what_is_remembered_comes_back(root: Storage) -> None:
    assert remember(root, "s", lambda _: FULL) == FULL
    assert recall(root, "s")[0] == FULL
    assert recall(root, "s")[0].backfilled_epoch == 3
    assert recall(root, "other")[0] == Memory()
    assert Memory().backfilled_epoch == 0


def test_others_keep_their_fields(root: Storage) -> None:
    def theirs(state: ScopeState) -> ScopeState:
        return type(state)(7, {"a": Unclaimable("why", "e", "1")}, {**state.others, "theirs": [1]})

    change_state(root, "s", theirs)
    remember(root, "s", lambda _: FULL)
    state = read_state(root, "s")
    assert (state.highest_epoch, list(state.unclaimable), state.others["theirs"]) == (7, ["a"], [1])


def test_nothing_is_written_where_nothing_changes(root: Storage) -> None:
    remember(root, "s", lambda memory: memory)
    assert read_state(root, "s").others == {}
    remember(root, "s", lambda _: FULL)
    before = root.get(".blobmap/state/s.json")
    remember(root, "s", lambda memory: memory)
    assert root.get(".blobmap/state/s.json") == before


def test_workers_at_once_undo_nothing_of_each_other(tmp_path: Path) -> None:
    def raise_one(number: int) -> None:
        storage = as_storage(LocalStore(tmp_path))

        def change(memory: Memory) -> Memory:
            seen = memory.flagged.first_object if memory.flagged else ""
            return memory.model_copy(
                update={"flagged": Flagged(first_seen=NOW, last_seen=NOW, first_object=f"{seen},{number}")}
            )

        remember(storage, "s", change)

    threads = [threading.Thread(target=raise_one, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    flagged = recall(as_storage(LocalStore(tmp_path)), "s")[0].flagged
    assert flagged is not None
    assert sorted(flagged.first_object.split(",")[1:]) == list("012345")


@pytest.mark.parametrize("broken", [{"suspect": "perhaps"}, {"flagged": {"first_seen": "2026-11-30T12:00:00"}}, []])
def test_a_state_that_is_none_is_left_as_it_is(root: Storage, broken: object) -> None:
    root.create(".blobmap/state/s.json", json.dumps({"consumer": broken}).encode())
    before = root.get(".blobmap/state/s.json")
    with pytest.raises(ManifestError, match=r"state/s\.json: consumer.*move it away"):
        remember(root, "s", lambda _: FULL)
    with pytest.raises(ManifestError, match="move it away"):
        recall(root, "s")
    assert root.get(".blobmap/state/s.json") == before


def test_what_a_later_version_remembers_is_no_fault(root: Storage) -> None:
    root.create(".blobmap/state/s.json", json.dumps({"consumer": {"suspect": True, "later": 1}}).encode())
    assert recall(root, "s")[0] == Memory(suspect=True)
