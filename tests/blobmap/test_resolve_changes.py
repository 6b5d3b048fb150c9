"""Manifests that come, change and go, while others look up."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from blobmap.manifest import Blob, Bucket, Manifest, Pin
from blobmap.resolve import Trie
from tests.support import brute_force
from tests.support.strategies import manifests

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blobmap.resolve import Resolution

BASE = Manifest("s", 5, ("lat/**",), (Blob("b_x", ("x",), None),), (Pin("kept", "why"),), policy={"t_max_bytes": 1})


def held() -> Trie:
    trie = Trie()
    assert trie.add(BASE) == "taken"
    return trie


def kinds(trie: Trie, *keys: str) -> list[str]:
    return [trie.lookup(key).kind for key in keys]


def test_a_higher_epoch_replaces_everything() -> None:
    trie = held()
    assert trie.replace(Manifest("s", 6, ("lon/**",), (Blob("b_y", ("y",), None),), (Pin("held", "why"),))) == "taken"
    assert kinds(trie, "s/x/0", "s/lat/0", "s/kept/0") == ["unmanaged"] * 3
    assert kinds(trie, "s/y/0", "s/lon/0", "s/held/0") == ["blob", "hot", "pinned"]
    assert trie.lookup("s/y/0").epoch == 6
    assert len(trie) == 3


def test_what_is_held_of_a_scope_can_be_asked_for() -> None:
    trie = Trie()
    trie.add(replace(BASE, provenance={"x": {"objects": 3}}))
    assert (trie.manifest("s"), trie.manifest("")) == (BASE, None)
    trie.discard("s")
    assert trie.manifest("s") is None


def test_a_lower_epoch_is_ignored() -> None:
    trie = held()
    assert trie.replace(Manifest("s", 4)) == "older"
    assert trie.add(Manifest("s", 1)) == "older"
    assert kinds(trie, "s/x/0", "s/lat/0", "s/kept/0") == ["blob", "hot", "pinned"]


@pytest.mark.parametrize(
    "same",
    [
        BASE,
        replace(BASE, provenance={"x": {"objects": 3}}),
        replace(BASE, generated_at="2026-01-01T00:00:00+00:00", generated_by="somebody else"),
    ],
)
def test_what_counts_for_nothing_changes_nothing(same: Manifest) -> None:
    assert held().replace(same) == "unchanged"


@pytest.mark.parametrize(
    "other",
    [
        replace(BASE, blobs=(Blob("b_y", ("y",), None),)),
        replace(BASE, hot_always=()),
        replace(BASE, policy={"t_max_bytes": 2}),
        replace(BASE, policy=None),
        replace(BASE, blobs=(), pinned=()),
    ],
)
def test_other_rules_at_an_equal_epoch_are_refused(other: Manifest) -> None:
    trie = held()
    assert trie.replace(other) == "refused"
    assert kinds(trie, "s/x/0", "s/y/0", "s/lat/0", "s/kept/0") == ["blob", "unmanaged", "hot", "pinned"]


def test_other_pins_at_an_equal_epoch_are_joined() -> None:
    trie = held()
    assert trie.replace(replace(BASE, pinned=(Pin("x", "because"),))) == "merged"
    assert kinds(trie, "s/x/0", "s/kept/0") == ["pinned", "pinned"]
    assert trie.replace(replace(BASE, pinned=(Pin("x", "because"), Pin("kept", "why")))) == "unchanged"
    assert trie.replace(replace(BASE, pinned=())) == "merged"
    assert kinds(trie, "s/x/0", "s/kept/0") == ["pinned", "pinned"]
    assert trie.replace(replace(BASE, epoch=6, pinned=())) == "taken"
    assert kinds(trie, "s/x/0", "s/kept/0") == ["blob", "unmanaged"]


def test_add_all_reports_what_it_did_not_simply_take() -> None:
    older, other = Manifest("s", 4), replace(BASE, hot_always=())
    assert Trie().add_all([BASE, Manifest("t", 1), older, other]) == ((older, "older"), (other, "refused"))


def test_a_discarded_scope_is_forgotten_with_its_epoch() -> None:
    trie = held()
    trie.add(Manifest("s/inner", 1, (), (Blob("b_in", ("",), None),)))
    trie.discard("s")
    trie.discard("s")
    trie.discard("never/there")
    assert trie.scopes() == ("s/inner",)
    assert kinds(trie, "s/x/0", "s/inner/0") == ["unmanaged", "blob"]
    assert trie.add(Manifest("s", 1)) == "taken"
    trie.discard("s/inner")
    trie.discard("s")
    assert (trie.scopes(), len(trie), trie._root.below) == ((), 0, {})


def test_the_root_scope_can_be_discarded() -> None:
    trie = held()
    trie.add(Manifest("", 1, (), (Blob("b_root", ("",), None),)))
    assert kinds(trie, "a", "s/x/0") == ["blob", "blob"]
    trie.discard("")
    assert kinds(trie, "a", "s/x/0") == ["unmanaged", "blob"]


class Changes(RuleBasedStateMachine):
    """A trie that manifests come to and go from, beside a plain mapping of what should be held."""

    @initialize()
    def begin(self) -> None:
        self.trie = Trie()
        self.held: dict[str, Manifest] = {}

    @rule(manifest=manifests(st.sampled_from(["", "a", "a/b", "a/b/c", "c"])))
    def replace(self, manifest: Manifest) -> None:
        before = self.held.get(manifest.scope)
        verdict = self.trie.replace(manifest)
        if before is None or manifest.epoch > before.epoch:
            assert verdict == "taken"
            self.held[manifest.scope] = manifest
        elif manifest.epoch < before.epoch:
            assert verdict == "older"
        elif (manifest.blobs, manifest.hot_always) != (before.blobs, before.hot_always):
            assert verdict == "refused"
        elif set(manifest.pinned) == set(before.pinned):
            assert verdict == "unchanged"
        else:
            assert verdict == "merged"
            self.held[manifest.scope] = replace(before, pinned=before.pinned + manifest.pinned)

    @rule(scope=st.sampled_from(["", "a", "a/b", "a/b/c", "c"]))
    def discard(self, scope: str) -> None:
        self.trie.discard(scope)
        self.held.pop(scope, None)

    @invariant()
    def every_key_has_the_answer_of_what_is_held(self) -> None:
        bunch = list(self.held.values())
        keys = [f"{place}/{below}" for place in ("a", "a/b", "a/b/c", "c") for below in ("0", "7/0", "b/1", "c/10/0")]
        assert [self.trie.lookup(key) for key in keys] == [brute_force.resolve(bunch, key) for key in keys]
        assert self.trie.scopes() == tuple(sorted(self.held))


TestChanges = Changes.TestCase
TestChanges.settings = settings(max_examples=40, stateful_step_count=12)


@pytest.fixture
def many_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def version(epoch: int) -> Manifest:
    """Everything in it tells its epoch: rules, widths, pins and hot patterns of two epochs never agree."""
    return Manifest(
        "s",
        epoch,
        (f"side{epoch % 2}/**",),
        (Blob(f"b_{epoch}", ("x",), Bucket(0, epoch % 5 + 1, "v2_slash")), Blob(f"b_y_{epoch}", ("y",), None)),
        (Pin(f"side{(epoch + 1) % 2}", "why"),),
    )


def is_of_one_version(key: str, resolution: Resolution) -> bool:
    return resolution.epoch is not None and resolution == brute_force.resolve([version(resolution.epoch)], key)


@pytest.mark.usefixtures("many_switches")
def test_a_lookup_sees_one_manifest_whole_while_others_exchange_it() -> None:
    keys = [*sorted(f"s/x/{index}/0" for index in range(40)), "s/y/0", "s/side0/0", "s/side1/0", "s/other"]
    trie = Trie()
    trie.add(version(1))
    done = Event()

    def look_up() -> list[tuple[str, Resolution]]:
        wrong = []
        while not done.is_set():
            answers = [(key, trie.lookup(key)) for key in keys]
            answers += zip(keys, trie.lookup_many(keys), strict=True)
            wrong += [(key, resolution) for key, resolution in answers if not is_of_one_version(key, resolution)]
        return wrong

    def exchange() -> list[tuple[str, Resolution]]:
        stale = []
        try:
            for epoch in range(2, 120):
                assert trie.replace(version(epoch)) == "taken"
                expected = version(epoch)
                stale += [
                    (key, resolution)
                    for key in keys
                    if (resolution := trie.lookup(key)) != brute_force.resolve([expected], key)
                ]
        finally:
            done.set()
        return stale

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(look_up) for _ in range(3)]
        writer = pool.submit(exchange)
        assert writer.result() == []
        assert [reader.result() for reader in readers] == [[], [], []]
