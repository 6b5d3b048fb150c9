from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib.resources import files
from typing import TYPE_CHECKING

import jsonschema

from consumer.journal import COLUMNS, journal_message

if TYPE_CHECKING:
    from consumer.journal import Entry

NOON = datetime(2026, 11, 30, 12, 0, 0, 250_000, tzinfo=UTC)
CREATED: Entry = ("s.zarr/t/c/0", "created", True, "b_t_0", "e1", None, 3, NOON)
REMOVED: Entry = ("s.zarr/t/c/1", "removed", False, "b_t_0", None, None, None, None)
IGNORED: Entry = ("s.zarr/t/c/2", "ignored", True, "b_t_0", "e2", "v1", 0, NOON)
TOLD = ("b", "s.zarr", ("tape-a", "tape-b"))
KEPT = ("b", "s.zarr", ())


def test_what_entries_share_stands_once() -> None:
    message = journal_message("j", NOON, [(TOLD, CREATED), (KEPT, IGNORED), (TOLD, REMOVED)])
    assert (message.queue, message.schema) == ("j", "blobmap.journal.v1")
    assert json.loads(message.body) == {
        "schema": "blobmap.journal.v1",
        "at": "2026-11-30T12:00:00.250000Z",
        "told": [
            {
                "bucket": "b",
                "scope": "s.zarr",
                "movers": ["tape-a", "tape-b"],
                "entries": [
                    ["s.zarr/t/c/0", "created", True, "b_t_0", "e1", None, 3, "2026-11-30T12:00:00.250000Z"],
                    ["s.zarr/t/c/1", "removed", False, "b_t_0", None, None, None, None],
                ],
            },
            {
                "bucket": "b",
                "scope": "s.zarr",
                "movers": [],
                "entries": [["s.zarr/t/c/2", "ignored", True, "b_t_0", "e2", "v1", 0, "2026-11-30T12:00:00.250000Z"]],
            },
        ],
    }


def test_the_schema_says_the_same() -> None:
    schema = json.loads((files("consumer") / "schemas" / "journal-v1.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(json.loads(journal_message("j", NOON, [(TOLD, CREATED), (KEPT, IGNORED), (TOLD, REMOVED)]).body))
    assert tuple(column["title"] for column in schema["$defs"]["entry"]["prefixItems"]) == COLUMNS
    assert not validator.is_valid({"schema": "blobmap.journal.v1", "at": "2026-11-30T12:00:00Z", "told": []})
