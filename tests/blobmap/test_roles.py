from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blobmap.arrays import GroupLayout, Reference
from blobmap.roles import Standing, stand
from tests.support.measured import layout_of
from tests.support.stores import RawArray

if TYPE_CHECKING:
    from blobmap.roles import Role

TIME_UNITS = {"units": "days since 2000-01-01"}


def standings(*arrays: RawArray, groups: tuple[GroupLayout, ...] = ()) -> dict[str, Standing]:
    return stand([layout_of(array) for array in arrays], groups)[0]


def warnings(*arrays: RawArray, groups: tuple[GroupLayout, ...] = ()) -> tuple[str, ...]:
    return stand([layout_of(array) for array in arrays], groups)[1]


@pytest.mark.parametrize(
    ("array", "role"),
    [
        (RawArray("time", (40,), (1,), ["time"]), "dimension coordinate"),
        (RawArray("g/cell", (40,), (1,), ["cell"], dtype="string"), "dimension coordinate"),
        (RawArray("cell", (40,), (1,), ["values"], attributes={"_ARRAY_DIMENSIONS": ["cell"]}), "dimension coordinate"),
        (RawArray("time", (40,), (1,), ["time"], format=2), "dimension coordinate"),
        (RawArray("time", (40, 2), (1, 2), ["time", "bnds"]), "data"),
        (RawArray("month", (40,), (1,), ["time"]), "data"),
        (RawArray("crs", (), ()), "scalar"),
        (RawArray("crs", (), (), format=2), "scalar"),
    ],
)
def test_a_coordinate_has_one_axis_with_its_own_name(array: RawArray, role: Role) -> None:
    assert standings(array)[array.path].role == role


def test_coordinates_of_arrays_and_groups_are_auxiliary_also_from_further_out() -> None:
    arrays = [
        RawArray("atm/hi/tas", (4, 4, 4), (1, 4, 4), ["t", "y", "x"], attributes={"coordinates": "lat ../lon /mask"}),
        RawArray("atm/lat", (4, 4), (4, 4), ["y", "x"], attributes={"bounds": "lat_vertices"}),
        RawArray("atm/lon", (4, 4), (4, 4), ["y", "x"]),
        RawArray("atm/lat_vertices", (4, 4, 4), (4, 4, 4), ["y", "x", "nv"]),
        RawArray("mask", (4, 4), (4, 4), ["y", "x"]),
        RawArray("atm/area", (4, 4), (4, 4), ["y", "x"]),
        RawArray("atm/other", (4, 4), (4, 4), ["y", "x"], attributes={"coordinates": "other"}),
    ]
    groups = (GroupLayout("atm", 3, (Reference("coordinates", "area"),)),)
    found = standings(*arrays, groups=groups)
    assert {path: standing.role for path, standing in found.items()} == {
        "atm/hi/tas": "data",
        "atm/lat": "auxiliary coordinate",
        "atm/lon": "auxiliary coordinate",
        "atm/lat_vertices": "auxiliary coordinate",
        "mask": "auxiliary coordinate",
        "atm/area": "auxiliary coordinate",
        "atm/other": "data",
    }
    assert found["atm/lat_vertices"].why == "named in 'bounds' of 'atm/lat'"
    assert warnings(*arrays, groups=groups) == ()


def test_a_name_that_nothing_has_is_said_once() -> None:
    attributes = {"coordinates": "lat gone /gone", "grid_mapping": "gone"}
    arrays = [RawArray(name, (4, 4), (4, 4), ["y", "x"], attributes=attributes) for name in ("tas", "pr", "lat")]
    assert warnings(*arrays) == (
        "'coordinates' of 'tas' names 'gone', which is no array here",
        "'coordinates' of 'tas' names '/gone', which is no array here",
    )
    root = GroupLayout("", 2, (Reference("coordinates", "gone"),))
    assert warnings(RawArray("tas", (4, 4), (4, 4), ["y", "x"]), groups=(root,)) == (
        "'coordinates' of the store itself names 'gone', which is no array here",
    )


