from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from blobmap import ManifestStore
from blobmap.errors import RefusedError, UnavailableError, UsageError
from blobmap.manifest import Pin, manifest_key
from blobmap.storage import StorageOptions, open_storage
from consumer.catalog import Catalog, place_of
from tests.support.manifests import manifest
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from blobmap.manifest import Manifest

OPTIONS = StorageOptions()


class Root:
    """One manifest root in a directory, as others write to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = ManifestStore(open_storage(str(path), OPTIONS, create=True))

    def write(self, *manifests: Manifest) -> None:
        for one in manifests:
            path = self.path / manifest_key(one.scope)
            etag = self.store.storage.get(manifest_key(one.scope)).etag if path.exists() else None
            self.store.write(one, etag=etag)

    def spoil(self, scope: str, text: str = "{") -> None:
        self.store.storage.put(manifest_key(scope), text.encode())

    def remove(self, scope: str) -> None:
        self.store.storage.delete(manifest_key(scope))

    def take_away(self) -> None:
        self.path.rename(self.path.with_name("away"))

    def bring_back(self) -> None:
        self.path.with_name("away").rename(self.path)


class Clock:
    """Seconds that grow when a test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path / "manifests")


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Watched:
    """A catalog of bucket `b`, what it told its listeners and what it alerted."""

    def __init__(self, root: Root, clock: Clock, *, refresh_s: float = 3600.0, lease_s: float = 7200.0) -> None:
        self.alerts: list[tuple[str, str, bool]] = []
        self.changes: list[tuple[str, str]] = []
        self.catalog = Catalog(
            {"b": (str(root.path), OPTIONS)},
            refresh_s=refresh_s,
            lease_s=lease_s,
            give_up_s=5,
            alert=lambda bucket, scope, reason: self.alerts.append((bucket, scope, reason is not None)),
            clock=clock,
        )
        self.catalog.listeners.append(lambda bucket, scope: self.changes.append((bucket, scope)))

    def blob(self, key: str) -> str | None:
        return self.catalog.tries["b"].lookup(key).blob_id

    async def until(self, probe: Callable[[], object], what: str) -> None:
        async def probed() -> object:
            return probe()

        await eventually(probed, what=what)


@asynccontextmanager
async def kept(watched: Watched) -> AsyncIterator[Watched]:
    """A catalog that is loaded and kept fresh as long as the context lasts."""
    async with watched.catalog.kept(asyncio.Event()):
        yield watched


# --- the first load


async def test_each_bucket_has_the_manifests_of_its_own_root(tmp_path: Path) -> None:
    one, two = Root(tmp_path / "one"), Root(tmp_path / "two")
    one.write(manifest("s.zarr"), manifest("deep/er.zarr"))
    roots = {"one": (str(one.path), OPTIONS), "two": (str(two.path), OPTIONS)}
    catalog = Catalog(roots, refresh_s=60, lease_s=120, give_up_s=1)
    await catalog.load()
    assert catalog.tries.keys() == {"one", "two"}
    assert catalog.tries["one"].lookup("deep/er.zarr/t/c/25/0").blob_id == "b_t_2"
    assert catalog.tries["two"].lookup("deep/er.zarr/t/c/25/0").kind == "unmanaged"
    assert sorted(catalog.store("one").scopes()) == ["deep/er.zarr", "s.zarr"]


async def test_a_broken_manifest_is_told_and_spoils_no_other(root: Root, clock: Clock) -> None:
    root.write(manifest("s.zarr"))
    root.spoil("broken.zarr")
    watched = Watched(root, clock)
    with capture_logs() as logs:
        await watched.catalog.load()
    assert watched.blob("s.zarr/t/c/0/0") == "b_t_0"
    (line,) = [line for line in logs if line["event"] == "manifest invalid"]
    assert (line["bucket"], line["scope"]) == ("b", "broken.zarr")
    assert watched.catalog.is_fresh  # proved invalid is as good as read
    assert watched.catalog.invalid("b", "broken.zarr") == line["problem"]
    assert watched.catalog.invalid("b", "s.zarr") is None
    assert watched.alerts == [("b", "broken.zarr", True)]


