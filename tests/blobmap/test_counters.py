from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest
from obstore.store import LocalStore, MemoryStore

from blobmap.counters import Counters
from blobmap.counting import Counted, Order
from blobmap.errors import ListingError, RefusedError
from blobmap.splits import Share
from blobmap.storage import Storage
from blobmap.survey import survey_store
from blobmap.tally import Tally
from tests.support.measured import layout_of
from tests.support.processes import living
from tests.support.stores import RawArray, put_all, store_objects

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
STORE = [
    RawArray("tas", (300, 2), (1, 1), ["time", "x"], nbytes=3),
    RawArray("flat", (300,), (1,), ["i"], separator=".", nbytes=5),
    RawArray("old", (2, 300), (1, 1), ["x", "time"], format=2, separator="/", nbytes=7),
    RawArray("time", (300,), (10,), ["time"]),
]
EXTRA = {"st/tas/README": b"12345", "st/tas/c/7/extra": b"1", "st/flat/c/0/0": b"22", "st/old/1.0": b"3"}


def write_files(root: Path, objects: dict[str, bytes]) -> None:
    for key, data in objects.items():
        path = root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def order_of(root: Path, raw: RawArray, share: Share | None = None) -> Order:
    layout = layout_of(raw)
    return Order(str(root), frozenset(), "a", share or Share("a/c"), Tally(layout, "a/"))


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counters]:
    monkeypatch.setattr("blobmap.counters._processors", lambda: 2)
    made = Counters()
    yield made
    made.end()


@pytest.fixture
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blobmap.survey._LARGE_LOCAL", 50)
    monkeypatch.setattr("blobmap.counters._processors", lambda: 2)


@pytest.mark.usefixtures("small_is_large")
def test_processes_count_what_threads_count(tmp_path: Path) -> None:
    inner = RawArray("tas/deep", (100,), (1,), ["y"])
    objects = {**store_objects("st", [inner]), **store_objects("st", STORE), **EXTRA}
    write_files(tmp_path, objects)
    memory = MemoryStore()
    put_all(memory, objects)
    seen: list[int] = []
    found = survey_store(Storage(LocalStore(tmp_path)), "st", on_progress=lambda now: seen.append(now.objects))
    expected = survey_store(Storage(memory), "st")
    assert [(array.objects, array.stored_bytes, array.strays) for array in expected.arrays] == [
        (300, 1500, 1),
        (600, 4200, 1),
        (600, 1800, 2),
        (100, 400, 0),
        (30, 120, 0),
    ]
    assert (found.arrays, found.groups, found.warnings) == (expected.arrays, expected.groups, expected.warnings)
    assert max(seen) >= 1600


@pytest.mark.usefixtures("small_is_large")
def test_a_rectilinear_axis_is_summed_over_the_shares(tmp_path: Path) -> None:
    raw = RawArray("a", (120, 2), dims=["time", "x"], edges=[[[1, 120]], [[1, 2]]])
    objects = store_objects("st", [raw])
    write_files(tmp_path, objects)
    memory = MemoryStore()
    put_all(memory, objects)
    (found,) = survey_store(Storage(LocalStore(tmp_path)), "st").arrays
    assert found == survey_store(Storage(memory), "st").arrays[0]
    assert found.ends[0] == (8.0, 8.0)


@pytest.mark.usefixtures("small_is_large")
def test_what_a_process_cannot_list_is_a_gap_of_the_store(tmp_path: Path) -> None:
    write_files(tmp_path / "data", store_objects("st", STORE))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "data" / "st" / "tas" / "c" / "8888").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "st" / "tas" / "c" / os.fsdecode(b"\xff")).write_bytes(b"")
    storage = Storage(LocalStore(tmp_path / "data"))
    with pytest.raises(ListingError, match=r"unreadable: 'st/tas/c/8888', 'st/tas/c/.*xff'"):
        survey_store(storage, "st")
    assert storage.odd_keys == ["st/tas/c/\\xff"]


def test_a_process_is_used_again_and_ended(tmp_path: Path, counters: Counters) -> None:
    raw = RawArray("a", (20,), (1,))
    write_files(tmp_path, {f"a/c/{index}": b"12" for index in range(20)})
    used = set()
    for _ in range(2):
        counted = counters.count(order_of(tmp_path, raw), Event(), lambda _: None)
        assert counted.tally.result().stored_bytes == 40
        used |= set(counters._idle)
    (counter,) = used
    counters.end()
    assert counter._process.returncode == -signal.SIGKILL


def test_a_process_that_ends_is_an_error_and_never_a_smaller_array(tmp_path: Path, counters: Counters) -> None:
    order = order_of(tmp_path, RawArray("a", (20,), (1,)))
    counters.count(order, Event(), lambda _: None)
    (counter,) = counters._idle
    os.kill(counter._process.pid, signal.SIGKILL)
    with pytest.raises(ListingError, match=r"'a' was not counted to its end.*exit status -9"):
        counters.count(order, Event(), lambda _: None)
    assert not counters._idle


