"""Local files: names as they are on disk, links that lead nowhere good, and writes that are all or nothing."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from blobmap.errors import ConflictError, MissingError, RefusedError, UnavailableError, UsageError
from blobmap.local_files import _modified
from blobmap.storage import Storage, StorageOptions, open_storage
from tests.support.powerless import powerless

if TYPE_CHECKING:
    from collections.abc import Callable


def opened(directory: Path, *, timeout_s: float = 60.0) -> Storage:
    return open_storage(str(directory), StorageOptions(timeout_s=timeout_s))


def listed(storage: Storage, prefix: str = "", *, after: str | None = None) -> list[str]:
    return sorted(entry["path"] for page in storage.pages(prefix, after=after) for entry in page)


def make(root: Path, *keys: str) -> None:
    for key in keys:
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(b"1")


# Names.


def test_names_that_shells_and_terminals_break_on_are_keys_like_others(tmp_path: Path) -> None:
    names = [
        "new\nline",
        "tab\t",
        "bell\x07",
        "\x7f",
        "-rf",
        "a*",
        "?",
        "[x]",
        "caf\u00e9",
        "cafe\u0301",
        "a b",
        "a%20b",
    ]
    make(tmp_path, *(f"s/{name}/{name}" for name in names))
    storage = opened(tmp_path)
    assert listed(storage) == sorted(f"s/{name}/{name}" for name in names)
    assert all(storage.get(f"s/{name}/{name}").data == b"1" for name in names)
    assert sorted(storage.level("s").prefixes) == sorted(f"s/{name}" for name in names)
    assert (storage.unreadable, storage.odd_keys) == ([], [])


def test_a_name_that_is_no_text_is_told_and_costs_no_other(tmp_path: Path) -> None:
    make(tmp_path, "s/a/0", "s/z")
    (tmp_path / "s" / "a" / os.fsdecode(b"caf\xe9")).touch()
    (tmp_path / "s" / os.fsdecode(b"\xff")).mkdir()
    storage = opened(tmp_path)
    assert listed(storage) == ["s/a/0", "s/z"]
    assert sorted(storage.odd_keys) == ["s/\\xff", "s/a/caf\\xe9"]
    assert sorted(storage.unreadable) == ["s/\\xff", "s/a/caf\\xe9"]
    assert storage.gaps("s/a")
    assert not storage.gaps("s/z")


def test_what_is_no_file_is_no_object(tmp_path: Path) -> None:
    make(tmp_path, "a")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        storage = opened(tmp_path)
        assert listed(storage) == ["a"]
        assert [entry["path"] for entry in storage.level().objects] == ["a"]
        for name in ("pipe", "socket"):
            with pytest.raises(MissingError):
                storage.get(name)


def test_a_time_beyond_the_calendar_does_not_end_a_listing(tmp_path: Path) -> None:
    make(tmp_path, "a")
    os.utime(tmp_path / "a", (0, 10**15))  # some file systems keep it
    assert listed(opened(tmp_path)) == ["a"]
    assert _modified(os.stat_result((0, 0, 0, 0, 0, 0, 0, 0, 10**15, 0))).timestamp() == 0


def test_files_that_go_while_they_are_listed_are_no_error(tmp_path: Path) -> None:
    make(tmp_path, *(f"a/{n}" for n in range(3000)))
    storage = opened(tmp_path)
    pages = iter(storage.pages())
    first = next(pages)
    shutil.rmtree(tmp_path / "a")
    assert len(first) + sum(len(page) for page in pages) < 3000
    assert storage.unreadable == []


def test_a_deep_tree_and_a_wide_one(tmp_path: Path) -> None:
    deep = "/".join(["d"] * 200) + "/x"
    make(tmp_path, deep, *(f"wide/{n}" for n in range(2500)))
    storage = opened(tmp_path)
    assert len(listed(storage)) == 2501
    assert listed(storage, "d") == [deep]
    assert [len(page) for page in storage.pages("wide")] == [1000, 1000, 500]


def test_a_listing_that_is_left_early_leaves_nothing_open(tmp_path: Path) -> None:
    make(tmp_path, *(f"a/{n}/x" for n in range(1100)))
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        pages = iter(opened(tmp_path).pages())
        next(pages)
        del pages
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_what_lies_wholly_before_the_offset_is_not_even_opened(tmp_path: Path) -> None:
    make(tmp_path, "a/x", "b/x", "b/y", "c/x")
    (tmp_path / "a" / "up").symlink_to("..")
    (tmp_path / "a0").symlink_to("/")
    storage = opened(tmp_path)
    assert listed(storage, after="b/x") == ["b/y", "c/x"]
    assert storage.unreadable == []


# Links.


def test_a_link_out_of_the_root_is_not_followed(tmp_path: Path) -> None:
    make(tmp_path, "outside/secret", "root/a")
    root = tmp_path / "root"
    (root / "file").symlink_to("../outside/secret")
    (root / "directory").symlink_to(tmp_path / "outside")
    storage = opened(root)
    assert listed(storage) == ["a"]
    assert sorted(storage.unreadable) == ["directory", "file"]
    for key in ("file", "directory/secret"):
        with pytest.raises(MissingError, match="leads out of"):
            storage.get(key)
        with pytest.raises(MissingError, match="leads out of"):
            storage.put(key, b"2")
    assert listed(storage, "directory") == []
    assert (tmp_path / "outside" / "secret").read_bytes() == b"1"


def test_a_loop_of_links_ends_no_listing(tmp_path: Path) -> None:
    make(tmp_path, "s/a", "s/t/0")
    (tmp_path / "s" / "t" / "up").symlink_to("..")
    (tmp_path / "s" / "self").symlink_to("self")
    (tmp_path / "s" / "dangling").symlink_to("nothing")
    storage = opened(tmp_path)
    assert listed(storage) == ["s/a", "s/t/0"]
    assert sorted(storage.unreadable) == ["s/dangling", "s/self", "s/t/up"]
    assert storage.gaps("s")
    assert not storage.gaps("s/a")
    with pytest.raises(MissingError):
        storage.get("s/self")


def test_a_link_to_a_file_below_the_root_is_an_object(tmp_path: Path) -> None:
    make(tmp_path, "s/a")
    (tmp_path / "s" / "b").symlink_to("a")
    storage = opened(tmp_path)
    assert listed(storage) == ["s/a", "s/b"]
    assert storage.get("s/b").data == b"1"
    assert storage.unreadable == []


def test_a_directory_that_becomes_a_link_while_it_is_walked_is_not_followed(tmp_path: Path) -> None:
    make(tmp_path, *(f"root/a/{n}" for n in range(1000)), "root/b/1", "outside/secret")
    pages = opened(tmp_path / "root").pages()
    found = [entry["path"] for entry in next(iter(pages))]
    swapped = "a" if found[0].startswith("b") else "b"
    if swapped == "b":
        (tmp_path / "root" / "b" / "1").unlink()
        (tmp_path / "root" / "b").rmdir()
        (tmp_path / "root" / "b").symlink_to(tmp_path / "outside")
    rest = [entry["path"] for page in pages for entry in page]
    assert not any("secret" in key for key in found + rest)


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    make(tmp_path, "real/a")
    (tmp_path / "link").symlink_to("real")
    assert listed(opened(tmp_path / "link")) == ["a"]


# Rights.


def test_a_directory_without_rights_is_named_and_the_rest_is_listed() -> None:
    with powerless() as root:
        make(root, "s/a/0", "s/closed/0", "s/z")
        (root / "s" / "closed").chmod(0)
        storage = opened(root)
        assert listed(storage) == ["s/a/0", "s/z"]
        assert storage.unreadable == ["s/closed"]
        (root / "s" / "z").chmod(0)
        with pytest.raises(RefusedError, match="s/z: Permission denied"):
            storage.get("s/z")
        (root / "s").chmod(0)
        with pytest.raises(RefusedError, match="Permission denied"):
            storage.create("s/new", b"1")
        root.chmod(0)
        for act in (lambda: listed(storage), storage.level):
            with pytest.raises(RefusedError, match="Permission denied"):
                act()
        with pytest.raises(RefusedError, match="Permission denied"):
            storage.put("x", b"1")


def test_a_directory_that_cannot_be_made_or_reached() -> None:
    with powerless() as root:
        (root / "closed").mkdir(mode=0)
        for create in (False, True):
            with pytest.raises(RefusedError, match="Permission denied"):
                open_storage(str(root / "closed" / "new"), StorageOptions(), create=create)
        with pytest.raises(UsageError, match="is no directory"):
            open_storage(str(root / ("n" * 300)), StorageOptions(), create=True)


def test_a_root_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    storage = opened(tmp_path / "root")
    (tmp_path / "root").rmdir()
    with pytest.raises(MissingError, match="No such file or directory"):
        listed(storage)


def test_a_write_that_fails_leaves_the_old_object_and_no_litter(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    etag = storage.put("a/b", b"old")
    (tmp_path / "a" / "dir" / "x").mkdir(parents=True)
    acts: list[Callable[[], object]] = [
        lambda: storage.put("a/dir", b"new"),
        lambda: storage.put("a/b/c", b"new"),
        lambda: storage.put("n" * 300, b"new"),
        lambda: storage.delete("a/dir"),
    ]
    for act in acts:
        with pytest.raises(RefusedError):
            act()
    assert storage.get("a/b").etag == etag
    assert [path.name for path in (tmp_path / ".blobmap").iterdir()] == ["lock"]


# Conditions between processes.


def test_an_etag_never_comes_back(tmp_path: Path) -> None:
    """Even where the clock of the file system stands still: the old version may lie in the future."""
    storage = opened(tmp_path)
    etags = [storage.put("a", b"0")]
    os.utime(tmp_path / "a", (4 * 10**9, 4 * 10**9))
    etags.append(storage.get("a").etag or "")
    for n in range(20):
        etags.append(storage.update("a", str(n % 2).encode(), etags[-1] or "") or "")
    assert len(set(etags)) == len(etags)
    assert storage.get("a").etag == etags[-1]


def test_a_time_that_only_counts_seconds_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on file systems that keep no fraction of a second."""
    set_times = os.utime

    def whole_seconds(path: int, *, ns: tuple[int, int]) -> None:
        set_times(path, ns=(ns[0] // 10**9 * 10**9, ns[1] // 10**9 * 10**9))

    monkeypatch.setattr("blobmap.local_writes.os.utime", whole_seconds)
    storage = opened(tmp_path)
    storage.put("a", b"0")
    set_times(tmp_path / "a", (4 * 10**9, 4 * 10**9))
    old = storage.get("a").etag
    new = storage.update("a", b"1", old or "")
    assert new != old
    assert (tmp_path / "a").stat().st_mtime == 4 * 10**9 + 1


def test_a_lock_that_is_held_is_waited_for_and_then_told(tmp_path: Path) -> None:
    storage = opened(tmp_path, timeout_s=0.05)
    storage.put("a", b"1")
    with (tmp_path / ".blobmap" / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(UnavailableError, match=r"\.blobmap/lock is held by another process for more than 0\.05 s"):
            storage.put("a", b"2")
        assert storage.get("a").data == b"1", "readers do not wait"
        patient = threading.Thread(target=opened(tmp_path).put, args=("a", b"3"))
        patient.start()
        fcntl.flock(held, fcntl.LOCK_UN)
        patient.join()
    assert storage.get("a").data == b"3"


def test_a_lock_dies_with_its_holder(tmp_path: Path) -> None:
    storage = opened(tmp_path, timeout_s=30)
    etag = storage.put("a", b"1")
    program = (
        "import fcntl, os, sys\n"
        f"lock = open({str(tmp_path / '.blobmap' / 'lock')!r})\n"
        "fcntl.flock(lock, fcntl.LOCK_EX)\n"
        f"open({str(tmp_path / '.blobmap' / 'incoming')!r}, 'w').write('half of it')\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        holder.kill()
    storage.update("a", b"2", etag or "")
    assert storage.get("a").data == b"2"
    assert listed(storage) == ["a"]


def test_a_file_system_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr("blobmap.local_writes.fcntl.flock", no_locks)
    with pytest.raises(RefusedError, match=r"\.blobmap/lock: Operation not supported"):
        opened(tmp_path).create("a", b"1")
    assert not (tmp_path / "a").exists()


def test_our_own_files_are_in_no_listing(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    storage.put(".blobmap/state/s.json", b"1")
    (tmp_path / ".blobmap" / "incoming").write_bytes(b"half")
    assert listed(storage) == [".blobmap/state/s.json"]
    make(tmp_path, "s/.blobmap/lock")
    assert listed(storage, "s") == ["s/.blobmap/lock"], "elsewhere the names are anybody's"


def test_a_directory_is_no_object_to_write(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    storage.put("a/b", b"1")
    with pytest.raises(ConflictError):
        storage.create("a", b"1")
