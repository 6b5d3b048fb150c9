"""Arrays as a survey would measure them, of any size, without an object in sight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blobmap.arrays import ArrayLayout
from blobmap.decisions import Before
from blobmap.layout import read_v2_array, read_v3
from blobmap.partition import plan_partition
from blobmap.roles import stand
from blobmap.tally import Measured

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blobmap.decisions import Decision, Plan
    from blobmap.policy import Policy
    from tests.support.stores import RawArray

KIB, MIB, GIB, TIB = 1024, 1024**2, 1024**3, 1024**4


def layout_of(raw: RawArray) -> ArrayLayout:
    documents = raw.documents()
    name = raw.path.rpartition("/")[2]
    if raw.format == 2:
        attributes = documents.get(".zattrs")
        zattrs = (attributes, ".zattrs") if attributes is not None else None
        return read_v2_array(raw.path, name, documents[".zarray"], ".zarray", zattrs=zattrs)
    layout = read_v3(raw.path, name, documents["zarr.json"], "zarr.json")
    assert isinstance(layout, ArrayLayout)
    return layout


def measured(raw: RawArray, object_bytes: float = 0, *, objects: int | None = None) -> Measured:
    """An array all of whose objects are stored (or `objects` of them), each of this size on average."""
    layout = layout_of(raw)
    count = layout.grid_objects if objects is None else objects
    return Measured(layout, count, round(count * object_bytes), layout.encoding, layout.obstacle)


def plan(
    arrays: Iterable[Measured],
    before: Before | None = None,
    *,
    scope: str = "st.zarr",
    policy: Policy | None = None,
    force: bool = False,
) -> Plan:
    arrays = list(arrays)
    standings, _ = stand([array.layout for array in arrays], [])
    return plan_partition(scope, arrays, standings, before or Before(), policy=policy, force=force)


def decide(*arrays: Measured, policy: Policy | None = None) -> dict[str, Decision]:
    """Rows of a first cut, by path."""
    return {row.path: row for row in plan(arrays, policy=policy).decisions}
