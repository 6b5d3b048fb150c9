from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore

import blobmap.storage
from blobmap.errors import RefusedError, UsageError
from blobmap.manifest import Blob, Manifest, manifest_key
from blobmap.storage import Storage, StorageOptions, open_storage
from consumer import scope_backfill
from consumer.memory import Backfilling, Memory
from consumer.ports import LostError
from consumer.records import record_id, stat_text
from consumer.tasks import Task, task_message
from tests.support import brute_force, strategies
from tests.support.backends import Backend, in_memory, small_server
from tests.support.backfills import LEASE_S, WAITING, Fate, Killed, Queues, Site
from tests.support.manifests import manifest
from tests.support.small_s3 import running_s3
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from blobmap.resolve import Resolution
    from consumer.records import Message
    from tests.support.small_s3 import SmallS3

CHUNKS = tuple(f"s.zarr/t/c/{number}/0" for number in range(12))
OTHERS = ("s.zarr/zarr.json", "s.zarr/lat/c/0", "s.zarr/kept/c/0", "s.zarr/new/c/0", "other/t/c/0", "s.zarr2/t/c/0")
ALL = {(key, "s.zarr", f"b_t_{int(key.split('/')[3]) // 10}") for key in CHUNKS}


@pytest.fixture(scope="module")
def fresh_s3() -> Iterator[Callable[[], SmallS3]]:
    with running_s3() as fresh:
        yield fresh


@pytest.fixture
def server(fresh_s3: Callable[[], SmallS3], monkeypatch: pytest.MonkeyPatch) -> Backend:
    """A bucket that is listed three objects a page."""
    monkeypatch.setattr(blobmap.storage, "_PAGE", 3)
    return small_server(fresh_s3())


@pytest.fixture
def site(tmp_path: Path, server: Backend) -> Site:
    server.fill(*CHUNKS, *OTHERS)
    return Site(tmp_path / "manifests", server.open)


@pytest.fixture
def by_page(tmp_path: Path, server: Backend) -> Site:
    """Each page of the listing is a task of its own."""
    server.fill(*CHUNKS, *OTHERS)
    return Site(tmp_path / "manifests", server.open, range_s=0)


def plus(manifest: Manifest, *prefixes: str) -> Manifest:
    """The next epoch, with a rule more."""
    return replace(
        manifest, epoch=manifest.epoch + 1, blobs=(*manifest.blobs, *(Blob("b_new", (p,), None) for p in prefixes))
    )


# --- what is told


async def test_everything_that_a_first_manifest_claims_is_told_and_written_down(site: Site) -> None:
    site.write(manifest("s.zarr"))
    worker = await site.worker()
    await worker.backfill("s.zarr")
    for queue in ("objects.one", "objects.two"):
        assert site.queues.told(queue) == ALL
        assert len(site.queues.records(queue)) == len(ALL)
    assert {(entry[0], group["scope"], entry[3]) for group, entry in site.queues.journalled()} == ALL
    assert all(group["movers"] == ["one", "two"] for group, _ in site.queues.journalled())
    memory = site.memory("s.zarr")
    assert (memory.backfilled_epoch, memory.backfilling, memory.suspect) == (1, None, False)


async def test_a_record_has_the_id_that_an_event_would_have_had(site: Site, server: Backend) -> None:
    site.write(manifest("s.zarr"))
    await (await site.worker()).backfill("s.zarr")
    listed = {entry["path"]: entry for page in server.open().pages() for entry in page}
    record = next(record for record in site.queues.records() if record["key"] == CHUNKS[11])
    etag = (listed[CHUNKS[11]]["e_tag"] or "").strip('"')
    assert record == {
        "id": record_id(
            bucket="b",
            key=CHUNKS[11],
            event="created",
            confirmed=True,
            etag=etag,
            version_id=None,
            scope="s.zarr",
            blob_id="b_t_1",
        ),
        "bucket": "b",
        "scope": "s.zarr",
        "blob_id": "b_t_1",
        "key": CHUNKS[11],
        "epoch": 1,
        "event": "created",
        "confirmed": True,
        "size": 1,
        "etag": etag,
        "version_id": None,
        "event_time": listed[CHUNKS[11]]["last_modified"].isoformat().replace("+00:00", "Z"),
        "source": "backfill",
    }
    assert etag