async def test_a_root_that_is_no_directory(tmp_path: Path) -> None:
    catalog = Catalog({"b": (str(tmp_path / "absent"), OPTIONS)}, refresh_s=1, lease_s=2, give_up_s=1)
    with pytest.raises(UsageError, match="is no directory"):
        await catalog.load()
    with pytest.raises(UsageError, match="is no directory"):
        catalog.store("b")


async def test_a_root_that_cannot_be_reached_is_given_up_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    options = StorageOptions(endpoint="http://127.0.0.1:1", region="us-east-1", allow_http=True, timeout_s=2)
    catalog = Catalog({"cordex": ("s3://m/cordex", options)}, refresh_s=1, lease_s=2, give_up_s=0.1)
    with pytest.raises(UnavailableError) as caught:
        await catalog.load()
    message = str(caught.value)
    assert message.startswith("cannot read the manifests of bucket 'cordex' at s3://m/cordex, tried for 0.1 s: ")
    assert "\n" not in message
    assert not catalog.is_fresh


# --- what changes


async def test_what_somebody_wrote_is_taken_over_when_asked(root: Root, clock: Clock) -> None:
    root.write(manifest("s.zarr"))
    async with kept(Watched(root, clock)) as watched:
        watched.changes.clear()
        root.write(manifest("s.zarr", epoch=2, width=5), manifest("new.zarr"))
        watched.catalog.ask("b", "s.zarr")
        await watched.until(lambda: watched.blob("s.zarr/t/c/25") == "b_t_5", "the new rules")
        assert watched.blob("new.zarr/t/c/0") is None, "nobody asked for that one"
        watched.catalog.ask()
        await watched.until(lambda: watched.blob("new.zarr/t/c/0") == "b_t_0", "the new scope")
        assert watched.changes == [("b", "s.zarr"), ("b", "new.zarr")]


async def test_what_nobody_announced_is_found_by_the_refresh(root: Root, clock: Clock) -> None:
    async with kept(Watched(root, clock, refresh_s=0.05)) as watched:
        root.write(manifest("s.zarr"))
        await watched.until(lambda: watched.blob("s.zarr/t/c/0") == "b_t_0", "the new scope")
        root.remove("s.zarr")
        await watched.until(lambda: watched.blob("s.zarr/t/c/0") is None, "it is gone")
        assert watched.catalog.tries["b"].scopes() == ()


async def test_one_that_is_gone_is_dropped_when_its_removal_is_announced(root: Root, clock: Clock) -> None:
    root.write(manifest("s.zarr"))
    async with kept(Watched(root, clock)) as watched:
        assert watched.catalog.read_at("b", "s.zarr", 1) == clock.now_s
        root.remove("s.zarr")
        watched.catalog.ask("b", "s.zarr")
        await watched.until(lambda: watched.blob("s.zarr/t/c/0") is None, "it is gone")
        assert watched.catalog.read_at("b", "s.zarr", 1) is None
        assert watched.changes == [("b", "s.zarr"), ("b", "s.zarr")]


async def test_a_lower_epoch_is_ignored(root: Root, clock: Clock) -> None:
    root.write(manifest("s.zarr", epoch=5))
    async with kept(Watched(root, clock)) as watched:
        root.write(manifest("s.zarr", epoch=4, width=5))
        with capture_logs() as logs:
            watched.catalog.ask("b", "s.zarr")
            await watched.until(lambda: [line for line in logs if line.get("verdict") == "older"], "it is read")
        assert watched.blob("s.zarr/t/c/25") == "b_t_2"
        assert watched.changes == [("b", "s.zarr")]
        assert watched.catalog.read_at("b", "s.zarr", 5) is not None


async def test_other_rules_at_the_same_epoch_are_refused_and_alerted(root: Root, clock: Clock) -> None:
    root.write(manifest("s.zarr"))
    async with kept(Watched(root, clock)) as watched:
        root.write(manifest("s.zarr", width=5))
        watched.catalog.ask("b", "s.zarr")
        await watched.until(lambda: watched.alerts, "an alert")
        assert watched.blob("s.zarr/t/c/25") == "b_t_2"
        assert "epoch 1" in (watched.catalog.invalid("b", "s.zarr") or "")
        root.write(manifest("s.zarr", epoch=2, width=5))
        watched.catalog.ask("b", "s.zarr")
        await watched.until(lambda: len(watched.alerts) == 2, "it is resolved")
        assert watched.alerts == [("b", "s.zarr", True), ("b", "s.zarr", False)]
        assert watched.blob("s.zarr/t/c/25") == "b_t_5"


