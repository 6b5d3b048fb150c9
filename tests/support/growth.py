"""A store that grows: a model of its arrays, and what writers do to them.

Every action changes the model as a real writer changes a store; `objects` gives what then lies in the bucket.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from hypothesis import strategies as st

from tests.support.stores import RawArray, store_objects

if TYPE_CHECKING:
    from collections.abc import Callable

SCOPE = "data/st.zarr"
Form = tuple[Literal[2, 3], str]
FORMS: tuple[Form, ...] = ((3, "/"), (3, "."), (2, "/"), (2, "."))


@dataclass
class GrowingArray:
    """One array: shape and chunk shape, how its keys are spelled, and the size of each stored object."""

    path: str
    shape: list[int]
    chunks: list[int]
    dims: list[str]
    form: Form
    compression: int = 2
    sizes: dict[tuple[int, ...], int] = field(default_factory=dict)

    @property
    def object_bytes(self) -> int:
        return math.prod(self.chunks) * 4

    def grid(self) -> tuple[int, ...]:
        return tuple(-(-length // chunk) for length, chunk in zip(self.shape, self.chunks, strict=True))

    def write(self) -> None:
        """Store every chunk of the grid that is missing, as well compressed as compression is now."""
        for index in itertools.product(*map(range, self.grid())):
            self.sizes.setdefault(index, max(self.object_bytes // self.compression, 1))

    def raw(self) -> RawArray:
        fmt, separator = self.form
        sizes = self.sizes
        return RawArray(
            self.path,
            self.shape,
            self.chunks,
            self.dims,
            fmt,
            separator=separator,
            present=sorted(sizes),
            nbytes=lambda index: sizes[index],
        )

    def sizes_by_key(self) -> dict[str, int]:
        """Full key to size."""
        return {f"{SCOPE}/{self.path}/{key}": size for key, size in self.raw().chunk_keys()}


@dataclass
class GrowingStore:
    """Arrays by path; `coordinates` are those whose only dimension has their name."""

    arrays: dict[str, GrowingArray] = field(default_factory=dict)

    def add(self, array: GrowingArray) -> None:
        array.write()
        self.arrays[array.path] = array

    def objects(self) -> dict[str, bytes]:
        return store_objects(SCOPE, [array.raw() for array in self.arrays.values()], groups={"": {}})

    def coordinates(self) -> list[GrowingArray]:
        return [array for array in self.arrays.values() if array.dims == [array.path.rpartition("/")[2]]]


Action = tuple["Callable[..., None]", tuple[object, ...]]


def append(store: GrowingStore, pick: int, axis: int, length: int) -> None:
    """Append along one axis; data that shares the dimension would grow too, but writers are not that tidy."""
    array = _picked(store, pick)
    if array is not None:
        array.shape[axis % len(array.shape)] += length
        array.write()


def add_array(store: GrowingStore, path: str, lengths: list[int], form: Form, *, coordinate: bool) -> None:
    if path not in store.arrays:
        names = [path.rpartition("/")[2]] if coordinate else ["time", "y", "x"][: len(lengths)]
        shape = [4 * length for length in lengths[: len(names)]]
        store.add(GrowingArray(path, shape, [4] * len(shape), names, form))


def delete_array(store: GrowingStore, pick: int) -> None:
    array = _picked(store, pick)
    if array is not None:
        del store.arrays[array.path]


def compress(store: GrowingStore, pick: int, compression: int) -> None:
    """Objects that are written from now on are smaller or larger."""
    array = _picked(store, pick)
    if array is not None:
        array.compression = compression


def rechunk(store: GrowingStore, pick: int, axis: int, chunk: int) -> None:
    """Write the whole array anew in other chunks, in place."""
    array = _picked(store, pick)
    if array is not None:
        array.chunks[axis % len(array.chunks)] = chunk
        array.sizes.clear()
        array.write()


def rewrite(store: GrowingStore, pick: int, form: Form) -> None:
    """Write the whole array anew in another format or spelling."""
    array = _picked(store, pick)
    if array is not None:
        array.form = form


def _picked(store: GrowingStore, pick: int) -> GrowingArray | None:
    arrays = [store.arrays[path] for path in sorted(store.arrays)]
    return arrays[pick % len(arrays)] if arrays else None


forms = st.sampled_from(FORMS)
picks = st.integers(0, 9)
paths = st.sampled_from(["tas", "pr", "g/tas", "g_tas", "0", "c", "g/c", "time", "g/x", "Odd Name"])
additions = st.tuples(
    st.just(add_array), st.tuples(paths, st.lists(st.integers(1, 5), min_size=1, max_size=3), forms)
).flatmap(lambda action: st.booleans().map(lambda coordinate: (_addition(coordinate), action[1])))
growth = st.tuples(st.just(append), st.tuples(picks, st.integers(0, 2), st.integers(1, 60)))
changes = st.one_of(
    growth,
    growth,
    additions,
    st.tuples(st.just(delete_array), st.tuples(picks)),
    st.tuples(st.just(compress), st.tuples(picks, st.sampled_from([1, 4, 64]))),
    st.tuples(st.just(rechunk), st.tuples(picks, st.integers(0, 2), st.sampled_from([1, 2, 4, 8]))),
    st.tuples(st.just(rewrite), st.tuples(picks, forms)),
)


def _addition(coordinate: bool) -> Callable[..., None]:
    def add(store: GrowingStore, path: str, lengths: list[int], form: Form) -> None:
        add_array(store, path, lengths, form, coordinate=coordinate)

    return add
