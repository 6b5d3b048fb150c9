from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blobmap.cuts import Cut, choose_cut, planned_object_bytes, slab_objects
from blobmap.policy import Policy
from tests.support.measured import GIB, KIB, MIB, TIB, measured
from tests.support.stores import RawArray

POLICY = Policy()
NO_EVIDENCE: dict[int, str] = {}


def cut(raw: RawArray, object_bytes: float, time: int | None = None, policy: Policy = POLICY) -> Cut:
    array = measured(raw, object_bytes)
    planned = planned_object_bytes(array, policy)
    assert planned is not None
    return choose_cut(array, ({} if time is None else {time: "its name"}, NO_EVIDENCE), planned, policy)


@pytest.mark.parametrize(
    ("objects", "object_bytes", "width", "blob_bytes"),
    [
        # The two examples of the format page, and the seed's table.
        (10_266, 45.8 * MIB, 2048, 91.6 * GIB),
        (1_027, 457.7 * MIB, 128, 57.2125 * GIB),
        # Below the floor a width stays an integer, from it on it is a power of two.
        (100, 100 * GIB // 63, 63, 100 * GIB),
        (100, 100 * GIB / 64, 64, 100 * GIB),
        (100, 100 * GIB / 100, 64, 64 * GIB),
        (100, 100 * GIB, 1, 100 * GIB),
        (100, 60 * GIB, 1, 60 * GIB),
    ],
)
def test_a_width_fills_the_target_and_never_more(
    objects: int, object_bytes: float, width: int, blob_bytes: float
) -> None:
    found = cut(RawArray("tas", (objects, 1, 1), (1, 1, 1), dtype="string"), object_bytes, time=0)
    assert (found.axis, found.width) == (0, width)
    assert found.blob_bytes == pytest.approx(blob_bytes)
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("grid", "object_bytes", "time", "axis", "width"),
    [
        ((1000, 100), 100 * MIB, 0, 0, 10),  # a width of 1024 would make a blob of 9.8 TiB
        ((1, 1, 500), GIB, 2, 2, 64),  # time last
        ((1, 1, 500), GIB, None, 2, 64),  # most objects last
        ((50, 1000, 2), 10 * MIB, 1, 1, 64),  # ensemble first
        ((10, 20, 30), GIB, None, 2, 1),  # most objects, none fits
        ((10, 300, 4), GIB, 0, 1, 2),  # one time step holds 1200 GiB: the axis that can be cut to at most the target
        ((3, 200, 90), GIB, 2, 1, 1),  # 600 GiB a step of time, 270 along axis 1: none fits, the best is taken
        ((4, 4), MIB, None, 0, 16384),  # a tie goes to the first axis
        ((0, 4), MIB, None, 1, 65536),
    ],
)
def test_the_axis_is_where_it_grows_or_where_most_objects_are_if_a_slab_fits(
    grid: tuple[int, ...], object_bytes: float, time: int | None, axis: int, width: int
) -> None:
    raw = RawArray("tas", grid, (1,) * len(grid), dtype="string")
    found = choose_cut(
        measured(raw, object_bytes), ({} if time is None else {time: "its name"},), Fraction(object_bytes), POLICY
    )
    assert (found.axis, found.width) == (axis, width)


def test_stronger_evidence_of_growth_goes_first() -> None:
    array = measured(RawArray("tas", (4, 9, 9), (1, 1, 1), dtype="string"), MIB)
    assert choose_cut(array, ({0: "its name"}, {1: "it grew"}), Fraction(MIB), POLICY).axis == 0
    both = choose_cut(array, ({0: "its name", 2: "its coordinate"}, {1: "it grew"}), Fraction(MIB), POLICY)
    assert both.axis == 2
    assert choose_cut(array, ({}, {1: "it grew"}), Fraction(MIB), POLICY).axis == 1


@pytest.mark.parametrize(
    ("raw", "object_bytes", "time", "reason"),
    [
        (
            RawArray("tas", (10_266, 1, 1), (1, 1, 1), ["time", "lat", "lon"], dtype="string"),
            45.8 * MIB,
            0,
            "axis 0 (time): grows; 2048 objects of 45.8 MiB make 91.6 GiB",
        ),
        (
            RawArray("tas", (1000, 100), (1, 1), ["time", "x"], dtype="string"),
            100 * MIB,
            0,
            "axis 0 (time): grows; 10 x 100 objects of 100.0 MiB make 97.7 GiB",
        ),
        (
            RawArray("hus", (1027, 4), (1, 4), ["time", "x"], dtype="string", inner=(1, 2)),
            457.7 * MIB,
            0,
            "axis 0 (time): grows; 128 shards of 457.7 MiB make 57.2 GiB",
        ),
        (
            RawArray("v", (7, 500), (7, 1), dtype="string"),
            GIB,
            None,
            "axis 1: has the most objects (500); 64 objects of 1.0 GiB make 64.0 GiB",
        ),
        (
            RawArray("v", (7,), (7,), dtype="string"),
            60 * GIB,
            None,
            "axis 0: the only one; 1 object of 60.0 GiB makes 60.0 GiB",
        ),
        (
            RawArray("v", (10, 300, 4), (1, 1, 1), ["time", "y", "x"], dtype="string"),
            GIB,
            0,
            (
                "axis 1 (y): one index of axis 0 (time), which grows, holds 1.2 TiB, more than 100.0 GiB; "
                "2 x 40 objects of 1.0 GiB make 80.0 GiB"
            ),
        ),
        (
            RawArray("v", (9000, 1024, 256), (1, 1024, 256), ["time", "y", "x"]),
            64 * KIB,
            0,
            (
                "axis 0 (time): grows; 524288 objects of 128.0 KiB (stored 64.0 KiB, compression is not trusted so "
                "far) make 64.0 GiB"
            ),
        ),
        (
            RawArray("v", (9000, 1024, 256), (1, 1024, 256), ["time", "y", "x"]),
            0,
            0,
            "axis 0 (time): grows; 65536 objects of 1.0 MiB (nothing stored, uncompressed) make 64.0 GiB",
        ),
    ],
)
def test_the_reason_is_in_words_for_operators(
    raw: RawArray, object_bytes: float, time: int | None, reason: str
) -> None:
    assert cut(raw, object_bytes, time).reason == reason