async def test_other_pins_at_the_same_epoch_hold_together(root: Root, clock: Clock) -> None:
    root.write(manifest("s.zarr"))
    async with kept(Watched(root, clock)) as watched:
        root.write(replace(manifest("s.zarr"), pinned=(Pin("t", "by somebody else"),)))
        watched.catalog.ask("b", "s.zarr")
        await watched.until(lambda: watched.blob("s.zarr/t/c/0") is None, "the new pin")
        assert watched.catalog.tries["b"].lookup("s.zarr/kept/c/0").kind == "pinned"
        assert watched.catalog.invalid("b", "s.zarr") is None


async def test_a_manifest_that_breaks_keeps_the_last_good_one_and_alerts_once_until_it_is_mended(
    root: Root, clock: Clock
) -> None:
    root.write(manifest("s.zarr"))
    async with kept(Watched(root, clock, refresh_s=0.05)) as watched:
        root.spoil("s.zarr")
        await watched.until(lambda: watched.alerts, "an alert")
        before = watched.catalog.invalid("b", "s.zarr")
        root.spoil("s.zarr", '{"schema_version": 4}')
        await watched.until(lambda: watched.catalog.invalid("b", "s.zarr") != before, "it is read again")
        assert watched.blob("s.zarr/t/c/25") == "b_t_2"
        root.write(manifest("s.zarr"))
        await watched.until(lambda: len(watched.alerts) > 1, "it is resolved")
        assert watched.alerts == [("b", "s.zarr", True), ("b", "s.zarr", False)]
        assert watched.catalog.invalid("b", "s.zarr") is None


@pytest.mark.parametrize("seen_by", ["listing", "announcement"])
async def test_a_broken_manifest_that_is_removed_is_no_matter_any_more(root: Root, clock: Clock, seen_by: str) -> None:
    async with kept(Watched(root, clock)) as watched:
        root.spoil("s.zarr")
        watched.catalog.ask(*(() if seen_by == "listing" else ("b", "s.zarr")))
        await watched.until(lambda: watched.alerts == [("b", "s.zarr", True)], "an alert")
        root.remove("s.zarr")
        watched.catalog.ask()
        await watched.until(lambda: len(watched.alerts) > 1, "it is resolved")
        assert watched.catalog.invalid("b", "s.zarr") is None


@pytest.mark.parametrize("scope", ["../x", ".blobmap/state", "a//b", "never.zarr"])
async def test_a_scope_that_has_no_manifest_may_be_announced(root: Root, clock: Clock, scope: str) -> None:
    async with kept(Watched(root, clock)) as watched:
        watched.catalog.ask("b", scope)
        watched.catalog.ask("nobody's", scope)
        root.write(manifest("s.zarr"))
        watched.catalog.ask("b", "s.zarr")
        await watched.until(lambda: watched.blob("s.zarr/t/c/0"), "what was asked for after it")
        assert watched.changes == [("b", "s.zarr")]
        assert watched.catalog.invalid("b", scope) is None


async def test_a_manifest_that_a_listing_missed_while_it_was_replaced_is_not_dropped(root: Root, clock: Clock) -> None:
    """Some gateways remove a file before they put the new one there."""
    root.write(manifest("s.zarr"))
    watched = Watched(root, clock)
    await watched.catalog.load()
    root.write(manifest("s.zarr", epoch=2, width=5))
    await watched.catalog._buckets["b"].manifests._let_go("s.zarr")
    assert watched.blob("s.zarr/t/c/25") == "b_t_5"


async def test_a_manifest_that_is_listed_and_not_there_leaves_a_comparison_incomplete(root: Root, clock: Clock) -> None:
    watched = Watched(root, clock)
    with pytest.raises(UnavailableError, match=r"the manifest of 's\.zarr' is listed and not there"):
        await watched.catalog._buckets["b"].manifests._follow("s.zarr", "etag")
    assert "s.zarr" not in watched.catalog._buckets["b"].manifests._versions


