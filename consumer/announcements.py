"""The announcement that a manifest has changed: the message, and the bytes that it is made of.

Pure. The JSON Schema beside this file (`schemas/`) says the same for other programs; a test holds the two together.
Somebody else may announce too, a program that writes manifests of its own, say.
"""

from __future__ import annotations

import orjson

ANNOUNCEMENTS_SCHEMA = "blobmap.manifests.v1"


def announcement(bucket: str, scope: str, epoch: int) -> bytes:
    """Writes one `blobmap.manifests.v1` message.

    Args:
        bucket: name of the bucket.
        scope: scope of the manifest.
        epoch: its epoch now; whoever hears of it reads for himself.

    Returns:
        A JSON object as UTF-8.
    """
    return orjson.dumps({"schema": ANNOUNCEMENTS_SCHEMA, "bucket": bucket, "scope": scope, "epoch": epoch})


def read_announcement(body: bytes) -> tuple[str, str] | None:
    """Reads one.

    Returns:
        Bucket and scope; None where it is no such message, which nobody needs to hear of: the next comparison finds
        what it would have told.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(document, dict) or document.get("schema") != ANNOUNCEMENTS_SCHEMA:
        return None
    bucket, scope = document.get("bucket"), document.get("scope")
    return (bucket, scope) if isinstance(bucket, str) and isinstance(scope, str) else None