async def test_tags_of_files_are_not_told(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for key in CHUNKS:
        (data / key).parent.mkdir(parents=True, exist_ok=True)
        (data / key).write_bytes(b"12")
    site = Site(tmp_path / "manifests", lambda: open_storage(str(data), StorageOptions()))
    site.write(manifest("s.zarr"))
    await (await site.worker()).backfill("s.zarr")
    assert site.queues.told() == ALL
    for entry in open_storage(str(data), StorageOptions()).pages().__iter__().__next__():
        record = next(record for record in site.queues.records() if record["key"] == entry["path"])
        assert (record["etag"], record["size"]) == (None, 2)
        assert record["id"] == record_id(
            bucket="b",
            key=entry["path"],
            event="created",
            confirmed=True,
            etag=None,
            version_id=None,
            scope="s.zarr",
            blob_id=record["blob_id"],
            stat=stat_text(2, entry["last_modified"]),
        )
    assert all(entry[4] is None for _, entry in site.queues.journalled())


async def test_a_later_manifest_tells_what_it_claims_anew(site: Site) -> None:
    site.write(manifest("s.zarr"))
    worker = await site.worker()
    await worker.backfill("s.zarr")
    site.queues.messages.clear()
    site.write(plus(manifest("s.zarr"), "new"))
    await worker.backfill("s.zarr")
    assert site.queues.told() == {("s.zarr/new/c/0", "s.zarr", "b_new_0")}
    assert site.memory("s.zarr").backfilled_epoch == 2


async def test_the_object_that_is_named_like_a_scope_is_told(tmp_path: Path) -> None:
    backend = in_memory()
    backend.fill("a/s", "a/t", "a/s.x")
    site = Site(tmp_path / "manifests", backend.open)
    site.write(Manifest("a/s", 1, (), (Blob("b_all", ("",), None),)))
    await (await site.worker()).backfill("a/s")
    assert site.queues.told() == {("a/s", "a/s", "b_all_0")}


async def test_a_lost_claim_goes_to_the_scope_around(site: Site) -> None:
    outer = Manifest("", 1, (), (Blob("b_all", ("s.zarr/t",), None),))
    site.write(outer)
    site.write(manifest("s.zarr"))
    worker = await site.worker()
    await worker.backfill("", "s.zarr")
    assert site.queues.told() == ALL
    site.manifests.storage.delete(manifest_key("s.zarr"))
    await worker.backfill("s.zarr", "")
    assert site.queues.told() - ALL == {(key, "", "b_all_0") for key in CHUNKS}


bunches = st.lists(strategies.manifests(), min_size=1, max_size=3, unique_by=lambda manifest: manifest.scope).filter(
    lambda bunch: all(_is_kept(one.scope) for one in bunch)
)


def _is_kept(scope: str) -> bool:
    return not scope or (not {"", ".", ".."} & set(scope.split("/")) and scope.isprintable() and scope.isascii())


@given(st.data())
@settings(max_examples=15)
def test_exactly_what_changed_is_told(data: st.DataObject) -> None:
    """Of one scope among neighbours that stay: all that is another blob now, and nothing else."""
    bunch = data.draw(bunches)
    keys = data.draw(st.lists(strategies.keys_about(bunch), max_size=12, unique=True))
    keys = [key for key in keys if key and _is_kept(key)]
    old = data.draw(st.sampled_from(bunch))
    rules = data.draw(strategies.manifests(st.just(old.scope)))
    new = replace(rules, epoch=old.epoch + 1)
    with TemporaryDirectory() as directory:
        asyncio.run(_change_one(Path(directory), bunch, keys, new))


async def _change_one(directory: Path, bunch: list[Manifest], keys: list[str], new: Manifest) -> None:
    store = MemoryStore()
    for key in keys:
        store.put(key, b"1")
    site = Site(directory, lambda: Storage(store))
    for one in bunch:
        site.write(one)
    worker = await site.worker()
    for _ in range(2):  # so that each one has told with the others around it
        await worker.backfill(*(one.scope for one in bunch))
    before = {key: brute_force.resolve(bunch, key) for key in keys}
    assert site.queues.told() == {_claim(key, answer) for key, answer in before.items() if answer.kind == "blob"}
    site.queues.messages.clear()
    site.write(new)
    await worker.backfill(new.scope)
    now = [*(one for one in bunch if one.scope != new.scope), new]
    changed = {
        _claim(key, answer)
        for key, answer in ((key, brute_force.resolve(now, key)) for key in keys)
        if answer.kind == "blob" and _claim(key, answer) != _claim(key, before[key])
    }
    assert site.queues.told() == changed


def _claim(key: str, answer: Resolution) -> tuple[str, str | None, str | None]:
    return key, answer.scope, answer.blob_id


# --- when


async def test_it_waits_until_no_process_can_decide_without_the_manifest(site: Site) -> None:
    site.write(manifest("s.zarr"))
    worker = await site.worker()
    await worker.backfills.consider("b", "s.zarr")
    await worker.handle_next()
    assert not site.queues.messages["tasks"]
    (waiting,) = site.queues.messages[WAITING]
    site.time.passed_s += LEASE_S - 1
    await worker.refresh()
    await worker.backfills.handle(waiting.body, site.queues)
    assert not site.queues.told()
    site.time.passed_s += 1
    await worker.refresh()
    await worker.backfills.handle(waiting.body, site.queues)
    assert site.queues.told() == ALL


async def test_a_worker_that_has_not_read_the_epoch_waits_too(site: Site) -> None:
    site.write(manifest("s.zarr"))
    early = await site.worker()
    late = await site.worker()
    site.write(plus(manifest("s.zarr")))
    await early.refresh()
    await early.backfills.consider("b", "s.zarr")
    site.time.passed_s += LEASE_S
    late.catalog._buckets["b"].manifests.compared_s = site.time.clock()  # fresh, as far as it knows
    stop = asyncio.Event()
    keeping = asyncio.create_task(late.catalog.keep(stop))
    await late.handle_next()
    stop.set()
    await keeping
    assert late.catalog.read_at("b", "s.zarr", 2) == site.time.clock(), "it was asked to read it"
    assert len(site.queues.messages[WAITING]) == 1
    assert not site.queues.told()


async def test_while_manifests_are_stale_a_task_waits_in_its_queue_and_not_in_a_delivery(site: Site) -> None:
    site.write(manifest("s.zarr"))
    worker = await site.worker()
    await worker.backfills.consider("b", "s.zarr")
    site.time.passed_s += 10 * LEASE_S
    await worker.handle_next()
    assert len(site.queues.messages[WAITING]) == 1
    assert not site.queues.told()
    await worker.work()
    assert site.queues.told() == ALL


async def test_what_is_done_or_alive_is_acknowledged_without_work(site: Site) -> None:
    site.write(manifest("s.zarr"))
    worker = await site.worker()
    await worker.backfills.consider("b", "s.zarr")
    (task,) = site.queues.messages["tasks"]
    now = site.time.now()
    alive = Backfilling(run="other", epoch=1, began=now, heartbeat=now)
    site.change("s.zarr", lambda memory: memory.model_copy(update={"backfilling": alive}))
    await worker.backfills.consider("b", "s.zarr")
    assert len(site.queues.messages["tasks"]) == 1, "somebody sees to it"
    await worker.work()
    assert not site.queues.told()
    site.time.passed_s += 3600
    await worker.backfill("s.zarr")
    assert site.queues.told() == ALL
    count = len(site.queues.messages["objects.one"])
    site.queues.messages["tasks"].append(task)
    await worker.work()
    await worker.backfill("s.zarr")
    assert len(site.queues.messages["objects.one"]) == count


@pytest.mark.parametrize("more", [0, 1])
async def test_an_epoch_that_rises_in_the_middle(by_page: Site, more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope_backfill, "_READ_S", 0.01)  # nobody keeps this catalog
    by_page.write(manifest("s.zarr"))
    worker = await by_page.worker()
    await worker.backfills.consider("b", "s.zarr")
    await worker.pass_lease()
    for _ in range(1 + more):
        await worker.handle_next()
    by_page.write(plus(manifest("s.zarr"), "new"))
    await worker.work()
    assert by_page.queues.told() == {*ALL, ("s.zarr/new/c/0", "s.zarr", "b_new_0")}
    assert by_page.memory("s.zarr").backfilled_epoch == 2


async def test_a_task_of_a_later_epoch_makes_way_for_none_older(site: Site) -> None:
    site.write(manifest("s.zarr", epoch=2))
    worker = await site.worker()
    await worker.backfill("s.zarr")
    old = Task(run="old", bucket="b", scope="s.zarr", epoch=1, prefix="s.zarr")
    site.queues.messages["tasks"].append(task_message("tasks", old))
    count = len(site.queues.records())
    await worker.work()
    assert (len(site.queues.records()), site.memory("s.zarr").backfilled_epoch) == (count, 2)


# --- what is not known any more


@pytest.mark.parametrize("how", ["missing", "broken"])
async def test_where_a_manifest_was_missing_everything_is_told_again(site: Site, how: str) -> None:
    site.write(manifest("s.zarr"))
    worker = await site.worker()
    await worker.backfill("s.zarr")
    key = manifest_key("s.zarr")
    good = site.manifests.storage.get(key).data
    if how == "missing":
        site.manifests.storage.delete(key)
    else:
        site.manifests.storage.put(key, b"{")
    await worker.backfill("s.zarr")
    assert site.memory("s.zarr").suspect
    site.queues.messages.clear()
    site.manifests.storage.put(key, good)
    await worker.backfill("s.zarr")
    assert site.queues.told() == ALL
    assert not site.memory("s.zarr").suspect


async def test_a_late_flag_makes_everything_told_again(site: Site) -> None:
    site.write(manifest("s.zarr"))
    worker = await site.worker()
    await worker.backfill("s.zarr")
    began = site.memory("s.zarr").backfilled
    assert began is not None
    site.queues.messages.clear()
    await worker.backfills.consider("b", "s.zarr", last_seen=began.began - timedelta(seconds=1))
    assert not site.queues.messages["tasks"]
    await worker.backfills.consider("b", "s.zarr", last_seen=began.began)
    await worker.work()
    assert site.queues.told() == ALL


async def test_what_turns_suspect_meanwhile_is_told_once_more(by_page: Site) -> None:
    by_page.write(manifest("s.zarr"))
    worker = await by_page.worker()
    await worker.backfills.consider("b", "s.zarr")
    await worker.pass_lease()
    await worker.handle_next()
    by_page.change("s.zarr", lambda memory: memory.model_copy(update={"suspect": True}))
    await worker.work()
    assert len(by_page.queues.records()) == 2 * len(ALL)
    assert not by_page.memory("s.zarr").suspect


# --- what goes wrong


async def test_a_bucket_that_cannot_be_listed_is_tried_again_later(tmp_path: Path) -> None:
    backend = in_memory()
    backend.fill(*CHUNKS)
    doors: list[Callable[[], Storage]] = [backend.open]

    def open_bucket() -> Storage:
        if doors:
            doors.pop()
            raise RefusedError("403")
        return backend.open()

    site = Site(tmp_path, open_bucket)
    site.write(manifest("s.zarr"))
    worker = await site.worker()
    await worker.backfills.consider("b", "s.zarr")
    await worker.pass_lease()
    await worker.handle_next()
    assert len(site.queues.messages[WAITING]) == 1
    await worker.work()
    assert site.queues.told() == ALL


async def test_a_directory_that_cannot_be_read_leaves_it_owed(tmp_path: Path) -> None:
    class Gappy(Storage):
        def gaps(self, prefix: str = "") -> tuple[str, ...]:
            return (f"{prefix}/t/c",)

    backend = in_memory()
    backend.fill(*CHUNKS)
    storages = [backend.open(), Gappy(backend.memory or MemoryStore())]
    site = Site(tmp_path, storages.pop)
    site.write(manifest("s.zarr"))
    worker = await site.worker()
    await worker.backfill("s.zarr")
    assert (site.memory("s.zarr").suspect, site.queues.messages["tasks"]) == (True, []), "nobody tries at once again"
    await worker.backfill("s.zarr")
    assert not site.memory("s.zarr").suspect


@pytest.mark.parametrize(
    ("task", "fault"),
    [
        (Task(run="r", bucket="x", scope=None, epoch=None, prefix=""), "bucket 'x'"),
        (Task(run="r", bucket="b", scope=None, epoch=None, prefix="", mover="x"), "mover 'x' is none of bucket 'b'"),
    ],
)
async def test_a_task_that_nobody_can_do(site: Site, task: Task, fault: str) -> None:
    worker = await site.worker()
    with pytest.raises(UsageError, match=fault):
        await worker.backfills.handle(task_message("tasks", task).body, site.queues)
    await worker.backfills.consider("x", "s.zarr")
    assert not site.queues.messages["tasks"]


async def test_a_lost_session_ends_it(site: Site) -> None:
    class Lost(Queues):
        async def publish(self, message: Message) -> None:
            raise LostError(message.queue)

    site.write(manifest("s.zarr"))
    worker = await site.worker()
    await worker.backfills.consider("b", "s.zarr")
    await worker.pass_lease()
    (task,) = site.queues.messages["tasks"]
    with pytest.raises(LostError):
        await worker.backfills.handle(task.body, Lost())
    await worker.work()
    assert site.queues.told() == ALL


async def test_a_cancelled_task_leaves_no_thread_and_goes_on_where_it_was(site: Site) -> None:
    class Held(Queues):
        async def publish(self, message: Message) -> None:  # noqa: ARG002 - nothing is ever confirmed
            await asyncio.Event().wait()

    def listing() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name.startswith("listing")]

    async def at_work() -> bool:
        return bool(listing())

    async def over() -> bool:
        return not listing()

    site.write(manifest("s.zarr"))
    worker = await site.worker()
    await worker.backfills.consider("b", "s.zarr")
    await worker.pass_lease()
    (task,) = site.queues.messages["tasks"]
    handling = asyncio.create_task(worker.backfills.handle(task.body, Held()))
    await eventually(at_work, what="it lists")
    handling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handling
    await eventually(over, what="the thread is over")
    await worker.work()
    assert site.queues.told() == ALL