async def test_many_announcements_at_once_are_one_listing(root: Root, clock: Clock) -> None:
    scopes = [f"s{number}.zarr" for number in range(150)]
    async with kept(Watched(root, clock)) as watched:
        root.write(*map(manifest, scopes), manifest("unannounced.zarr"))
        for scope in scopes:
            watched.catalog.ask("b", scope)
        everything = (*sorted(scopes), "unannounced.zarr")
        await watched.until(lambda: watched.catalog.tries["b"].scopes() == everything, "everything is compared")


async def test_in_embedded_mode_an_announcement_is_for_this_process_alone(root: Root, clock: Clock) -> None:
    async with kept(Watched(root, clock)) as watched:
        root.write(manifest("s.zarr"))
        await watched.catalog.announce("b", "s.zarr", 1)
        await watched.until(lambda: watched.blob("s.zarr/t/c/0") == "b_t_0", "the new scope")


async def test_a_fault_of_ours_stops_everything_and_is_not_kept_quiet(root: Root, clock: Clock) -> None:
    def fail(bucket: str, scope: str) -> None:
        raise ZeroDivisionError(f"{bucket} {scope}")

    stop = asyncio.Event()
    watched = Watched(root, clock)

    async def work() -> None:
        async with watched.catalog.kept(stop), asyncio.timeout(20):
            watched.catalog.listeners.append(fail)
            root.write(manifest("s.zarr"))
            watched.catalog.ask()
            await stop.wait()

    with pytest.raises(ExceptionGroup) as caught:
        await work()
    assert caught.group_contains(ZeroDivisionError)


async def test_a_stop_before_the_first_load_is_done_ends_the_wait(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    options = StorageOptions(endpoint="http://127.0.0.1:1", region="us-east-1", allow_http=True, timeout_s=2)
    catalog = Catalog({"b": ("s3://m/b", options)}, refresh_s=1, lease_s=2, give_up_s=1000, clock=clock)
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.05, stop.set)
    async with asyncio.timeout(20), catalog.kept(stop):
        assert stop.is_set()


# --- the lease


async def test_what_was_compared_holds_for_the_lease_and_not_longer(root: Root, clock: Clock) -> None:
    watched = Watched(root, clock, lease_s=100)
    states = [watched.catalog.is_fresh]
    await watched.catalog.load()
    for passed_s in (99.9, 0.1):
        clock.now_s += passed_s
        states.append(watched.catalog.is_fresh)
    assert states == [False, True, False]
    assert watched.catalog.stale() == "the manifests of bucket 'b' were not compared in the last 100 s"


async def test_the_lease_counts_from_the_start_of_the_comparison(root: Root) -> None:
    """Every look at this clock takes ten seconds: what was written after the first one may have been missed."""
    now_s = 0.0

    def clock() -> float:
        nonlocal now_s
        now_s += 10
        return now_s

    root.write(manifest("s.zarr"))
    catalog = Catalog({"b": (str(root.path), OPTIONS)}, refresh_s=1, lease_s=1000, give_up_s=1, clock=clock)
    await catalog.load()
    assert catalog._buckets["b"].manifests.compared_s == 10
    assert catalog.read_at("b", "s.zarr", 1) == 20


async def test_a_root_that_cannot_be_read_lets_the_lease_run_out_and_what_is_in_force_stays(
    root: Root, clock: Clock
) -> None:
    root.write(manifest("s.zarr"))
    async with kept(Watched(root, clock, lease_s=100)) as watched:
        root.take_away()
        clock.now_s += 100
        with capture_logs() as logs:
            watched.catalog.ask()
            await watched.until(lambda: [line for line in logs if line["event"] == "manifests not compared"], "a try")
            waiting = asyncio.ensure_future(watched.catalog.fresh())
            await asyncio.wait([waiting], timeout=0.05)
            assert not waiting.done()
            assert watched.blob("s.zarr/t/c/0") == "b_t_0", "nothing was taken for gone"
            root.bring_back()
            async with asyncio.timeout(20):
                await waiting
        assert watched.catalog.is_fresh
        assert [line["event"] for line in logs if line["event"] in ("stale", "fresh")] == ["stale", "fresh"]
        assert watched.changes == [("b", "s.zarr")]


