"""The measured numbers that a manifest keeps of its arrays: written for people, read back by our own next partition.

`provenance` is anybody's JSON and may say anything, so what does not have the expected form says nothing. What was
planned for a cut is kept beside what is measured, because the size promise is about both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blobmap.manifest import Manifest
    from blobmap.tally import Measured


@dataclass(frozen=True, slots=True)
class Planned:
    """What a cut was made with.

    Attributes:
        object_bytes: size of one object as it was planned.
        t_max_bytes: what a blob was to hold at most.
    """

    object_bytes: int
    t_max_bytes: int


@dataclass(frozen=True, slots=True)
class Provenance:
    """What is known of the arrays of a previous partition, by path.

    Attributes:
        shapes: elements along each axis.
        planned: what their cuts were made with.
        entries: everything else that stands there.
    """

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    planned: Mapping[str, Planned] = field(default_factory=dict)
    entries: Mapping[str, object] = field(default_factory=dict)


def read_provenance(manifest: Manifest | None) -> Provenance:
    """Read what a manifest says of its arrays.

    Args:
        manifest: of any writer, None if there is none.

    Returns:
        What has the expected form.
    """
    entries = (manifest.provenance or {}) if manifest is not None else {}
    shapes, planned = {}, {}
    for path, entry in entries.items():
        if not isinstance(entry, Mapping):
            continue
        shape = entry.get("shape")
        if isinstance(shape, (list, tuple)) and all(isinstance(length, int) for length in shape):
            shapes[path] = tuple(shape)
        object_bytes, t_max_bytes = entry.get("planned_object_bytes"), entry.get("planned_t_max_bytes")
        if isinstance(object_bytes, int) and isinstance(t_max_bytes, int) and min(object_bytes, t_max_bytes) > 0:
            planned[path] = Planned(object_bytes, t_max_bytes)
    return Provenance(shapes, planned, entries)


def provenance_entry(array: Measured, planned: Planned | None) -> dict[str, object]:
    """Write what is known of one array.

    Args:
        array: as measured.
        planned: what its cut was made with, None where it has none of ours.

    Returns:
        Its entry.
    """
    layout = array.layout
    entry: dict[str, object] = {
        "objects": array.objects,
        "grid_objects": layout.grid_objects,
        "stored_bytes": array.stored_bytes,
        "uncompressed_object_bytes": layout.object_bytes,
        "shape": list(layout.shape),
        "sharded": layout.sharded,
    }
    if planned is not None:
        entry |= {f"planned_{name}": value for name, value in asdict(planned).items()}
    return entry
