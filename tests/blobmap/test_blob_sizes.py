from __future__ import annotations

import pytest

from blobmap.blob_sizes import BlobSize, Share, Window, hold_against, parse_window
from blobmap.census import Size
from blobmap.errors import UsageError


def blobs(*sizes: int) -> dict[tuple[str, str], Size]:
    return {("a", f"b_{number}"): Size(number + 1, size) for number, size in enumerate(sizes)}


def test_blobs_fall_below_into_and_above_the_window() -> None:
    found = hold_against(Window(10, 20), blobs(9, 10, 15, 20, 21, 1))
    assert (found.below, found.inside, found.above) == (Share(2, 10), Share(3, 45), Share(1, 21))
    assert found.blobs == 6
    assert found.ordered_bytes == (1, 9, 10, 15, 20, 21)
    assert found.median_bytes == 10
    assert found.least == (BlobSize("a", "b_5", 6, 1), BlobSize("a", "b_0", 1, 9))
    assert found.most == (BlobSize("a", "b_4", 5, 21),)


def test_no_blobs_are_no_error() -> None:
    found = hold_against(Window(), {})
    assert (found.blobs, found.median_bytes, found.least, found.most) == (0, 0, (), ())


def test_only_the_worst_are_named() -> None:
    found = hold_against(Window(100, 200), blobs(*range(1, 50), *range(300, 350)))
    assert [blob.stored_bytes for blob in found.least] == [1, 2, 3, 4, 5]
    assert [blob.stored_bytes for blob in found.most] == [349, 348, 347, 346, 345]


def test_blobs_for_tape_files_of_10_to_200_gb() -> None:
    """10,000 chunks of 4 MB: cut by a width of 2,500 or more, all but the last blob are in the window."""
    chunk = 4_000_000
    narrow = hold_against(parse_window("10GB..200GB"), blobs(*[chunk * 100] * 100))
    assert (narrow.below.blobs, narrow.inside.blobs) == (100, 0)
    wide = hold_against(parse_window("10GB..200GB"), blobs(*[chunk * 2600] * 3, chunk * 2200))
    assert (wide.below.blobs, wide.inside.blobs) == (1, 3)
    assert wide.least[0].blob_id == "b_3"


@pytest.mark.parametrize(
    ("text", "window"), [("10GiB..200GiB", Window()), ("1KB .. 1KiB", Window(1000, 1024)), ("5..5", Window(5, 5))]
)
def test_a_window_is_read(text: str, window: Window) -> None:
    assert parse_window(text) == window


@pytest.mark.parametrize("text", ["", "10GiB", "10GiB-20GiB", "..20GiB", "10GiB..", "0..5", "a..b", "20GiB..10GiB"])
def test_what_is_no_window_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_window(text)
