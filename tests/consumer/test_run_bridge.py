"""`blobmap-consumer run` with posted events and a broker, as it is shipped."""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import aiohttp
import obstore
import pytest

from blobmap import ManifestStore
from blobmap.storage import StorageOptions, open_storage
from tests.services.gateway import Gateway, WebhookEvents
from tests.services.relay import relay
from tests.support.accounting import assert_accounts_balance, spooled_keys
from tests.support.amqp import Bench, Got, bench
from tests.support.consumer_process import ConsumerProcess, consumer
from tests.support.manifests import manifest
from tests.support.notifications import created
from tests.support.posting import post, url_of
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from tests.services.rabbitmq import RabbitMQ

pytestmark = pytest.mark.services


@dataclass
class Site:
    """A configuration, its manifests and its broker."""

    directory: Path
    url: str
    source: str = ""
    runs: int = field(default=0)

    @property
    def spool(self) -> Path:
        return self.directory / "spool.sqlite"

    def run(self) -> AbstractAsyncContextManager[ConsumerProcess]:
        config = self.directory / "consumer.toml"
        config.write_text(
            f'[amqp]\nurl = "{self.url}"\ngive_up_s = 1\n[http]\nport = 0\n'
            f'[source]\nkind = "webhook"\ndialect = "versitygw"\nspool = "{self.spool}"\n{self.source}\n'
            f'[[bucket]]\nname = "data"\nmanifests = "{self.directory / "manifests"}"\n'
        )
        self.runs += 1
        return consumer(self.directory / f"process-{self.runs}", "run", "--config", str(config))


@pytest.fixture
def site(tmp_path: Path, amqp_url: str) -> Site:
    store = ManifestStore(open_storage(str(tmp_path / "manifests"), StorageOptions(), create=True))
    store.write(manifest("s.zarr"), etag=None)
    return Site(tmp_path, amqp_url)


async def told(at: Bench, count: int) -> set[str]:
    """Takes records until there are so many keys."""
    keys: set[str] = set()

    async def enough() -> bool:
        for got in await at.drain("blobmap.objects"):
            keys.update(record["key"] for record in json.loads(got.body)["records"])
        return len(keys) >= count

    await eventually(enough, what=f"{count} keys are told")
    return keys


async def test_what_a_gateway_posts_becomes_records(site: Site, gateway_binary: Path) -> None:
    """The gateway posts, the daemon answers from its spool, publishes, consumes what it published, and tells it."""
    async with site.run() as process, bench(site.url) as at:
        events = WebhookEvents(await url_of(process) + "/events")
        await process.until_logged("consuming")
        with Gateway(gateway_binary, site.directory / "gateway", events=events) as gateway:
            gateway.create_bucket("data")
            store = gateway.store("data")
            keys = {f"s.zarr/t/c/{number}/0" for number in range(40)}
            await asyncio.gather(*(obstore.put_async(store, key, key.encode()) for key in keys))
            await obstore.put_async(store, "new.zarr/t/c/0", b"x")
            assert await told(at, 40) == keys
            await obstore.delete_async(store, "s.zarr/t/c/0/0")

            async def removed() -> bool:
                found = [json.loads(got.body) for got in await at.drain("blobmap.objects")]
                return [record["event"] for message in found for record in message["records"]] == ["removed"]

            await eventually(removed, what="the removal is told")

            async def flagged() -> list[Got]:
                return await at.drain("blobmap.flags")

            (flag,) = await eventually(flagged, what="a flag")
            assert json.loads(flag.body)["scope"] == "new.zarr"
        assert await process.stop() == 0
        assert await at.ready("blobmap.events") == 0
        assert await at.ready("blobmap.dead") == 0
    assert "Traceback" not in process.err