async def test_a_part_that_cannot_be_listed_leaves_a_comparison_incomplete(root: Root, clock: Clock) -> None:
    """A link that leads out of the root may be anything, so the listing does not show all."""
    root.write(manifest("s.zarr"))
    (root.path / "outside").symlink_to("/")
    watched = Watched(root, clock)
    watched.catalog._give_up_s = 0.05
    with pytest.raises(UnavailableError, match="'outside' could not be listed whole"):
        await watched.catalog.load()
    assert not watched.catalog.is_fresh
    assert watched.blob("s.zarr/t/c/0") == "b_t_0", "what could be read is taken over"


async def test_a_manifest_that_may_not_be_read_leaves_a_comparison_incomplete(root: Root, clock: Clock) -> None:
    root.write(manifest("s.zarr"))
    (root.path / "s.zarr/manifest.json").unlink()
    (root.path / "s.zarr/manifest.json").symlink_to(root.path / "elsewhere")
    root.write(manifest("other.zarr"))
    (root.path / "elsewhere").symlink_to("/etc/passwd")
    watched = Watched(root, clock)
    watched.catalog._give_up_s = 0.05
    with pytest.raises((UnavailableError, RefusedError)):
        await watched.catalog.load()
    assert not watched.catalog.is_fresh
    assert watched.blob("other.zarr/t/c/0") == "b_t_0"


# --- when this process knew


async def test_an_epoch_is_known_since_it_was_first_read(root: Root, clock: Clock) -> None:
    root.write(manifest("s.zarr"))
    async with kept(Watched(root, clock)) as watched:
        clock.now_s = 2000
        root.write(manifest("s.zarr", epoch=3))
        watched.catalog.ask("b", "s.zarr")
        await watched.until(lambda: watched.catalog.read_at("b", "s.zarr", 3), "the new epoch")
        clock.now_s = 3000
        watched.catalog.ask()
        await watched.until(lambda: watched.catalog._buckets["b"].manifests.compared_s == 3000, "a comparison")
        assert watched.catalog.read_at("b", "s.zarr", 3) == 2000
        assert watched.catalog.read_at("b", "s.zarr", 1) is None
        assert watched.catalog.read_at("b", "s.zarr", 4) is None
        assert watched.catalog.read_at("b", "other.zarr", 1) is None


# --- keys of the gateway


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("s3://m", ("m", "")),
        ("s3://m/", ("m", "")),
        ("s3://m/a/b/", ("m", "a/b")),
        ("/m/a", None),
        ("file:///m/a", None),
    ],
)
def test_where_manifests_lie_as_their_gateway_names_it(url: str, place: tuple[str, str] | None) -> None:
    assert place_of(url) == place


@pytest.mark.parametrize(
    ("bucket", "key", "asked"),
    [
        ("m", "one/s.zarr/manifest.json", {"one": {"s.zarr"}, "two": set()}),
        ("m", "one/manifest.json", {"one": {""}, "two": set()}),
        ("m", "two/a/b/manifest.json", {"one": set(), "two": {"a/b"}}),
        ("m", "one/.blobmap/state/s.zarr.json", {"one": set(), "two": set()}),
        ("m", "one/.blobmap/manifest.json", {"one": set(), "two": set()}),
        ("m", "oneself/manifest.json", {"one": set(), "two": set()}),
        ("m", "manifest.json", {"one": set(), "two": set()}),
        ("m", "one/s.zarr/other.json", {"one": set(), "two": set()}),
        ("other", "one/s.zarr/manifest.json", {"one": set(), "two": set()}),
    ],
)
async def test_only_a_manifest_of_ours_is_looked_at_when_the_gateway_tells_of_it(
    bucket: str, key: str, asked: dict[str, set[str]]
) -> None:
    roots = {"one": ("s3://m/one", OPTIONS), "two": ("s3://m/two/", OPTIONS), "three": ("/m", OPTIONS)}
    catalog = Catalog(roots, refresh_s=60, lease_s=120, give_up_s=1)
    catalog.noticed(bucket, key)
    assert {name: catalog._buckets[name]._scopes for name in asked} == asked
    assert [name for name, kept_ in catalog._buckets.items() if kept_._asked.is_set()] == [
        name for name, scopes in asked.items() if scopes
    ]
