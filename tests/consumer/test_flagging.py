from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore

from blobmap.errors import UnavailableError
from blobmap.storage import Storage
from consumer import flagging
from consumer.events import ObjectEvent
from consumer.finder import Finder
from consumer.flagging import Flagging
from consumer.flags import FlagBook
from consumer.ledger import Entry
from consumer.ports import Status
from consumer.route import Document, Rules, Unclaimed, route
from tests.support.gated import GatedStorage
from tests.support.manifests import manifest, trie
from tests.support.notifications import created
from tests.support.pipelines import Daemon, HeldSink
from tests.support.stores import RawArray, group_v3, store_objects
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence
    from pathlib import Path

    from blobmap.objects import Body
    from consumer.records import Message

GROUP_V2 = b'{"zarr_format":2}'


# --- the same end, whatever comes first


STORES = {
    **store_objects("p/three", [RawArray("g/t", (2,), (1,)), RawArray("x", (1,), (1,))]),
    **store_objects("p/two.zarr", [RawArray("g/t", (2,), (1,), format=2)]),
    "p/two.zarr/g/.zgroup": GROUP_V2,
    **store_objects("lone", [RawArray("", (2,), (1,))]),
    **store_objects("s.zarr", [RawArray("new", (2,), (1,))]),
}
OTHERS = {
    "p/readme.txt": b"1",
    "files/a.nc": b"1",
    "ice/repo": b"1",
    "ice/snapshots/S": b"1",
    "ice/chunks/C": b"1",
}
OBJECTS = STORES | OTHERS
ROOTS = {"p/three", "p/two.zarr", "lone", "s.zarr"}
TRIES = {"b": trie(manifest("s.zarr"))}


