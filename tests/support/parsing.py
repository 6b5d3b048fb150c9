"""What the daemon reads out of a JSON document."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from consumer.events import ObjectEvent, Refusal, parse_message
from tests.support.notifications import versitygw_record

if TYPE_CHECKING:
    from consumer.events import Dialect, Parsed


def parse(document: object, dialect: Dialect = "versitygw") -> tuple[Parsed, ...]:
    return parse_message(json.dumps(document).encode(), dialect)


def one(document: object, dialect: Dialect = "versitygw") -> ObjectEvent:
    (event,) = parse(document, dialect)
    assert isinstance(event, ObjectEvent), event
    return event


def refused(document: object, dialect: Dialect = "versitygw") -> Refusal:
    (refusal,) = parse(document, dialect)
    assert isinstance(refusal, Refusal), refusal
    return refusal


def with_object(**fields: Any) -> dict[str, Any]:
    built = versitygw_record("b", "k")
    built["s3"]["object"].update(fields)
    return {"Records": [built]}
