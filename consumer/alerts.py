"""Alerts: what a person should know, and that it is over; the message, and the bytes that it is made of.

Pure. The JSON Schema beside this file (`schemas/`) says the same for other programs; a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import orjson

from consumer.records import Message, utc_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

ALERTS_SCHEMA = "blobmap.alerts.v1"

AlertKind: TypeAlias = Literal[
    "unmanaged-store",  # a store that no manifest covers
    "unclaimed-array",  # a covered store with objects that no rule claims
    "hot-outgrown",  # an array kept on disk for its size has outgrown it
    "events-lost",  # a listing knew what no event had told
    "gateway-silent",  # no notification comes from a gateway that has some to give
    "manifest-invalid",  # what lies where a manifest should cannot be used
    "dead-letter",  # messages are set aside, or are about to be
    "blocked",  # the broker takes nothing
]

Severity: TypeAlias = Literal["info", "warning", "critical"]

Detail: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Alert:
    """One thing that a person should know.

    Attributes:
        kind: what kind of thing.
        severity: how soon somebody has to look: at leisure, today, now.
        subject: whom it is about, the same for as long as it lasts: bucket and scope, say, or a queue.
        summary: one line for people.
        bucket: name of the bucket, None where it is about none.
        scope: scope in that bucket, None where it is about none.
        details: figures and names for programs.
    """

    kind: AlertKind
    severity: Severity
    subject: str
    summary: str
    bucket: str | None = None
    scope: str | None = None
    details: Mapping[str, Detail] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Names the alert for receivers, which drop repeats: two alerts are the same where kind and subject are."""
        return f"{self.kind}:{self.subject}"


def store_subject(bucket: str, scope: str) -> str:
    """The subject of an alert about a scope, or about a prefix that may become one."""
    return f"{bucket}/{scope}"


def alert_message(queue: str, alert: Alert, at: datetime, *, resolved: bool = False) -> Message:
    """Writes one `blobmap.alerts.v1` message.

    Args:
        queue: queue of the alerts.
        alert: what it is about; to say that it is over, one with the same kind and subject.
        at: UTC; when that was found.
        resolved: whether it is over.

    Returns:
        The message. Its `key` is that of the alert: a later one says all that an earlier one said.
    """
    body = {
        "schema": ALERTS_SCHEMA,
        "key": alert.key,
        "kind": alert.kind,
        "severity": alert.severity,
        "bucket": alert.bucket,
        "scope": alert.scope,
        "summary": alert.summary,
        "details": dict(alert.details),
        "at": utc_text(at),
        "resolved": resolved,
    }
    return Message(queue, ALERTS_SCHEMA, orjson.dumps(body), key=alert.key)
