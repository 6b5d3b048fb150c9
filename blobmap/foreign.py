"""What lies in a bucket and is no zarr store that can be cut: known by its names, and by one small document at most.

Sources: the layout of icechunk repositories (format 1 has `refs/`, format 2 a `repo` object), kerchunk's reference
specification (JSON with `version` and `refs`) and its parquet form (a `.zmetadata` with `record_size`), which
VirtualiZarr writes too, and the file name endings of netCDF, HDF5, GRIB and zip.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Collection

Kind = Literal[
    "icechunk repository", "kerchunk references", "zip archive", "netCDF or HDF5 files", "GRIB files", "other objects"
]

_ENDINGS: Final[tuple[tuple[Kind, tuple[str, ...]], ...]] = (
    ("netCDF or HDF5 files", (".nc", ".nc3", ".nc4", ".cdf", ".h5", ".hdf", ".hdf5", ".he5")),
    ("GRIB files", (".grib", ".grib1", ".grib2", ".grb", ".grb1", ".grb2", ".gb2")),
    ("zip archive", (".zip",)),
)


def kind_of_file(name: str) -> Kind:
    """Tell the kind of an object from its name.

    Args:
        name: last segment of its key.

    Returns:
        The kind, `other objects` where the ending says nothing.
    """
    lower = name.lower()
    return next((kind for kind, endings in _ENDINGS if lower.endswith(endings)), "other objects")


def is_icechunk(folders: Collection[str], objects: Collection[str]) -> bool:
    """Tell an icechunk repository from the names at its top.

    Args:
        folders: last segments of the prefixes there.
        objects: last segments of the objects there.

    Returns:
        Whether it has snapshots, and the references of format 1 or the repository object of format 2.
    """
    return "snapshots" in folders and ("refs" in folders or "repo" in objects)


def is_reference_json(data: bytes) -> bool:
    """Tell kerchunk references in JSON from their content.

    Args:
        data: the document.

    Returns:
        Whether it is an object with `refs` (version 1), or maps `.zgroup` itself (version 0).
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and (isinstance(document.get("refs"), dict) or ".zgroup" in document)


def is_reference_parquet(data: bytes) -> bool:
    """Tell kerchunk references in parquet files from the `.zmetadata` beside them.

    Args:
        data: the document.

    Returns:
        Whether it says how many references a file holds.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and "record_size" in document
