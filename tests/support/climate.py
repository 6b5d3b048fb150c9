"""Small model output as xarray writes it: variables over time, y and x, their dimension coordinates, a rotated grid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import xarray as xr
from zarr.storage import ObjectStore

if TYPE_CHECKING:
    from obstore.store import S3Store

ZarrFormat: TypeAlias = Literal[2, 3]

# Everything else in such a store is a coordinate or metadata.
VARIABLES = ("tas", "pr")

# Axis order: time, y, x.
SHAPE = (24, 20, 20)
CHUNKS = (4, 10, 10)

CHUNK_OBJECTS = len(VARIABLES) * 6 * 2 * 2


def climate(seed: int) -> xr.Dataset:
    """A dataset whose values are noise, so that every chunk is stored and none is small."""
    times, rows, columns = SHAPE
    noise = np.random.default_rng(seed)
    axes = ("time", "y", "x")
    return xr.Dataset(
        {name: (axes, noise.random(SHAPE, dtype="float32")) for name in VARIABLES},
        coords={
            "time": ("time", np.arange(times)),
            "y": ("y", np.linspace(-23.4, 21.8, rows)),
            "x": ("x", np.linspace(-28.4, 18.2, columns)),
            "lat": (("y", "x"), noise.random((rows, columns))),
            "lon": (("y", "x"), noise.random((rows, columns))),
        },
    )


def write_climate(store: S3Store, *, zarr_format: ZarrFormat, seed: int = 0) -> None:
    """Write the dataset anew to the root of a store; format 2 with consolidated metadata, as is xarray's default."""
    climate(seed).to_zarr(
        ObjectStore(store),
        mode="w",
        zarr_format=zarr_format,
        consolidated=zarr_format == 2,
        encoding={name: {"chunks": CHUNKS} for name in VARIABLES},
    )
