"""Stores as zarr-python and xarray write them, into a directory or any obstore store: both formats, shards, trees."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import xarray as xr
import zarr
from zarr.storage import LocalStore, ObjectStore

if TYPE_CHECKING:
    from pathlib import Path

    from obstore.store import ObjectStore as Obstore

Format = Literal[2, 3]
Target: TypeAlias = "LocalStore | ObjectStore[Any]"


def in_directory(path: Path) -> LocalStore:
    return LocalStore(path)


def in_obstore(store: Obstore) -> ObjectStore[Any]:
    return ObjectStore(store)


def dataset() -> xr.Dataset:
    """Three variables over time, y and x, a rotated grid, station names, a scalar; values are noise."""
    noise = np.random.default_rng(7)
    axes = ("time", "y", "x")
    return xr.Dataset(
        {
            "tas": (axes, noise.random((24, 6, 8), dtype="float32"), {"grid_mapping": "crs"}),
            "pr": (axes, noise.random((24, 6, 8), dtype="float32")),
            "obs": (("station", "time"), noise.random((3, 24))),
            "crs": ((), 0),
        },
        coords={
            "time": ("time", np.datetime64("2000-01-01", "ns") + np.arange(24) * np.timedelta64(1, "D")),
            "y": ("y", np.linspace(0.0, 1.0, 6)),
            "x": ("x", np.linspace(0.0, 1.0, 8)),
            "station": ("station", ["Hamburg", "Köln", "Ulm"]),
            "lat": (("y", "x"), noise.random((6, 8))),
            "lon": (("y", "x"), noise.random((6, 8))),
        },
    )


ENCODING = {"tas": {"chunks": (1, 3, 8)}, "pr": {"chunks": (2, 6, 8)}, "obs": {"chunks": (1, 6)}}


def write_dataset(target: Target, fmt: Format, *, consolidated: bool) -> None:
    with _quiet():
        dataset().to_zarr(target, zarr_format=fmt, consolidated=consolidated, encoding=ENCODING)


def write_tree(target: Target, fmt: Format) -> None:
    """A datatree: a root without data, two levels of groups."""
    small = dataset()[["tas"]]
    tree = xr.DataTree.from_dict({"/atm": small, "/atm/hi": small[["tas"]], "/ocean": dataset()[["pr"]]})
    with _quiet():
        tree.to_zarr(target, zarr_format=fmt)


def write_sharded(target: Target) -> None:
    """An array of 4 x 2 shards, each of 4 x 4 chunks, beside its coordinate."""
    with _quiet():
        root = zarr.create_group(target, zarr_format=3)
        array = root.create_array(
            "hus", shape=(32, 16), shards=(8, 8), chunks=(2, 2), dtype="float32", dimension_names=("time", "x")
        )
        array[:] = np.random.default_rng(7).random((32, 16), dtype="float32")
        time = root.create_array("time", shape=(32,), chunks=(8,), dtype="int64", dimension_names=("time",))
        time[:] = np.arange(1, 33)


def write_types(target: Target, fmt: Format) -> None:
    """One array for each type that is no plain number."""
    values = {
        "strings": np.array(["a", "bb", "ccc", "d"], dtype="U3"),
        "bytes": np.array([b"a", b"bb", b"ccc", b"d"], dtype="S3"),
        "times": np.arange(4).astype("M8[s]") + np.timedelta64(1, "s"),
        "spans": np.arange(1, 5).astype("m8[s]"),
        "records": np.array([(1, 2.0)] * 4, dtype=[("a", "i4"), ("b", "f8")]),
        "complex": np.arange(1, 5).astype("complex64"),
        "bools": np.array([True] * 4),
    }
    with _quiet():
        root = zarr.create_group(target, zarr_format=fmt)
        for name, data in values.items():
            root.create_array(name, shape=(4,), chunks=(1,), dtype=data.dtype)[:] = data
        root.create_array("variable", shape=(4,), chunks=(1,), dtype=str)[:] = values["strings"]


def write_separators(target: Target, fmt: Format) -> None:
    """Every spelling of chunk keys that the library can write."""
    keys: list[dict[str, Any]] = [{"name": "v2", "separator": "."}, {"name": "v2", "separator": "/"}]
    if fmt == 3:
        keys += [{"name": "default", "separator": "."}, {"name": "default", "separator": "/"}]
    with _quiet():
        root = zarr.create_group(target, zarr_format=fmt)
        for number, encoding in enumerate(keys):
            array = root.create_array(
                f"a{number}",
                shape=(6, 4),
                chunks=(1, 2),
                dtype="float32",
                chunk_key_encoding=encoding,
            )
            array[:] = np.random.default_rng(7).random((6, 4), dtype="float32")


class _quiet(warnings.catch_warnings):  # noqa: N801 - reads as the context that it is
    """The libraries warn that some of these types and trees are not final; that they are written is all we need."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.simplefilter("ignore")
