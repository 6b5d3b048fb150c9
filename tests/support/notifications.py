"""Notifications as the four gateways write them, built from an object's true name.

The encoders follow the gateways' sources (see `consumer.events`), not our decoder: they are the other half of the round
trip.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from consumer.events import Dialect


def versitygw_record(
    bucket: str, key: str, *, event: str = "s3:ObjectCreated:Put", etag: str | None = "e1", size: int = 3, **more: Any
) -> dict[str, Any]:
    """One record as `s3event.createEventSchema` fills it; bulk deletes leave the key out of the ARN."""
    arn = f"arn:aws:s3:::/{bucket}" if event.endswith("DeleteObjects") else f"arn:aws:s3:::/{bucket}/{key}"
    return {
        "eventVersion": "2.2",
        "eventSource": "aws:s3",
        "awsRegion": "us-east-1",
        "eventTime": more.get("time", "2026-11-30T20:15:03+01:00"),
        "eventName": event,
        "userIdentity": {"PrincipalId": more.get("principal", "AKAPP")},
        "requestParameters": {"sourceIPAddress": "127.0.0.1"},
        "responseElements": {"x-amz-request-id": "", "x-amz-id-2": ""},
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "rabbitmq-global",
            "bucket": {"name": bucket, "ownerIdentity": {"PrincipalId": "AKOWNER"}, "arn": more.get("arn", arn)},
            "object": {
                "key": key,
                "size": size,
                "eTag": None if etag is None else f'"{etag}"',
                "versionId": more.get("version_id"),
                "sequencer": "9",
            },
        },
        "glacierEventData": {
            "restoreEventData": {"lifecycleRestorationExpiryTime": "", "lifecycleRestoreStorageClass": ""}
        },
    }


def minio_record(bucket: str, key: str, *, event: str = "s3:ObjectCreated:Put") -> dict[str, Any]:
    """One record as MinIO's `event.Event` is marshalled: Go's `url.QueryEscape`, slashes included."""
    return {
        "eventVersion": "2.0",
        "eventSource": "minio:s3",
        "eventTime": "2026-11-30T19:15:03.204Z",
        "eventName": event,
        "userIdentity": {"principalId": "app"},
        "s3": {
            "bucket": {"name": bucket, "ownerIdentity": {"principalId": "app"}, "arn": f"arn:aws:s3:::{bucket}"},
            "object": {"key": quote_plus(key, safe=""), "size": 3, "eTag": "e1", "sequencer": "187D3A11C0FFEE00"},
        },
        "source": {"host": "127.0.0.1", "port": "", "userAgent": "MinIO (linux; amd64)"},
    }


def ceph_record(bucket: str, key: str, *, event: str = "ObjectCreated:Put") -> dict[str, Any]:
    """One record as `rgw_pubsub_s3_event` is dumped."""
    return {
        "eventVersion": "2.2",
        "eventSource": "ceph:s3",
        "eventTime": "2026-11-30T19:15:03.253635Z",
        "eventName": event,
        "userIdentity": {"principalId": "app"},
        "s3": {
            "bucket": {"name": bucket, "arn": f"arn:aws:s3:default::{bucket}", "id": "z1.4117.1"},
            "object": {"key": key, "size": 3, "eTag": "e1", "versionId": "", "sequencer": "F7E6D75DC742D108"},
        },
        "eventId": "1732616626.253635.e1",
        "opaqueData": "",
    }


def aws_record(bucket: str, key: str, *, event: str = "ObjectCreated:Put") -> dict[str, Any]:
    """One record as the S3 user guide shows it; slashes stay."""
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "eventTime": "2026-11-30T19:15:03.204Z",
        "eventName": event,
        "userIdentity": {"principalId": "AWS:AROAEXAMPLEID:batch-7"},
        "s3": {
            "bucket": {"name": bucket, "arn": f"arn:aws:s3:::{bucket}"},
            "object": {"key": quote(key, safe="/ ").replace(" ", "+"), "size": 3, "eTag": "e1", "sequencer": "0055AE"},
        },
    }


_RECORDS = {"versitygw": versitygw_record, "minio": minio_record, "ceph": ceph_record, "aws": aws_record}


def record(dialect: Dialect, bucket: str, key: str, **options: Any) -> dict[str, Any]:
    """One record in any dialect."""
    build: Any = _RECORDS[dialect]
    result: dict[str, Any] = build(bucket, key, **options)
    return result


def message(*records: dict[str, Any]) -> bytes:
    """The body of one message."""
    return json.dumps({"Records": list(records)}, ensure_ascii=False).encode()


def created(bucket: str, key: str, **options: Any) -> bytes:
    """The body that versitygw publishes for one new object."""
    return message(versitygw_record(bucket, key, **options))


def removed(bucket: str, key: str) -> bytes:
    """The body that versitygw publishes for one deleted object."""
    return message(versitygw_record(bucket, key, event="s3:ObjectRemoved:Delete", etag=None, size=0))


TEST_EVENT = json.dumps(
    {"Bucket": "Test-Bucket", "Event": "s3:TestEvent", "Service": "S3", "Time": "2026-11-30T20:15:00+01:00"}
).encode()
"""What versitygw publishes at each of its starts."""
