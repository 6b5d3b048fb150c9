from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from obstore.store import LocalStore, MemoryStore

from blobmap import ManifestStore
from blobmap.errors import ConflictError, ManifestError
from blobmap.state import ScopeState, Unclaimable, change_state, read_state, state_key
from blobmap.storage import Storage

STATE = ScopeState(3, {"tas": Unclaimable("odd keys", '"e"', "0.6"), "pr": Unclaimable("", None, "0.6")})


def test_what_is_remembered_reads_back() -> None:
    storage = Storage(MemoryStore())
    assert read_state(storage, "a/st.zarr") == ScopeState()
    assert change_state(storage, "a/st.zarr", lambda _: STATE) == STATE
    assert read_state(storage, "a/st.zarr") == STATE
    assert read_state(storage, "a") == ScopeState()
    assert json.loads(storage.get(".blobmap/state/a/st.zarr.json").data)["highest_epoch"] == 3


def test_fields_of_others_stay_as_they_are() -> None:
    storage = Storage(MemoryStore())
    theirs = {"backfilled_epoch": 2, "suspect": True, "cursor": {"key": "x", "at": None}}
    storage.put(state_key("st"), json.dumps(theirs).encode())
    change_state(storage, "st", lambda state: replace(state, highest_epoch=5))
    assert json.loads(storage.get(state_key("st")).data) == {"highest_epoch": 5, "unclaimable": {}, **theirs}


def test_what_does_not_change_is_not_written() -> None:
    storage = Storage(MemoryStore())
    assert change_state(storage, "st", lambda state: state) == ScopeState()
    assert list(storage.pages()) == []
    change_state(storage, "st", lambda _: STATE)
    etag = storage.get(state_key("st")).etag
    change_state(storage, "st", lambda _: STATE)
    assert storage.get(state_key("st")).etag == etag


def test_changes_at_once_are_all_kept(tmp_path_factory: pytest.TempPathFactory) -> None:
    for store in (MemoryStore(), LocalStore(tmp_path_factory.mktemp("root"))):
        storage = Storage(store)

        def add(number: int, storage: Storage = storage) -> None:
            entry = {str(number): Unclaimable("x", None, "1")}
            change_state(storage, "st", lambda state: replace(state, unclaimable={**state.unclaimable, **entry}))

        with ThreadPoolExecutor(4) as writers:
            list(writers.map(add, range(12)))
        assert sorted(read_state(storage, "st").unclaimable) == sorted(str(number) for number in range(12))


def test_a_conflict_that_does_not_end_is_told() -> None:
    storage = Storage(MemoryStore())

    def spoil(state: ScopeState) -> ScopeState:
        storage.put(state_key("st"), json.dumps({"highest_epoch": state.highest_epoch + 1}).encode())
        return replace(state, highest_epoch=0, unclaimable=STATE.unclaimable)

    with pytest.raises(ConflictError):
        change_state(storage, "st", spoil)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{", "not JSON"),
        (b"[]", r"the document is one that begins with '\[', allowed: a JSON object"),
        (b'{"highest_epoch": -1}', "highest_epoch is -1"),
        (b'{"highest_epoch": true}', "highest_epoch is True"),
        (b'{"unclaimable": []}', "unclaimable is \\[\\]"),
        (b'{"unclaimable": {"a": 5}}', "unclaimable.a is 5"),
        (b'{"unclaimable": {"a": {"reason": "x"}}}', "unclaimable.a.version is None"),
        (b'{"unclaimable": {"a": {"reason": "x", "version": "1", "etag": 5}}}', "unclaimable.a.etag is 5"),
    ],
)
def test_what_is_no_state_is_named_and_left(data: bytes, said: str) -> None:
    storage = Storage(MemoryStore())
    storage.put(state_key("st"), data)
    with pytest.raises(ManifestError, match=rf"memory/\.blobmap/state/st\.json: .*{said}.*move it away"):
        change_state(storage, "st", lambda _: STATE)
    assert storage.get(state_key("st")).data == data


def test_the_state_is_no_manifest() -> None:
    store = MemoryStore()
    for scope in ("", "a", "a/b/manifest"):
        change_state(Storage(store), scope, lambda _: STATE)
    assert list(ManifestStore(store).load_all(strict=True)) == []
