from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from obstore.store import LocalStore, MemoryStore

from blobmap import ManifestStore, Trie
from blobmap.errors import ListingError, MissingError, UsageError
from blobmap.manifest import Blob, Bucket, Manifest, Pin
from blobmap.pins import PinnedSize, add_pin, list_pins, measure_pin, parse_until, remove_pin, total_pinned
from blobmap.state import ScopeState, change_state, read_state
from blobmap.storage import Storage

if TYPE_CHECKING:
    from pathlib import Path

    from obstore.store import ObjectStore

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)


def manifest(*pins: Pin, scope: str = "a.zarr", epoch: int = 3) -> Manifest:
    return Manifest(scope, epoch, ("time/**",), (Blob("b_t", ("t/c",), Bucket(0, 10, "v3_slash")),), pins)


def held(*pins: Pin, store: ObjectStore | None = None) -> ManifestStore:
    manifests = ManifestStore(store or MemoryStore())
    manifests.write(manifest(*pins), etag=None)
    return manifests


def test_a_pin_is_added_at_the_next_epoch_and_changes_nothing_else() -> None:
    manifests = held(Pin("x", "first"))
    returned = add_pin(manifests, "a.zarr", Pin("t/", "for a test"))
    now = manifests.read("a.zarr").manifest
    assert now == returned == manifest(Pin("x", "first"), Pin("t", "for a test"), epoch=4)
    assert read_state(manifests.storage, "a.zarr").highest_epoch == 4


def test_a_pin_on_the_same_prefix_is_replaced_in_its_place() -> None:
    manifests = held(Pin("t/", "old"), Pin("x", "stays"))
    assert add_pin(manifests, "a.zarr", Pin("t", "new")).pinned == (Pin("t", "new"), Pin("x", "stays"))


def test_a_pin_is_removed_and_no_other() -> None:
    manifests = held(Pin("t", "1"), Pin("t/c/0", "2"), Pin("", "3"))
    assert [pin.prefix for pin in remove_pin(manifests, "a.zarr", "t/").pinned] == ["t/c/0", ""]
    assert [pin.prefix for pin in remove_pin(manifests, "a.zarr", "").pinned] == ["t/c/0"]
    with pytest.raises(UsageError, match=r"no pin on 't'; it has pins on: 't/c/0'"):
        remove_pin(manifests, "a.zarr", "t")
    assert manifests.read("a.zarr").manifest.epoch == 5


def test_an_epoch_that_was_written_once_is_never_given_again() -> None:
    manifests = held()
    change_state(manifests.storage, "a.zarr", lambda _: ScopeState(highest_epoch=9))
    assert add_pin(manifests, "a.zarr", Pin("t", "x")).epoch == 10


@pytest.mark.parametrize("prefix", ["..", "t/../x", "a//b", "/t", "."])
def test_a_prefix_that_is_no_key_is_refused(prefix: str) -> None:
    manifests = held()
    with pytest.raises(UsageError, match="is no prefix"):
        add_pin(manifests, "a.zarr", Pin(prefix, "x"))
    assert manifests.read("a.zarr").manifest.epoch == 3


def test_a_scope_needs_a_manifest() -> None:
    with pytest.raises(MissingError):
        add_pin(held(), "b.zarr", Pin("t", "x"))


@pytest.mark.parametrize("kind", ["memory", "local"])
def test_people_who_pin_at_once_lose_nothing(kind: str, tmp_path: Path) -> None:
    store = MemoryStore() if kind == "memory" else LocalStore(tmp_path)
    held(store=store)
    names = [f"t{number}" for number in range(6)]
    with ThreadPoolExecutor(len(names)) as people:
        written = list(people.map(lambda name: add_pin(ManifestStore(store), "a.zarr", Pin(name, "x")), names))
    now = ManifestStore(store).read("a.zarr").manifest
    assert sorted(pin.prefix for pin in now.pinned) == names
    epochs = sorted(each.epoch for each in written)
    assert len(set(epochs)) == len(names)
    assert now.epoch == epochs[-1]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("2026-12-01", "2026-12-01"),
        ("20261201", "2026-12-01"),
        ("2026-12-01T12:00:00Z", "2026-12-01T12:00:00+00:00"),
        ("2026-12-01T12:00:00+02:00", "2026-12-01T10:00:00+00:00"),
        ("2026-12-01 12:00", "2026-12-01T12:00:00+00:00"),
    ],
)
def test_a_date_is_read(text: str, read: str) -> None:
    assert parse_until(text) == read


