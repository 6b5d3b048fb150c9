from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blobmap.identifiers import array_id, hashed_id

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "identifiers.json").read_text(encoding="utf-8"))

paths = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/"), min_size=1), max_size=4).map(
    "/".join
) | st.from_regex(r"[a-c_]{1,4}(/[a-c_]{1,4}){0,2}", fullmatch=True)


@pytest.mark.parametrize(("path", "name"), GOLDEN.items())
def test_identifiers_never_change(path: str, name: str) -> None:
    assert array_id(path) == name


@given(paths)
def test_an_identifier_is_what_the_format_allows(path: str) -> None:
    assert re.fullmatch(r"[a-z0-9_]+", array_id(path))
    assert re.fullmatch(r"b_[a-z0-9_]+___[0-9a-f]{8}", hashed_id(path))


@given(paths, paths)
def test_two_paths_never_share_an_identifier(one: str, other: str) -> None:
    names = [{array_id(path), hashed_id(path)} for path in (one, other)]
    assert one == other or names[0].isdisjoint(names[1])