async def test_killed_before_and_after_everything_that_it_does(tmp_path: Path, server: Backend) -> None:
    """Each time the same messages come again."""
    keys = CHUNKS[:5]
    server.fill(*keys)
    site = Site(tmp_path / "manifests", server.open, range_s=0)
    site.write(manifest("s.zarr"))
    worker = await site.worker()
    await worker.pass_lease()
    at = 0
    while True:
        at += 1
        site.queues.messages.clear()
        site.change("s.zarr", lambda _: Memory())
        await worker.backfills.consider("b", "s.zarr")
        site.queues.fate = fate = Fate(at)
        try:
            await worker.work()
        except Killed:
            assert site.queues.messages["tasks"], "a task is left"
        site.queues.fate = Fate()
        await worker.work()
        assert {key for key, _, _ in site.queues.told()} == set(keys), f"killed at step {at}"
        assert {entry[0] for _, entry in site.queues.journalled()} == set(keys), f"killed at step {at}"
        assert len(site.queues.records()) <= len(keys) + 3, "what one task tells, at most"
        assert (site.memory("s.zarr").backfilled_epoch, site.memory("s.zarr").backfilling) == (1, None)
        if fate.steps < at:
            break
    assert at > 20


async def test_two_workers_at_once(by_page: Site) -> None:
    by_page.write(manifest("s.zarr"))
    one, two = await by_page.worker(), await by_page.worker()
    await one.backfills.consider("b", "s.zarr")
    await two.backfills.consider("b", "s.zarr")
    await one.pass_lease()
    await two.refresh()
    first, second = by_page.queues.messages.pop("tasks")
    await asyncio.gather(
        one.backfills.handle(first.body, by_page.queues), two.backfills.handle(second.body, by_page.queues)
    )
    assert len(by_page.queues.messages["tasks"]) == 1, "one of them has it"
    await two.work()
    assert sorted(record["key"] for record in by_page.queues.records()) == sorted(CHUNKS)