async def test_nothing_that_was_answered_is_lost_with_the_process(site: Site, rabbitmq: RabbitMQ) -> None:
    """Killed in the middle of posts and without a broker, which comes only later, longer away than it may be else."""
    vhost = f"late-{secrets.token_hex(6)}"
    site.url = rabbitmq.url_of(vhost)
    answered: set[str] = set()
    for run in range(2):
        async with site.run() as process:
            url = await url_of(process)
            async with aiohttp.ClientSession(url) as gateway:

                async def one(key: str, gateway: aiohttp.ClientSession = gateway) -> None:
                    async with gateway.post("/events", data=created("data", key)) as answer:
                        assert (answer.status, answer.headers["Content-Length"]) == (200, "0")
                        answered.add(key)

                posts = [asyncio.ensure_future(one(f"s.zarr/t/c/{run}/{number}")) for number in range(500)]
                await asyncio.wait(posts, return_when=asyncio.FIRST_COMPLETED)
                process.send(signal.SIGKILL)
                results = await asyncio.gather(*posts, return_exceptions=True)
            assert any(isinstance(result, aiohttp.ClientError) for result in results), "it was not in the middle"
            await process.end()
    assert answered
    posted = {f"s.zarr/t/c/{run}/{number}" for run in range(2) for number in range(500)}
    assert answered <= spooled_keys(site.spool) <= posted
    async with site.run() as process:
        await process.until_logged("forwarding")
        await asyncio.to_thread(rabbitmq.add_vhosts, [vhost])
        await process.until_logged("consuming")
        async with bench(site.url) as at:
            keys = await told(at, len(answered))
            assert await process.stop() == 0
            await assert_accounts_balance(
                at, answered, told_before=keys, spool=site.spool, unanswered=posted - answered
            )


async def test_what_is_cut_and_killed_is_told_queued_or_spooled(site: Site, rabbitmq: RabbitMQ) -> None:
    """The last events are answered while nothing gets through to the broker, and then the process is killed."""
    direct = site.url
    waves = [[f"s.zarr/t/c/{wave}/{number}" for number in range(200)] for wave in range(3)]
    async with relay(rabbitmq.port) as between:
        site.url = direct.replace(f":{rabbitmq.port}/", f":{between.port}/")
        async with site.run() as process:
            url = await url_of(process)
            await process.until_logged("consuming")
            for wave, disturb in zip(waves, (between.cut, between.pause, between.pause), strict=True):
                posting = asyncio.ensure_future(post(url, *(created("data", key) for key in wave)))
                await asyncio.sleep(0)
                disturb()
                assert await posting == {200}
            process.send(signal.SIGKILL)
            await process.end()
    assert spooled_keys(site.spool) >= set(waves[2])
    async with bench(direct) as at:
        await assert_accounts_balance(at, (key for wave in waves for key in wave), spool=site.spool)


async def test_a_full_spool_is_answered_503_and_shown(site: Site, rabbitmq: RabbitMQ) -> None:
    vhost = f"late-{secrets.token_hex(6)}"
    site.url, site.source = rabbitmq.url_of(vhost), 'spool_max = "2KB"'
    bodies = [created("data", f"s.zarr/t/c/{number}") for number in range(9)]
    async with site.run() as process:
        url = await url_of(process)
        statuses = [await post(url, body) for body in bodies]
        kept = statuses.count({200})
        assert 0 < kept < 9
        assert statuses == [{200}] * kept + [{503}] * (9 - kept)

        async def says_both() -> bool:
            async with aiohttp.ClientSession(url) as client, client.get("/readyz") as answer:
                reasons = (await answer.json())["reasons"]
            full = any("source.spool" in reason and "is full" in reason for reason in reasons)
            return full and any(reason.startswith("s3.events: ") for reason in reasons)

        await eventually(says_both, what="/readyz tells of the spool and of the broker")
        await asyncio.to_thread(rabbitmq.add_vhosts, [vhost])
        await process.until_logged("consuming")
        async with bench(site.url) as at:
            assert len(await told(at, kept)) == kept
            assert await post(url, created("data", "s.zarr/t/c/9")) == {200}
            assert await told(at, 1) == {"s.zarr/t/c/9"}
        assert await process.stop() == 0


async def test_while_the_broker_is_away_it_can_be_stopped(site: Site) -> None:
    site.url = "amqp://ops:secret-word@127.0.0.1:1/"
    async with site.run() as process:
        assert await post(await url_of(process), created("data", "s.zarr/t/c/0")) == {200}
        await process.until_logged("waiting")
        assert await process.stop() == 0
    assert "secret-word" not in process.err
