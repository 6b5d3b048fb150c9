"""The main job on real parts: stores written through a gateway in, object records in a mover's queue out."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aio_pika
import obstore
import pytest

from blobmap import ManifestStore, Trie
from tests.services.gateway import AmqpEvents, Gateway
from tests.support.climate import CHUNK_OBJECTS, VARIABLES, ZarrFormat, write_climate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aio_pika.abc import AbstractChannel

pytestmark = pytest.mark.services

SCRIPTS = Path(sys.executable).parent

DATA, MANIFESTS = "cordex", "waterpark-blobmap"
CURRENT, OLD, NEW = "nukleus/eur11.zarr", "old runs/era+100%.zarr", "nobody/knows-it.zarr"

AGAIN = f"{CURRENT}/tas/c/0/0/0"

WAIT_S = 60.0

CONFIGURATION = """
[amqp]
url = "{amqp_url}"
[source]
dialect = "versitygw"
[[bucket]]
name = "cordex"
data = "s3://cordex"
manifests = "s3://waterpark-blobmap/cordex"
[s3]
allow_http = true
[[mover]]
name = "tape-a"
buckets = ["cordex"]
"""


def run(*command: str, environment: dict[str, str]) -> str:
    """Run a console script to its end and return what it printed."""
    program, *arguments = command
    done = subprocess.run(
        [SCRIPTS / program, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass(frozen=True)
class Site:
    """A gateway whose events wait for the daemon, the daemon's configuration, and the queues behind it."""

    gateway: Gateway
    channel: AbstractChannel
    configuration: Path

    def blobmap(self, *arguments: str) -> str:
        """Run `blobmap` on the data of this site."""
        places = ("--data", f"s3://{DATA}", "--manifests", f"s3://{MANIFESTS}/{DATA}")
        command = ("blobmap", *places, "--endpoint", self.gateway.endpoint, "--allow-http", *arguments)
        return run(*command, environment=self.gateway.environment())

    async def messages(self, queue: str) -> list[dict[str, Any]]:
        """Take what waits in a queue."""
        found = []
        declared = await self.channel.declare_queue(queue, passive=True)
        while (message := await declared.get(fail=False, no_ack=True)) is not None:
            found.append(json.loads(message.body))
        return found

    async def records(self, count: int) -> list[dict[str, Any]]:
        """Wait for so many object records in the queue of the mover."""
        records: list[dict[str, Any]] = []
        queue = await self.channel.declare_queue("blobmap.objects.tape-a", passive=True)
        async with asyncio.timeout(WAIT_S), queue.iterator() as messages:
            async for message in messages:
                await message.ack()
                document = json.loads(message.body)
                assert message.type == document["schema"] == "blobmap.objects.v1"
                records += document["records"]
                if len(records) >= count:
                    break
        return records

    @asynccontextmanager
    async def daemon(self) -> AsyncIterator[None]:
        """`blobmap-consumer run`, stopped in order at the end."""
        log = self.configuration.with_suffix(".log")
        environment = {**os.environ, **self.gateway.environment(), "BLOBMAP_S3__ENDPOINT": self.gateway.endpoint}
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                SCRIPTS / "blobmap-consumer", "run", "--config", self.configuration, env=environment, stderr=output
            )
        try:
            yield
            process.terminate()
            async with asyncio.timeout(WAIT_S):
                assert await process.wait() == 0
        except BaseException as error:
            error.add_note(log.read_text())
            raise
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


@pytest.fixture
async def site(gateway_binary: Path, amqp_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    configuration = tmp_path / "consumer.toml"
    configuration.write_text(CONFIGURATION.format(amqp_url=amqp_url))
    # The gateway publishes to an exchange that is there when it starts, or to nowhere.
    run("blobmap-consumer", "setup", "--config", str(configuration), environment={})
    async with await aio_pika.connect(amqp_url) as connection:
        channel = await connection.channel()
        with Gateway(gateway_binary, tmp_path / "gateway", events=AmqpEvents(amqp_url, "s3.events")) as gateway:
            for bucket in (DATA, MANIFESTS):
                gateway.create_bucket(bucket)
            yield Site(gateway, channel, configuration)


def chunk_objects(gateway: Gateway, scope: str) -> dict[str, str]:
    """Key and etag of every chunk of a variable below a scope, as the gateway lists them."""
    entries = obstore.list(gateway.store(DATA), f"{scope}/").collect()
    keys = {entry["path"]: str(entry["e_tag"]).strip('"') for entry in entries}
    documents = {"zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"}
    return {
        key: etag
        for key, etag in keys.items()
        if key.removeprefix(f"{scope}/").split("/")[0] in VARIABLES and key.rpartition("/")[2] not in documents
    }


STORES: tuple[tuple[str, ZarrFormat], ...] = ((CURRENT, 3), (OLD, 2), (NEW, 3))


async def test_every_chunk_of_a_cut_store_is_told_and_a_new_store_is_flagged_once(site: Site) -> None:
    for scope, zarr_format in STORES:
        write_climate(site.gateway.store(DATA, prefix=scope), zarr_format=zarr_format)
    for scope in (CURRENT, OLD):
        site.blobmap("partition", scope, "--t-hot", "1KB", "--t-max", "10KB")
    chunks = chunk_objects(site.gateway, CURRENT) | chunk_objects(site.gateway, OLD)
    assert len(chunks) == 2 * CHUNK_OBJECTS

    async with site.daemon():
        records = await site.records(len(chunks))
        # Also the last word of the gateway: when it is answered, everything before it was handled.
        obstore.put(site.gateway.store(DATA), AGAIN, b"other bytes")
        (again,) = await site.records(1)

    assert sorted(record["key"] for record in records) == sorted(chunks)
    assert {record["key"]: record["etag"] for record in records} == chunks
    assert {(record["bucket"], record["event"], record["source"]) for record in records} == {(DATA, "created", "event")}
    assert_claimed(records, site.gateway)
    assert len({(record["scope"], record["blob_id"]) for record in records}) > 2 * len(VARIABLES)

    assert again["key"] == AGAIN
    assert again["etag"] == chunk_objects(site.gateway, CURRENT)[AGAIN]
    assert again["size"] == len(b"other bytes")
    assert again["id"] not in {record["id"] for record in records}
    assert_claimed([again], site.gateway)

    (flag,) = await site.messages("blobmap.flags")
    assert (flag["bucket"], flag["scope"], flag["prefix"], flag["reason"]) == (DATA, NEW, NEW, "new-store")
    assert await site.messages("blobmap.objects.tape-a") == []
    assert await site.messages("blobmap.dead") == []
    assert await site.messages("blobmap.events") == []


def assert_claimed(records: list[dict[str, Any]], gateway: Gateway) -> None:
    """Records name the claim that the written manifests make."""
    trie = Trie()
    trie.add_all(ManifestStore(gateway.store(MANIFESTS, prefix=DATA)).load_all())
    for record in records:
        claim = trie.lookup(record["key"])
        assert claim.kind == "blob"
        assert (record["scope"], record["blob_id"], record["epoch"]) == (claim.scope, claim.blob_id, claim.epoch)
