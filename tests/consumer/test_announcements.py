from __future__ import annotations

import json
from importlib.resources import files

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.announcements import announcement, read_announcement

SCOPES = st.text(st.characters(codec="utf-8"))


@given(bucket=st.text(st.characters(codec="utf-8"), min_size=1), scope=SCOPES, epoch=st.integers(1, 2**63 - 1))
def test_what_is_written_is_read_and_fits_the_schema(bucket: str, scope: str, epoch: int) -> None:
    body = announcement(bucket, scope, epoch)
    assert read_announcement(body) == (bucket, scope)
    schema = json.loads((files("consumer") / "schemas" / "manifests-v1.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(json.loads(body))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"{}",
        b'{"schema":"blobmap.manifests.v2","bucket":"b","scope":"s","epoch":1}',
        b'{"schema":"blobmap.manifests.v1","bucket":"b","epoch":1}',
        b'{"schema":"blobmap.manifests.v1","bucket":1,"scope":"s","epoch":1}',
    ],
)
def test_what_is_no_announcement_is_none(body: bytes) -> None:
    assert read_announcement(body) is None


@given(st.binary())
def test_no_bytes_are_too_odd(body: bytes) -> None:
    assert read_announcement(body) is None
