from __future__ import annotations

import pytest

from blobmap.arrays import Reference
from blobmap.attributes import (
    axis_names,
    dimension_attribute,
    is_own_dimension,
    multiscale_time_axes,
    references,
    time_evidence,
)


@pytest.mark.parametrize(
    ("value", "ndim", "names"),
    [
        (["time", "lat"], 2, ("time", "lat")),
        (["time", None], 2, ("time", None)),
        (["time", ""], 2, ("time", None)),
        (["time", 5], 2, ("time", None)),
        ([None, None], 2, None),
        (["time"], 2, None),
        ([], 0, None),
        ("time", 4, None),
        (None, 1, None),
        ({"0": "time"}, 1, None),
    ],
)
def test_axis_names_are_read_or_unknown(value: object, ndim: int, names: tuple[str | None, ...] | None) -> None:
    assert axis_names(value, ndim) == names
    assert dimension_attribute({"_ARRAY_DIMENSIONS": value}, ndim) == names


def test_an_array_is_a_coordinate_if_any_place_names_its_only_axis_like_it() -> None:
    assert is_own_dimension("cell", ("cell",), None)
    assert is_own_dimension("cell", ("values",), ("cell",))
    assert not is_own_dimension("cell", ("time", "cell"))
    assert not is_own_dimension("cell", None, None)


@pytest.mark.parametrize(
    ("attributes", "found"),
    [
        ({"coordinates": "lat_rho  lon_rho\n"}, [("coordinates", "lat_rho"), ("coordinates", "lon_rho")]),
        ({"bounds": "time_bnds", "units": "K"}, [("bounds", "time_bnds")]),
        (
            {"grid_mapping": "crs: x y other: lat"},
            [("grid_mapping", name) for name in ("crs", "x", "y", "other", "lat")],
        ),
        ({"coordinates": ["lat"], "bounds": None, "grid_mapping": " : "}, []),
        ({"coordinates": "lat lat"}, [("coordinates", "lat")]),
    ],
)
def test_cf_attributes_name_arrays(attributes: dict[str, object], found: list[tuple[str, str]]) -> None:
    assert references(attributes) == tuple(Reference(*pair) for pair in found)


@pytest.mark.parametrize(
    ("data_type", "attributes", "evidence"),
    [
        ("float64", {"units": "days since 1850-01-01"}, "units 'days since 1850-01-01'"),
        ("float64", {"units": " Seconds SINCE 1970-01-01T00:00 "}, "units 'Seconds SINCE 1970-01-01T00:00'"),
        ("<M8[ns]", {}, "datetime values"),
        ("float64", {"standard_name": "time"}, "standard_name 'time'"),
        ("float64", {"axis": "T"}, "axis 'T'"),
        ("float64", {"units": "since"}, None),
        ("float64", {"units": "hours"}, None),
        ("float64", {"units": 5, "axis": "X"}, None),
    ],
)
def test_values_are_points_in_time_by_units_type_or_name(
    data_type: object, attributes: dict[str, object], evidence: str | None
) -> None:
    assert time_evidence(data_type, attributes) == evidence


AXES = [{"name": "t", "type": "time"}, {"name": "c", "type": "channel"}, {"type": "time"}, "x"]


@pytest.mark.parametrize(
    "attributes",
    [{"multiscales": [{"axes": AXES}, {"axes": AXES}]}, {"ome": {"multiscales": [{"axes": AXES}]}}],
)
def test_multiscales_name_their_time_axis(attributes: dict[str, object]) -> None:
    assert multiscale_time_axes(attributes) == ("t",)


@pytest.mark.parametrize(
    "attributes", [{}, {"multiscales": {}}, {"multiscales": [5]}, {"multiscales": [{"axes": None}]}, {"ome": 5}]
)
def test_what_is_no_multiscales_names_no_axis(attributes: dict[str, object]) -> None:
    assert multiscale_time_axes(attributes) == ()