def test_an_error_in_a_process_is_an_error_here(tmp_path: Path, counters: Counters) -> None:
    order = order_of(tmp_path, RawArray("a", (20,), (1,)))
    write_files(tmp_path, {"a/c/0": b""})
    wrong = Order(order.root, order.exclude, order.key, order.share, None)  # type: ignore[arg-type]  # a fault to be told
    with pytest.raises(ListingError, match=r"'a' could not be counted: AttributeError"):
        counters.count(wrong, Event(), lambda _: None)
    assert counters.count(order, Event(), lambda _: None).tally.result().objects == 1


def test_an_error_of_our_tree_keeps_its_class(tmp_path: Path, counters: Counters) -> None:
    order = order_of(tmp_path, RawArray("a", (20,), (1,)))
    gone = Order(str(tmp_path / "file"), order.exclude, "", order.share, order.tally)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Exception, match="Not a directory") as caught:
        counters.count(gone, Event(), lambda _: None)
    assert type(caught.value).__module__ == "blobmap.errors"
    assert not isinstance(caught.value, ListingError | RefusedError)


def test_nobody_waits_for_an_answer_that_is_not_wanted(tmp_path: Path, counters: Counters) -> None:
    order = order_of(tmp_path, RawArray("a", (20,), (1,)))
    counters.count(order, Event(), lambda _: None)
    (counter,) = counters._idle
    os.kill(counter._process.pid, signal.SIGSTOP)
    stopping = Event()
    stopping.set()
    assert isinstance(counters.count(order, stopping, lambda _: None), Counted)
    assert counter._process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("interpreter", ["/nonexistent/python", "/bin/true", "/bin/sh"])
def test_where_no_process_can_be_started_the_thread_counts(
    tmp_path: Path, counters: Counters, monkeypatch: pytest.MonkeyPatch, interpreter: str
) -> None:
    monkeypatch.setattr(sys, "executable", interpreter)
    write_files(tmp_path, {f"a/c/{index}": b"12" for index in range(20)})
    pages: list[int] = []
    counted = counters.count(order_of(tmp_path, RawArray("a", (20,), (1,))), Event(), pages.append)
    assert (counted.tally.result().objects, pages) == (20, [20])
    assert not counters.useful
    assert not counters._idle


def test_one_processor_is_left_to_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    assert not Counters().useful


# No guard against being imported, as in a notebook or a few lines that somebody tries.
SCRIPT = """
import sys
import blobmap.counters, blobmap.survey
from obstore.store import LocalStore, MemoryStore
from blobmap import ManifestStore, partition_store
started = []
sys.addaudithook(lambda event, args: started.append(event) if event == "subprocess.Popen" else None)
blobmap.survey._LARGE_LOCAL = 50
blobmap.counters._processors = lambda: 2
print("begun", flush=True)
outcome = partition_store(LocalStore(sys.argv[1]), ManifestStore(MemoryStore()), "st")
print(sum(row.objects for row in outcome.decisions), len(started))
"""


def test_a_script_without_a_guard_runs_once(tmp_path: Path) -> None:
    write_files(tmp_path / "data", store_objects("st", STORE))
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    (tmp_path / "cwd").mkdir()
    (tmp_path / "cwd" / "multiprocessing.py").write_text("raise SystemExit(1)")  # must not stand in for the library's
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path / "cwd",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"begun\n1530 [12]\n", done.stdout)


# The processes are stopped as soon as they have said anything, so what they have not begun never ends by itself.
INTERRUPTED = """
import os, signal, subprocess, sys
from pathlib import Path
import blobmap.counters, blobmap.survey
from obstore.store import LocalStore, MemoryStore
from blobmap import ManifestStore, partition_store
made = []
class Noted(subprocess.Popen):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        made.append(self)
subprocess.Popen = Noted
blobmap.survey._LARGE_LOCAL = 50
blobmap.counters._processors = lambda: 2
def stop(now):
    if now.objects and made:
        for process in made:
            process.send_signal(signal.SIGSTOP)
        print("counting", flush=True)
partition_store(LocalStore(sys.argv[1]), ManifestStore(MemoryStore()), "st", on_progress=stop)
"""


@pytest.mark.parametrize("to_group", [True, False])
def test_an_interrupt_ends_all_of_them(tmp_path: Path, to_group: bool) -> None:
    many = [RawArray(f"v{number}", (100,), (1,), ["i"]) for number in range(8)]
    write_files(tmp_path, store_objects("st", many))
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "counting\n"
        assert len(living(process.pid)) > 1
        (os.killpg if to_group else os.kill)(process.pid, signal.SIGINT)
        _, said = process.communicate()
    assert process.returncode == -signal.SIGINT
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert not living(process.pid)