# --- by hand


async def test_by_hand_one_mover_is_told_what_is_in_force(by_page: Site) -> None:
    by_page.write(manifest("s.zarr"))
    worker = await by_page.worker()
    task = Task(run="hand", bucket="b", scope=None, epoch=None, prefix="", mover="two")
    for _ in range(2):
        by_page.queues.messages.clear()
        by_page.queues.messages["tasks"].append(task_message("tasks", task))
        await worker.work()
        assert by_page.queues.told("objects.two") == ALL
        assert not by_page.queues.messages["objects.one"]
        assert all(group["movers"] == ["two"] for group, _ in by_page.queues.journalled())
    assert by_page.memory("s.zarr") == Memory()


async def test_by_hand_below_a_prefix_and_since_a_time(site: Site, server: Backend) -> None:
    site.write(manifest("s.zarr"))
    worker = await site.worker()
    modified = {entry["path"]: entry["last_modified"] for page in server.open().pages() for entry in page}
    newest = max(modified.values())
    for prefix, since, keys in (
        ("s.zarr/t/c/1", None, {CHUNKS[1]}),
        (CHUNKS[3], None, {CHUNKS[3]}),
        ("", newest + timedelta(seconds=1), set[str]()),
        ("", newest - timedelta(days=1), set(CHUNKS)),
    ):
        site.queues.messages.clear()
        task = Task(run="hand", bucket="b", scope=None, epoch=None, prefix=prefix, since=since)
        site.queues.messages["tasks"].append(task_message("tasks", task))
        await worker.work()
        assert {key for key, _, _ in site.queues.told()} == keys


async def test_a_record_is_told_in_batches(site: Site) -> None:
    site.write(manifest("s.zarr"))
    await (await site.worker()).backfill("s.zarr")
    sizes = [len(json.loads(message.body)["records"]) for message in site.queues.messages["objects.one"]]
    assert sizes == [2] * 6
