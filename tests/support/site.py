"""A site: its configuration, its manifests and its broker, and the daemon that runs there."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp

from blobmap import ManifestStore
from blobmap.storage import StorageOptions, open_storage
from consumer.address import parse_address
from consumer.broker import connect
from consumer.declare import declare
from consumer.topology import Names, topology
from tests.support.amqp import Bench, bench
from tests.support.consumer_process import ConsumerProcess, consumer
from tests.support.manifests import manifest
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

OBJECTS = "blobmap.objects"
EVENTS = "blobmap.events"
DEAD = "blobmap.dead"
ALERTS = "blobmap.alerts"
JOURNAL = "blobmap.journal"


@dataclass
class Site:
    """One bucket `b`, whose manifests are files.

    Attributes:
        directory: where everything is.
        url: the broker, for the daemon and for the test.
        amqp: further lines of `[amqp]`.
        source: further lines of `[source]`.
        more: further sections.
        head: lines before the first section.
        daemon_url: the broker for the daemon, where it has another way.
    """

    directory: Path
    url: str
    amqp: str = ""
    source: str = ""
    more: str = ""
    head: str = ""
    daemon_url: str | None = None

    def write_manifest(self, scope: str) -> None:
        """Puts the small manifest of the tests at a scope."""
        store = ManifestStore(open_storage(str(self.directory / "manifests"), StorageOptions(), create=True))
        store.write(manifest(scope), etag=None)

    def write_config(self) -> Path:
        """Writes the configuration as it is now."""
        (self.directory / "manifests").mkdir(exist_ok=True)
        config = self.directory / "consumer.toml"
        config.write_text(
            f'{self.head}\n[amqp]\nurl = "{self.daemon_url or self.url}"\n{self.amqp}\n'
            f'[source]\ndialect = "versitygw"\n{self.source}\n'
            f'[[bucket]]\nname = "b"\nmanifests = "{self.directory / "manifests"}"\n{self.more}'
        )
        return config

    def run(self, *words: str, name: str = "process") -> AbstractAsyncContextManager[ConsumerProcess]:
        """Runs the daemon as long as the context lasts."""
        return consumer(self.directory / name, "run", "--config", str(self.write_config()), *words)

    async def declare(self) -> None:
        """Declares everything, as `setup` does."""
        async with connect(parse_address(self.url)) as connection:
            await declare(connection, topology(Names()))

    async def publish(self, *bodies: bytes) -> None:
        """Publishes as a gateway does, but confirmed, to a topology that is there."""
        await self.declare()
        async with bench(self.url) as at:
            await asyncio.gather(*(at.publish([body], exchange="s3.events") for body in bodies))


def vhost(url: str) -> str:
    """The path of a URL."""
    return url.rpartition("/")[2]


async def records(at: Bench, queue: str = OBJECTS) -> list[dict[str, Any]]:
    """Takes the records that are in a queue now."""
    return [record for got in await at.drain(queue) for record in json.loads(got.body)["records"]]


async def collected(at: Bench, count: int, queue: str = OBJECTS) -> list[dict[str, Any]]:
    """Takes records out of a queue until so many distinct ones have come; repeats are among them."""
    found: list[dict[str, Any]] = []

    async def enough() -> bool:
        found.extend(await records(at, queue))
        return len({record["id"] for record in found}) >= count

    await eventually(enough, what=f"{count} records in {queue}")
    return found


async def readiness(process: ConsumerProcess) -> dict[str, Any]:
    """What `/readyz` of a daemon says, which listens on a port that it has logged."""
    port = (await process.until_logged("listening"))["port"]
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/readyz") as answer:
        body: dict[str, Any] = await answer.json()
        return body | {"status": answer.status}
