from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blobmap.errors import DocumentError
from blobmap.grids import extents, object_bytes, rectilinear_grid, regular_grid


@pytest.mark.parametrize(
    ("shape", "chunks", "grid"),
    [
        ((10, 4), (3, 4), (4, 1)),
        ((), (), ()),
        ((0, 4), (1, 4), (0, 1)),
        ((0,), (0,), (0,)),
        ((1,), (1000,), (1,)),
        ((2**62, 3), (1, 1), (2**62, 3)),
    ],
)
def test_a_regular_grid_counts_whole_and_partial_objects(
    shape: tuple[int, ...], chunks: tuple[int, ...], grid: tuple[int, ...]
) -> None:
    assert regular_grid(shape, chunks) == grid


@pytest.mark.parametrize(("shape", "chunks"), [((4,), (0,)), ((4,), (2, 2)), ((4, 4), ())])
def test_a_chunk_shape_that_cannot_fill_the_array_is_refused(shape: tuple[int, ...], chunks: tuple[int, ...]) -> None:
    with pytest.raises(DocumentError, match="chunk shape"):
        regular_grid(shape, chunks)


@pytest.mark.parametrize(
    ("shape", "edges", "grid"),
    [
        ((60, 4), [[[10, 6]], [4]], (6, 1)),
        ((60,), [[10, 20, 30]], (3,)),
        ((60,), [[[10, 2], 40]], (3,)),
        ((60,), [25], (3,)),
        ((60,), [[[10, 100]]], (6,)),
        ((0,), [[[10, 100]]], (0,)),
        ((), [], ()),
        ((2**40,), [[[1, 2**40]]], (2**40,)),
    ],
)
def test_a_rectilinear_grid_counts_the_edges_that_hold_elements(
    shape: tuple[int, ...], edges: object, grid: tuple[int, ...]
) -> None:
    assert rectilinear_grid(shape, edges) == grid


@pytest.mark.parametrize(
    ("edges", "said"),
    [
        (None, "a list with one entry for each of 1 axes"),
        ([], "a list with one entry for each of 1 axes"),
        (["x"], "for axis 0, allowed"),
        ([[10, 20]], "covers 30 of 60 elements of axis 0"),
        ([[[0, 5], 60]], "edge of length 0"),
        ([[[10, 1, 1]]], "chunk_shapes has [10, 1, 1]"),
        ([[-1]], "chunk_shapes has -1"),
        ([[True]], "chunk_shapes has True"),
    ],
)
def test_edges_that_do_not_make_a_grid_are_refused(edges: object, said: str) -> None:
    with pytest.raises(DocumentError, match=re.escape(said)):
        rectilinear_grid((60,), edges)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=20))
def test_equal_edges_in_runs_or_one_by_one_make_the_same_grid(edges: list[int]) -> None:
    runs = [[edge, 1] for edge in edges]
    assert rectilinear_grid((sum(edges),), [edges]) == rectilinear_grid((sum(edges),), [runs]) == (len(edges),)


def test_lengths_are_integers_within_bounds() -> None:
    assert extents({"shape": [0, 2**63 - 1]}, "shape") == (0, 2**63 - 1)
    for shape in (None, "12", [1.0], [-1], [True], [2**63], [None]):
        with pytest.raises(DocumentError, match="shape"):
            extents({"shape": shape}, "shape")


def test_an_object_of_variable_elements_has_no_size() -> None:
    assert object_bytes((2, 3), 4) == 24
    assert object_bytes((), 8) == 8
    assert object_bytes((2, 3), None) is None
