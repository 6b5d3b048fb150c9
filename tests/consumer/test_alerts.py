from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, get_args

import jsonschema
import pytest

from consumer.alerts import Alert, AlertKind, Severity, alert_message, store_subject

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

ALERT = Alert(
    "unmanaged-store",
    "warning",
    store_subject("cordex", "eur11.zarr"),
    "store 'eur11.zarr' of bucket 'cordex' has no manifest",
    bucket="cordex",
    scope="eur11.zarr",
    details={"objects": 3, "first_object": "eur11.zarr/tas/c/0", "late": None},
)


def schema() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((files("consumer") / "schemas/alerts-v1.schema.json").read_text())
    return loaded


def validator() -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(schema())
    return jsonschema.Draft202012Validator(schema())


def test_an_alert_that_is_raised() -> None:
    message = alert_message("alerts", ALERT, NOON)
    body = json.loads(message.body)
    assert (message.queue, message.schema, message.key) == ("alerts", "blobmap.alerts.v1", body["key"])
    assert body == {
        "schema": "blobmap.alerts.v1",
        "key": "unmanaged-store:cordex/eur11.zarr",
        "kind": "unmanaged-store",
        "severity": "warning",
        "bucket": "cordex",
        "scope": "eur11.zarr",
        "summary": "store 'eur11.zarr' of bucket 'cordex' has no manifest",
        "details": {"objects": 3, "first_object": "eur11.zarr/tas/c/0", "late": None},
        "at": "2026-11-30T12:00:00Z",
        "resolved": False,
    }
    validator().validate(body)


def test_what_resolves_an_alert_has_its_key() -> None:
    """Whatever else is said differently by then."""
    raised = alert_message("alerts", ALERT, NOON)
    over = alert_message("alerts", replace(ALERT, severity="info", summary="claimed", details={}), NOON, resolved=True)
    assert over.key == raised.key
    assert json.loads(over.body)["resolved"] is True
    validator().validate(json.loads(over.body))


@pytest.mark.parametrize(
    "other",
    [
        replace(ALERT, kind="unclaimed-array"),
        replace(ALERT, subject=store_subject("cordex", "")),
        replace(ALERT, subject=store_subject("other", "eur11.zarr")),
    ],
    ids=lambda alert: alert.key,
)
def test_another_kind_or_subject_is_another_alert(other: Alert) -> None:
    assert other.key != ALERT.key


def test_the_schema_knows_every_kind_and_severity() -> None:
    properties = schema()["properties"]
    assert properties["kind"]["enum"] == list(get_args(AlertKind))
    assert properties["severity"]["enum"] == list(get_args(Severity))


def test_an_alert_about_no_bucket_fits_the_schema() -> None:
    validator().validate(json.loads(alert_message("q", Alert("blocked", "critical", "broker", "b"), NOON).body))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "fire"},
        {"severity": "bad"},
        {"resolved": "no"},
        {"summary": ""},
        {"key": ""},
        {"bucket": ""},
        {"details": {"list": []}},
        {"at": "2026-11-30T12:00:00+01:00"},
        {"more": 1},
    ],
    ids=str,
)
def test_the_schema_can_refuse(change: dict[str, Any]) -> None:
    body = json.loads(alert_message("alerts", ALERT, NOON).body)
    assert not validator().is_valid(body | change)