def test_without_dimension_names_what_could_be_a_coordinate_stays_one() -> None:
    arrays = [
        RawArray("tas", (40, 8), (1, 8), format=2),
        RawArray("time", (40,), (1,), format=2),
        RawArray("values", (41,), (1,), format=2),
        RawArray("other", (41,), (1,), format=2),
    ]
    found = standings(*arrays)
    assert [found[array.path].role for array in arrays] == ["data", "possible coordinate", "data", "data"]
    assert "axis 0 of 'tas'" in found["time"].why


def test_where_a_sibling_names_its_axes_the_name_has_to_match_too() -> None:
    arrays = [
        RawArray("tas", (40, 8), (1, 8), ["time", "x"]),
        RawArray("time", (40,), (1,)),
        RawArray("flags", (40,), (1,)),
        RawArray("x", (9,), (1,)),
    ]
    found = standings(*arrays)
    assert [found[array.path].role for array in arrays] == ["data", "possible coordinate", "data", "data"]


def test_arrays_of_other_groups_are_no_siblings() -> None:
    found = standings(RawArray("a/tas", (40, 8), (1, 8)), RawArray("b/time", (40,), (1,)))
    assert found["b/time"].role == "data"


def test_unknown_dimension_names_are_said_in_one_line() -> None:
    arrays = [RawArray(name, (4, 5), (4, 5), ["y", None] if name == "a" else None) for name in "abcde"]
    assert warnings(*arrays) == (
        "dimension names unknown in 'a', 'b', 'c' and 2 more: coordinates cannot be told apart there",
    )
    assert warnings(arrays[0]) == ("dimension names unknown in 'a': coordinates cannot be told apart there",)


@pytest.mark.parametrize(
    ("arrays", "axes"),
    [
        ([RawArray("v", (4, 4), (4, 4), ["x", "Time"])], {1: "its name"}),
        (
            [RawArray("v", (4, 4), (4, 4), ["t", "x"]), RawArray("t", (4,), (4,), ["t"], attributes=TIME_UNITS)],
            {0: "its coordinate has units 'days since 2000-01-01'"},
        ),
        (
            [RawArray("v", (4, 4), (4, 4), ["t", "x"]), RawArray("t", (4,), (4,), ["t"], dtype="numpy.datetime64")],
            {0: "its coordinate has datetime values"},
        ),
        ([RawArray("v", (4, 4), (4, 4), ["t", "x"]), RawArray("t", (4,), (4,), ["t"])], {}),
        (
            [RawArray("v", (40, 4), (4, 4)), RawArray("clock", (40,), (4,), attributes=TIME_UNITS)],
            {0: "as long as 'clock', which has units 'days since 2000-01-01'"},
        ),
        ([RawArray("v", (40, 4), (4, 4)), RawArray("time", (40,), (4,))], {0: "as long as 'time'"}),
        ([RawArray("v", (40, 4), (4, 4)), RawArray("clock", (41,), (4,), attributes=TIME_UNITS)], {}),
        ([RawArray("v", (40,), (4,), attributes=TIME_UNITS)], {}),
    ],
)
def test_an_axis_is_time_by_its_name_or_by_its_coordinate(arrays: list[RawArray], axes: dict[int, str]) -> None:
    assert standings(*arrays)["v"].time_axes == axes


def test_a_coordinate_further_out_makes_an_axis_time_and_so_do_multiscales() -> None:
    outer = RawArray("t", (4,), (4,), ["t"], attributes=TIME_UNITS)
    assert 0 in standings(RawArray("a/b/v", (4, 4), (4, 4), ["t", "x"]), outer)["a/b/v"].time_axes
    scales = GroupLayout("img", 3, (), ("t",))
    found = standings(RawArray("img/0", (4, 4), (4, 4), ["t", "x"]), groups=(scales,))
    assert found["img/0"].time_axes == {0: "its type in multiscales"}
