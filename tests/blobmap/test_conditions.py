"""Servers that do not hold to conditional writes are found out by a race, before anything is written to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blobmap.conditions import check_conditions
from blobmap.errors import RefusedError, UnavailableError
from blobmap.manifest import Manifest
from blobmap.manifests import ManifestStore
from tests.support.backends import small_server

if TYPE_CHECKING:
    from tests.support.backends import Backend
    from tests.support.small_s3 import Mood, SmallS3


def test_a_store_that_holds_to_them_passes_and_nothing_is_left(backend: Backend) -> None:
    storage = backend.open()
    check_conditions(storage)
    assert list(storage.pages()) == []


@pytest.mark.parametrize("mood", ["conditions-ignored", "conditions-raced"])
def test_o06_a_server_that_lets_several_win_is_refused_before_the_first_write(small_s3: SmallS3, mood: Mood) -> None:
    small_s3.mood = mood
    store = ManifestStore(small_server(small_s3).open())
    for _ in range(2):
        with pytest.raises(
            RefusedError, match=r"does not hold to conditional writes: of 8 writers that created one ob"
        ):
            store.write(Manifest("s", 1), etag=None)
    assert small_s3.objects == {}


def test_o06_a_server_that_only_races_updates_is_refused_too(small_s3: SmallS3) -> None:
    small_s3.mood = "updates-raced"
    with pytest.raises(RefusedError, match=r"replaced one version of an object at the same time \d were told"):
        check_conditions(small_server(small_s3).open())


def test_o06_a_server_that_tells_one_winner_and_keeps_another_is_refused(small_s3: SmallS3) -> None:
    small_s3.mood = "losers-kept"
    with pytest.raises(RefusedError, match="what is stored after a race is not what the winner wrote"):
        check_conditions(small_server(small_s3).open())


def test_o06_a_server_without_conditional_writes_is_refused(small_s3: SmallS3) -> None:
    small_s3.mood = "conditions-501"
    with pytest.raises(RefusedError, match="no conditional writes"):
        ManifestStore(small_server(small_s3, timeout_s=0.2).open()).write(Manifest("s", 1), etag=None)
    assert small_s3.objects == {}


def test_a_server_without_etags_is_refused(small_s3: SmallS3) -> None:
    small_s3.mood = "no-etag"
    with pytest.raises(RefusedError, match="the server gives no ETag, so no write can be conditional on one"):
        check_conditions(small_server(small_s3).open())


def test_a_server_that_fails_is_told_as_that_and_asked_again(small_s3: SmallS3) -> None:
    store = ManifestStore(small_server(small_s3, timeout_s=0.2).open())
    small_s3.status = (500, "InternalError")
    with pytest.raises(UnavailableError):
        store.write(Manifest("s", 1), etag=None)
    small_s3.status = None
    store.write(Manifest("s", 1), etag=None)
    assert list(small_s3.objects) == ["s/manifest.json"]


def test_a_server_is_raced_once(small_s3: SmallS3) -> None:
    store = ManifestStore(small_server(small_s3).open())
    store.write(Manifest("s", 1), etag=None)
    asked = len(small_s3.seen)
    store.write(Manifest("t", 1), etag=None)
    store.check_conditions()
    assert len(small_s3.seen) == asked + 1


def test_no_race_where_this_process_or_its_kernel_decides(backend: Backend) -> None:
    if backend.kind not in {"memory", "local"}:
        pytest.skip("a server decides")
    assert not backend.open().is_remote