def test_evidence_other_than_the_name_is_in_the_reason() -> None:
    array = measured(RawArray("v", (9, 4), (1, 4), ["t", "x"], dtype="string"), MIB)
    found = choose_cut(array, ({0: "its coordinate has datetime values"},), Fraction(MIB), POLICY)
    assert found.reason.startswith("axis 0 (t): grows (its coordinate has datetime values); ")


def test_a_slab_beyond_the_target_is_named_with_how_much_it_is_over() -> None:
    found = cut(RawArray("v", (10, 20, 30), (1, 1, 1), dtype="string"), GIB, time=0)
    assert found.warnings == (
        "'v': one index of axis 2 is a blob of 200.0 GiB, 2.0 times 100.0 GiB, and no other axis does better",
        "'v' is cut along axis 2, so its blobs grow along axis 0",
    )


def test_an_axis_cut_instead_of_the_growing_one_is_warned_about() -> None:
    found = cut(RawArray("v", (10, 300, 4), (1, 1, 1), ["time", "y", "x"], dtype="string"), GIB, time=0)
    assert found.warnings == ("'v' is cut along axis 1 (y), so its blobs grow along axis 0 (time)",)
    assert cut(RawArray("v", (10, 300, 4), (1, 1, 1), dtype="string"), GIB).warnings == ()


def test_uneven_ends_of_a_rectilinear_axis_are_said() -> None:
    raw = RawArray("v", (60, 4), edges=[[[10, 6]], [4]], dims=["time", "x"])
    layout = measured(raw, MIB).layout
    for ends, said in (((100.0, 401.0), True), ((401.0, 100.0), True), ((100.0, 400.0), False), ((0.0, 0.0), False)):
        array = measured(raw, MIB)
        array = type(array)(layout, array.objects, array.stored_bytes, array.encoding, ends=(ends, (1.0, 1.0)))
        found = choose_cut(array, ({0: "its name"},), Fraction(MIB), POLICY)
        assert bool(found.warnings) is said
        assert not said or "100 B" in found.warnings[0]


def test_objects_are_taken_as_their_mean_but_compression_is_trusted_only_so_far() -> None:
    raw = RawArray("v", (100, 1024, 256), (1, 1024, 256))  # 1 MiB uncompressed
    assert planned_object_bytes(measured(raw, 300 * KIB), POLICY) == 300 * KIB
    assert planned_object_bytes(measured(raw, 128 * KIB), POLICY) == 128 * KIB
    assert planned_object_bytes(measured(raw, 10 * KIB), POLICY) == 128 * KIB
    assert planned_object_bytes(measured(raw, 3 * MIB), POLICY) == 3 * MIB
    assert planned_object_bytes(measured(raw), POLICY) == MIB
    strings = RawArray("v", (100,), (1,), dtype="string")
    assert planned_object_bytes(measured(strings, 10), POLICY) == 10
    assert planned_object_bytes(measured(strings), POLICY) is None


def test_an_axis_without_objects_counts_as_one_that_gets_its_first() -> None:
    assert slab_objects((0, 5, 0), 0) == 5
    assert slab_objects((7,), 0) == 1


grids = st.lists(st.integers(1, 10_000), min_size=1, max_size=4).map(tuple)


@given(grids, st.integers(1, 10 * TIB), st.integers(1, TIB), st.data())
def test_a_blob_of_several_slabs_never_exceeds_the_target_and_of_one_only_if_no_axis_fits(
    grid: tuple[int, ...], object_bytes: int, t_max: int, data: st.DataObject
) -> None:
    time = data.draw(st.none() | st.integers(0, len(grid) - 1))
    policy = Policy(t_max_bytes=t_max)
    raw = RawArray("v", grid, (1,) * len(grid), dtype="string")
    evidence = ({} if time is None else {time: "its name"},)
    found = choose_cut(measured(raw, object_bytes), evidence, Fraction(object_bytes), policy)
    slabs = [slab_objects(grid, axis) * object_bytes for axis in range(len(grid))]
    assert found.blob_bytes == found.width * slabs[found.axis]
    assert found.blob_bytes <= t_max or (found.width == 1 and min(slabs) > t_max and slabs[found.axis] == min(slabs))
    if found.width < policy.pow2_floor:
        assert (found.width + 1) * slabs[found.axis] > t_max
    else:
        assert found.width.bit_count() == 1
        assert 2 * found.width * slabs[found.axis] > t_max
    if time is not None and slabs[time] <= t_max:
        assert found.axis == time


def test_a_width_stays_below_what_the_format_allows() -> None:
    huge = Policy(t_max_bytes=2**90)
    assert cut(RawArray("v", (4,), (1,), dtype="string"), 1, policy=huge).width == 2**62