@pytest.mark.parametrize(
    "text", ["", "soon", "2026-13-01", "2026-02-30", "01.12.2026", "2026-12", "2026-12-01T25:00:00"]
)
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no date"):
        parse_until(text)


@pytest.mark.parametrize(
    ("until", "concerns"),
    [
        (None, ("open-ended",)),
        ("2026-06-14", ("expired",)),
        ("2026-06-15", ()),
        ("2026-06-15T11:59:00Z", ("expired",)),
        ("2026-06-15T12:01:00", ()),
        ("when it is done", ("no valid date",)),
    ],
)
def test_a_pin_says_why_it_wants_looking_at(until: str | None, concerns: tuple[str, ...]) -> None:
    (found,) = list_pins([manifest(Pin("t", "x", until=until))], now=NOW, measure=lambda *_: (1, 1))
    assert found.concerns == concerns


def test_those_that_want_looking_at_come_first() -> None:
    pins = {
        "fine": "2027-01-01",
        "open": None,
        "gone": "2027-01-01",
        "odd": "soon",
        "late": "2026-01-01",
        "later": "2025-01-01",
    }
    listed = list_pins(
        [manifest(*(Pin(name, "x", until=until) for name, until in pins.items()))],
        now=NOW,
        measure=lambda _, pin: (0, 0) if pin.prefix in ("gone", "later") else (2, 20),
    )
    assert [found.pin.prefix for found in listed] == ["later", "late", "odd", "gone", "open", "fine"]
    assert listed[0].concerns == ("expired", "dangling")


def fill(store: MemoryStore, *keys: str) -> None:
    for key in keys:
        store.put(key, b"12345")


def test_what_a_pin_holds_is_counted_without_metadata_and_neighbours() -> None:
    store = MemoryStore()
    fill(store, "a.zarr/t/c/0", "a.zarr/t/c/1", "a.zarr/t/zarr.json", "a.zarr/t2/c/0", "b/c")
    trie = Trie()
    trie.add(manifest(Pin("t", "x"), Pin("gone", "x")))
    assert measure_pin(Storage(store), trie, "a.zarr", Pin("t/", "x")) == (2, 10)
    assert measure_pin(Storage(store), trie, "a.zarr", Pin("gone", "x")) == (0, 0)
    assert measure_pin(Storage(store), trie, "a.zarr", Pin("t/../t", "x")) == (0, 0)
    assert measure_pin(Storage(store), trie, "a.zarr", Pin("t/c/0", "x")) == (1, 5)


def test_a_pin_on_the_whole_bucket_is_counted() -> None:
    store = MemoryStore()
    fill(store, "a/b", "c")
    trie = Trie()
    trie.add(manifest(Pin("", "x"), scope=""))
    assert measure_pin(Storage(store), trie, "", Pin("", "x")) == (2, 10)


def test_a_part_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t/link").symlink_to(tmp_path.parent)
    trie = Trie()
    trie.add(manifest(Pin("t", "x"), scope=""))
    with pytest.raises(ListingError, match="cannot be counted"):
        measure_pin(Storage(LocalStore(tmp_path)), trie, "", Pin("t", "x"))


def test_the_total_has_each_object_once() -> None:
    inner = [
        PinnedSize("a", Pin("t", "x"), (), 5, 50),
        PinnedSize("a", Pin("t/c/0", "x"), (), 1, 10),
        PinnedSize("a/t", Pin("", "x"), (), 5, 50),
        PinnedSize("b", Pin("", "x"), (), 2, 20),
    ]
    assert total_pinned(inner) == (7, 70)
    assert total_pinned([*inner, PinnedSize("", Pin("", "x"), (), 9, 90)]) == (9, 90)
    assert total_pinned([*inner, PinnedSize("c", Pin("", "x"), ())]) == (None, None)
    assert total_pinned([]) == (0, 0)
