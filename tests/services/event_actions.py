"""What a client can do to a gateway, action by action, to see which events it sends.

Keys are chosen so that every way of decoding one wrongly shows: a space, `+`, `%`, and names that look percent-encoded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import obstore
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from obstore.store import S3Store

BUCKET = "bucket"

HELLO = b"hello"

# Smallest part of a multipart upload that is not the last (S3 user guide, "Multipart upload limits").
PART_BYTES = 5 * 2**20


@dataclass(frozen=True, slots=True)
class Client:
    """The two clients that our users write with.

    Attributes:
        boto: Client of aiobotocore, which is untyped.
        store: The same bucket through obstore.
    """

    boto: Any
    store: S3Store


Action = Callable[[Client], Awaitable[None]]


def put(key: str, body: bytes = HELLO) -> Action:
    """Put through aiobotocore."""

    async def action(client: Client) -> None:
        await client.boto.put_object(Bucket=BUCKET, Key=key, Body=body)

    return action


def put_by_obstore(key: str) -> Action:
    """Put through obstore, which percent-encodes other characters than aiobotocore does."""

    async def action(client: Client) -> None:
        await obstore.put_async(client.store, key, HELLO)

    return action


async def upload_in_parts(client: Client) -> None:
    """Upload two parts, and abort another upload."""
    place = {"Bucket": BUCKET, "Key": "parts/a b+%"}
    upload = {**place, "UploadId": (await client.boto.create_multipart_upload(**place))["UploadId"]}
    parts = []
    for number, body in ((1, bytes(PART_BYTES)), (2, HELLO)):
        answer = await client.boto.upload_part(**upload, PartNumber=number, Body=body)
        parts.append({"PartNumber": number, "ETag": answer["ETag"]})
    await client.boto.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    aborted = await client.boto.create_multipart_upload(**place)
    await client.boto.abort_multipart_upload(**place, UploadId=aborted["UploadId"])


async def upload_in_parts_by_obstore(client: Client) -> None:
    """Upload three parts."""
    body = bytes(2 * PART_BYTES + 1)
    await obstore.put_async(client.store, "parts/by obstore", body, use_multipart=True, chunk_size=PART_BYTES)


async def copy(client: Client) -> None:
    """Copy one object."""
    await client.boto.copy_object(Bucket=BUCKET, Key="copies/a+b", CopySource={"Bucket": BUCKET, "Key": "a b"})


async def copy_onto_itself(client: Client) -> None:
    """Change metadata the way S3 offers it."""
    place = {"Bucket": BUCKET, "Key": "a b"}
    await client.boto.copy_object(**place, CopySource=place, MetadataDirective="REPLACE", Metadata={"a": "b"})


async def rename_by_obstore(client: Client) -> None:
    """Rename, which is a copy and a bulk delete of one key."""
    await obstore.rename_async(client.store, "copies/a+b", "copies/a%2Bb")


async def post_a_form(client: Client) -> None:
    """Upload as a browser does."""
    form = await client.boto.generate_presigned_post(BUCKET, "form/a b")
    data = aiohttp.FormData()
    for name, value in form["fields"].items():
        data.add_field(name, value)
    data.add_field("file", HELLO, filename="hello")
    async with aiohttp.ClientSession(raise_for_status=True) as session:
        await session.post(form["url"], data=data)


async def tag(client: Client) -> None:
    """Tag one object."""
    tags = {"TagSet": [{"Key": "a", "Value": "b"}]}
    await client.boto.put_object_tagging(Bucket=BUCKET, Key="a b", Tagging=tags)


async def untag(client: Client) -> None:
    """Take the tags away again."""
    await client.boto.delete_object_tagging(Bucket=BUCKET, Key="a b")


async def be_refused(client: Client) -> None:
    """Put what may not be put, as a condition does not hold or the bucket is not there; then put what may."""
    with suppress(ClientError):
        await client.boto.put_object(Bucket=BUCKET, Key="a b", Body=b"other", IfNoneMatch="*")
    with suppress(ClientError):
        await client.boto.put_object(Bucket="no-such-bucket", Key="a b", Body=b"other")
    await client.boto.put_object(Bucket=BUCKET, Key="not refused", Body=HELLO)


def delete(key: str) -> Action:
    """Delete one key."""

    async def action(client: Client) -> None:
        await client.boto.delete_object(Bucket=BUCKET, Key=key)

    return action


async def delete_in_bulk(client: Client) -> None:
    """Delete several keys in one request, one of which was never there."""
    keys = ("a+b", "100%", "100%25", "ü/日本", "never there/a b+%")
    await client.boto.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in keys]})


async def delete_in_bulk_by_obstore(client: Client) -> None:
    """The same through obstore."""
    await obstore.delete_async(client.store, ["by obstore/a b", "never there either"])


# In an order that makes sense: what is copied, tagged and deleted was put before. With the number of events of each,
# which are awaited before the next action: the gateway may fill an event with the key of a request that came later.
ACTIONS: dict[str, tuple[Action, int]] = {
    "put": (put("a b"), 1),
    "put plus": (put("a+b"), 1),
    "put percent": (put("100%"), 1),
    "put percent 25": (put("100%25"), 1),
    "put percent 20": (put("a%20b"), 1),
    "put unicode": (put("ü/日本"), 1),
    "put punctuation": (put("#?&<>\"'\\~!*()=@:,;$[]{}|^`"), 1),
    "put doubled slash": (put("doubled//slash"), 1),
    "put leading slash": (put("/leading/slash"), 1),
    "put empty": (put("empty", b""), 1),
    "put over": (put("empty", b"no more"), 1),
    "put directory": (put("directory/", b""), 1),
    "obstore put": (put_by_obstore("by obstore/a b"), 1),
    "obstore put plus": (put_by_obstore("by obstore/a+b"), 1),
    "obstore put percent": (put_by_obstore("by obstore/100%"), 1),
    "obstore put percent 20": (put_by_obstore("by obstore/a%20b"), 1),
    "multipart": (upload_in_parts, 1),
    "obstore multipart": (upload_in_parts_by_obstore, 1),
    "copy": (copy, 1),
    "copy onto itself": (copy_onto_itself, 1),
    "obstore rename": (rename_by_obstore, 2),
    "form": (post_a_form, 1),
    "tag": (tag, 1),
    "untag": (untag, 1),
    "refused": (be_refused, 1),
    "delete": (delete("a b"), 1),
    "delete missing": (delete("never there"), 1),
    "delete directory": (delete("directory/"), 1),
    "bulk delete": (delete_in_bulk, 5),
    "obstore bulk delete": (delete_in_bulk_by_obstore, 2),
}