class Upload:
    """Objects come to a bucket and their events to a session, one by one; flags are confirmed at once."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.finder = Finder({"b": lambda: storage})
        self.flags: list[dict[str, Any]] = []
        self.entries: list[Entry] = []
        self.status = Status()
        self.released = asyncio.Event()

    async def run(self, keys: Sequence[str], *, ahead: int, eager: bool) -> None:
        """Uploads in this order.

        Args:
            keys: what is uploaded.
            ahead: how many objects are written before the event of the first one comes.
            eager: wait for no answer before the next event comes.
        """
        written = 0
        book = FlagBook("flags", reflag_s=3600)
        async with asyncio.TaskGroup() as tasks:
            taking = Flagging(
                self.finder, book, publish=self._publish, release=self._release, tasks=tasks, status=self.status
            )
            for place, key in enumerate(keys):
                for other in keys[written : place + 1 + ahead]:
                    self.storage.put(other, OBJECTS[other])
                written = max(written, place + 1 + ahead)
                self._take(taking, key)
                while not eager and any(entry.open_outputs for entry in self.entries):
                    self.released.clear()
                    await self.released.wait()
        self.finder.close()

    def _take(self, taking: Flagging, key: str) -> None:
        entry = Entry(len(self.entries))
        self.entries.append(entry)
        outcome = route(ObjectEvent("b", key, "created", "put"), TRIES, Rules())
        if isinstance(outcome, Unclaimed):
            taking.unclaimed(outcome, entry)
        elif isinstance(outcome, Document):
            taking.document(outcome, entry)

    def _release(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            entry.open_outputs -= 1
        self.released.set()

    async def _publish(self, message: Message) -> None:
        self.flags.append(json.loads(message.body))

    async def looked_at(self) -> set[tuple[str, str]]:
        """What a worker finds when everything is there: kind and prefix for every flag."""
        worker = Finder({"b": lambda: self.storage}, trust_s=0)
        told: set[tuple[str, str]] = set()
        for flag in self.flags:
            found = await worker.find("b", flag["first_object"])
            told.add((found.kind, found.prefix))
        worker.close()
        return told


def upload(keys: Sequence[str], *, ahead: int = 0, eager: bool = False) -> Upload:
    async def run() -> Upload:
        done = Upload(Storage(MemoryStore()))
        await done.run(keys, ahead=ahead, eager=eager)
        looked_at = await done.looked_at()
        assert {prefix for kind, prefix in looked_at if kind == "store"} == ROOTS
        # Of what lies beside stores that seemed foreign at first, the next flag tells.
        assert {"files", "ice"} <= {prefix for kind, prefix in looked_at if kind == "foreign"} <= {"p", "files", "ice"}
        assert len(looked_at) == len({prefix for _, prefix in looked_at})
        return done

    done = asyncio.run(run())
    assert all(entry.open_outputs == 0 for entry in done.entries)
    assert {flag["reason"] for flag in done.flags if flag["scope"] == "s.zarr"} == {"unclaimed-array"}
    keys_of_scopes = [flag["key"] for flag in done.flags if flag["scope"] is not None]
    assert len(keys_of_scopes) == len(set(keys_of_scopes)), "one flag for each store"
    return done


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("order", ["alphabetical", "reverse", "documents first"])
def test_uploads_in_these_orders_end_the_same(order: str, *, eager: bool) -> None:
    keys = sorted(OBJECTS)
    if order == "reverse":
        keys.reverse()
    if order == "documents first":
        keys.sort(key=lambda key: (not key.endswith(("zarr.json", ".zgroup", ".zarray")), key.count("/")))
        done = upload(keys, eager=eager)
        assert {flag["scope"] for flag in done.flags} == ROOTS | {None}
        return
    upload(keys, eager=eager)


@settings(max_examples=40)
@given(keys=st.permutations(sorted(OBJECTS)), ahead=st.sampled_from([0, 1, 5, 100]), eager=st.booleans())
def test_uploads_in_any_order_end_the_same(keys: Sequence[str], ahead: int, *, eager: bool) -> None:
    upload(keys, ahead=ahead, eager=eager)


# --- in the pipeline


@pytest.fixture
def storage() -> GatedStorage:
    return GatedStorage()


@pytest.fixture
async def daemon(tmp_path: Path, storage: GatedStorage) -> AsyncIterator[Daemon]:
    """Bucket b can be looked at, c cannot."""
    daemon = Daemon(tmp_path / "queue.sqlite")
    daemon.finder = Finder({"b": lambda: storage})
    yield daemon
    daemon.finder.close()


async def flags(daemon: Daemon) -> list[dict[str, Any]]:
    return [json.loads(message.body) for message in await daemon.read("flags")]


async def test_objects_wait_for_the_store_and_then_for_its_flag(daemon: Daemon, storage: GatedStorage) -> None:
    storage.put("p/store/zarr.json", group_v3())
    gate = storage.hold("p/store/zarr.json")
    daemon.others = sink = HeldSink(daemon)
    async with daemon.running() as queue:
        for number in range(3):
            await queue.put(created("b", f"p/store/t/{number}"))
        await queue.put(created("b", "p/store/u/0"))
        await queue.put(created("b", "s.zarr/t/c/0"))

        async def asked() -> bool:
            return "p/store/zarr.json" in storage.asked and daemon.status.counts["emitted"] == 1

        await eventually(asked, what="the document is read, and a claimed object passes")
        assert await daemon.left() == 5
        assert sink.tried == []
        gate.set()

        async def tried() -> bool:
            return bool(sink.tried)

        await eventually(tried, what="the flag is being published")
        assert await daemon.left() == 5
        sink.free.set()
        await eventually(daemon.nothing_left, what="every message is acknowledged")
        await queue.put(created("b", "p/store/v/0"))
        await eventually(daemon.nothing_left, what="the flag stands for it")
    (flag,) = await flags(daemon)
    assert (flag["scope"], flag["prefix"], flag["reason"]) == ("p/store", "p/store", "new-store")
    assert flag["first_object"] == "p/store/t/0"
    assert storage.asked.count("p/store/zarr.json") == 1


async def test_what_takes_too_long_to_find_is_flagged_by_its_folder(
    daemon: Daemon, storage: GatedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flagging, "_PATIENCE_S", 0.05)
    gate = storage.hold("zarr.json")
    await daemon.handle(*(created("b", key) for key in ("p/store/t/0", "p/store/t/1", "p/store/u/0")))
    told = {flag["prefix"]: (flag["scope"], flag["reason"]) for flag in await flags(daemon)}
    assert told == {"p/store/t": (None, "new-store"), "p/store/u": (None, "new-store")}
    assert daemon.status.counts["flagged before found"] == 2
    daemon.stop.clear()
    await daemon.handle(created("b", "p/store/t/2"))
    assert daemon.status.counts["flagged before found"] == 2, "the flag of its folder stands for it"
    gate.set()


async def test_a_stop_waits_for_what_is_being_looked_for(
    daemon: Daemon, storage: GatedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flagging, "_PATIENCE_S", 0.3)
    gate = storage.hold("zarr.json")
    async with daemon.running() as queue:
        await queue.put(created("b", "p/store/t/0"))

        async def asked() -> bool:
            return "zarr.json" in storage.asked

        await eventually(asked, what="its store is being looked for")
    async with daemon.opened():
        assert await daemon.left() == 0
    assert [flag["prefix"] for flag in await flags(daemon)] == ["p/store/t"]
    gate.set()


class AwayStorage(Storage):
    """A server that does not answer; real ones are in the tests of the finder."""

    def get(self, key: str, *, limit: int | None = None) -> Body:
        del limit
        raise UnavailableError(f"{key} cannot be had")


async def test_what_cannot_be_found_now_is_flagged_by_its_folder(daemon: Daemon) -> None:
    away = AwayStorage(MemoryStore())
    daemon.finder = Finder({"b": lambda: away})
    await daemon.handle(created("b", "p/store/t/0"), created("b", "s.zarr/t9/zarr.json"))
    assert {(flag["prefix"], flag["scope"]) for flag in await flags(daemon)} == {
        ("p/store/t", None),
        ("s.zarr", "s.zarr"),
    }
    daemon.finder.close()


async def test_foreign_data_is_counted_and_flagged_without_a_scope(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flagging, "_MOST_COUNTED", 2)
    keys = ("files/2020/a.nc", "files/2020/b.nc", "files/2021/c.nc", "x", "more/y", "others/z")
    await daemon.handle(*(created("b", key) for key in keys))
    told = {flag["prefix"]: (flag["scope"], flag["reason"], flag["key"]) for flag in await flags(daemon)}
    assert told == {prefix: (None, "new-store", f"b/{prefix}") for prefix in ("files", "", "more", "others")}
    counted = daemon.status.unmanaged
    assert len(counted) == 3
    assert sum(counted.values()) == 6
    assert counted["other prefixes"] >= 2
    assert daemon.status.counts["flags"] == 4


async def test_a_store_may_be_the_whole_bucket(daemon: Daemon, storage: GatedStorage) -> None:
    storage.put("zarr.json", group_v3())
    await daemon.handle(created("b", "t/c/0"), created("b", "at the root"))
    (flag,) = await flags(daemon)
    assert (flag["scope"], flag["prefix"], flag["key"]) == ("", "", "b/")


async def test_without_data_only_a_name_gives_a_scope(daemon: Daemon) -> None:
    await daemon.handle(*(created("c", key) for key in ("p/n.zarr/t/c/0", "p/n.zarr/zarr.json", "q/r/t/c/0", "x")))
    told = {flag["prefix"]: flag["scope"] for flag in await flags(daemon)}
    assert told == {"p/n.zarr": "p/n.zarr", "q": None, "": None}
    assert daemon.status.counts["flags"] == 3
    assert daemon.finder.guessed == {"c": "the configuration has no `data` for it"}


async def test_rewrites_of_known_documents_flag_nothing(daemon: Daemon, storage: GatedStorage) -> None:
    storage.put("s.zarr/g/zarr.json", group_v3())
    keys = ("s.zarr/zarr.json", "s.zarr/t/zarr.json", "s.zarr/lat/zarr.json", "s.zarr/kept/.zarray", "s.zarr/g/.zgroup")
    await daemon.handle(*(created("b", key) for key in (*keys, "s.zarr/g/zarr.json")))
    assert await flags(daemon) == []
    assert daemon.status.counts == {"events": 6, "ignored metadata": 6}


async def test_a_new_array_inside_a_scope_is_flagged_by_its_document(daemon: Daemon, storage: GatedStorage) -> None:
    objects = store_objects("s.zarr", [RawArray("new", (2,), (1,))])
    storage.put("s.zarr/new/zarr.json", objects["s.zarr/new/zarr.json"])
    await daemon.handle(created("b", "s.zarr/new/zarr.json"), created("b", "s.zarr/new/zarr.json"))
    (flag,) = await flags(daemon)
    assert (flag["scope"], flag["reason"]) == ("s.zarr", "unclaimed-array")
    assert flag["first_object"] == "s.zarr/new/zarr.json"


async def test_documents_of_own_accounts_flag_nothing_and_are_seen(daemon: Daemon, storage: GatedStorage) -> None:
    await daemon.handle(created("b", "p/store/t/0"))
    storage.put("p/store/zarr.json", group_v3())
    daemon.stop.clear()
    await daemon.handle(created("b", "p/store/zarr.json", principal="svc-tape"))
    assert [flag["scope"] for flag in await flags(daemon)] == [None]
    daemon.stop.clear()
    await daemon.handle(created("b", "p/store/t/1"))
    assert [flag["scope"] for flag in await flags(daemon)] == [None, "p/store"]


async def test_what_came_while_a_flag_was_held_up_has_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flagging, "_HELD_UP_S", 0.2)
    published: list[dict[str, Any]] = []
    released: list[Entry] = []
    going = asyncio.Event()

    async def publish(message: Message) -> None:
        published.append(json.loads(message.body))
        if len(published) == 1:
            await going.wait()

    storage = Storage(MemoryStore())
    finder = Finder({"b": lambda: storage})
    async with asyncio.TaskGroup() as tasks:
        taking = Flagging(
            finder,
            FlagBook("flags", reflag_s=3600),
            publish=publish,
            release=released.extend,
            tasks=tasks,
            status=Status(),
        )
        taking.unclaimed(Unclaimed(ObjectEvent("b", "s/t/0", "created", "put"), "s"), Entry(0))
        await asyncio.sleep(0.3)
        taking.unclaimed(Unclaimed(ObjectEvent("b", "s/t/1", "created", "put"), "s"), Entry(1))
        assert not released
        going.set()
    finder.close()
    assert len(released) == 2
    assert published[0]["last_seen"] < published[-1]["last_seen"]
