"""The site of a soak: gateway, broker, two daemons, two workers, and the places of their files."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blobmap import ManifestStore
from blobmap.storage import StorageOptions, open_storage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from blobmap.manifest import Manifest
    from tests.services.gateway import Gateway
    from tests.services.rabbitmq import RabbitMQ

DATA, MANIFESTS, MOVER = "cordex", "waterpark-blobmap", "tape-a"

_SCRIPTS = Path(sys.executable).parent
_END_S = 40.0

# Everything that waits for time waits little, and what is small is large enough for tape.
_CONFIGURATION = """
[amqp]
url = "{amqp_url}"
[source]
dialect = "versitygw"
prefetch = 200
[[bucket]]
name = "cordex"
data = "s3://cordex"
manifests = "s3://waterpark-blobmap/cordex"
[s3]
endpoint = "{endpoint}"
access_key_id = "{access_key}"
secret_access_key = "{secret_key}"
region = "us-east-1"
allow_http = true
[sink]
batch_objects = 50
[[mover]]
name = "tape-a"
buckets = ["cordex"]
[policy]
t_max = "4KiB"
t_hot = "1KiB"
t_aux = "1KiB"
[manifests]
refresh_s = 1
[flags]
settle_s = 2
settle_max_s = 20
reflag_s = 1
"""


@dataclass
class Process:
    """One of our processes, which comes back when it was killed.

    Attributes:
        name: of its log.
        command: words after the program's name.
        log: what it has logged, in all its lives.
        starts: how often it was started.
    """

    name: str
    command: str
    log: Path
    config: Path
    starts: int = 0
    _process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Starts it."""
        with self.log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                _SCRIPTS / "blobmap-consumer",
                self.command,
                "--config",
                self.config,
                stdout=output,
                stderr=output,
            )
        self.starts += 1

    async def end(self, number: signal.Signals) -> int:
        """Sends a signal and waits for the end; the exit code."""
        assert self._process is not None
        assert self._process.returncode is None, f"{self.name} ended by itself: {self.tail()}"
        self._process.send_signal(number)
        async with asyncio.timeout(_END_S):
            return await self._process.wait()

    async def close(self) -> None:
        """Ends it in order, where it has not ended."""
        if self._process is not None and self._process.returncode is None:
            await self.end(signal.SIGTERM)

    def logged(self, begin: int = 0) -> list[dict[str, Any]]:
        """The lines that it logged from a position of its log on."""
        with self.log.open("rb") as file:
            file.seek(begin)
            lines = file.read().split(b"\n")[:-1]
        return [json.loads(line) for line in lines if line.startswith(b"{")]

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-3000:]


@dataclass
class SoakSite:
    """Everything that runs.

    Attributes:
        directory: where logs and configuration are.
        gateway: posts its events to the forwarder.
        broker: private.
        daemons: processes of `run`.
        workers: processes of `partition`.
    """

    directory: Path
    gateway: Gateway
    broker: RabbitMQ
    daemons: list[Process] = field(default_factory=list)
    workers: list[Process] = field(default_factory=list)

    @property
    def config(self) -> Path:
        """The configuration file."""
        return self.directory / "consumer.toml"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Declares everything and runs all processes as long as the context lasts."""
        self.config.write_text(
            _CONFIGURATION.format(
                amqp_url=self.broker.url,
                endpoint=self.gateway.endpoint,
                access_key=self.gateway.access_key,
                secret_key=self.gateway.secret_key,
            )
        )
        for bucket in (DATA, MANIFESTS):
            self.gateway.create_bucket(bucket)
        assert await self.cli("blobmap-consumer", "setup", "--config", str(self.config)) == 0
        self.daemons = [self._process(f"run-{number}", "run") for number in (1, 2)]
        self.workers = [self._process(f"partition-{number}", "partition") for number in (1, 2)]
        async with AsyncExitStack() as ending:
            for process in (*self.daemons, *self.workers):
                await process.start()
                ending.push_async_callback(process.close)
            yield

    async def blobmap(self, *words: str) -> int:
        """Runs `blobmap` on the data of this site; its exit code."""
        places = ("--data", f"s3://{DATA}", "--manifests", f"s3://{MANIFESTS}/{DATA}")
        return await self.cli("blobmap", *places, "--endpoint", self.gateway.endpoint, "--allow-http", *words)

    async def cli(self, program: str, *words: str) -> int:
        """Runs one of the console scripts to its end; its exit code. What it says is in `cli.log`."""
        with (self.directory / "cli.log").open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                _SCRIPTS / program,
                *words,
                stdout=output,
                stderr=output,
                env={**os.environ, **self.gateway.environment()},
            )
            return await process.wait()

    def manifests(self) -> list[Manifest]:
        """Every manifest in force, as it is stored."""
        options = StorageOptions(
            endpoint=self.gateway.endpoint,
            allow_http=True,
            access_key_id=self.gateway.access_key,
            secret_access_key=self.gateway.secret_key,
        )
        return list(ManifestStore(open_storage(f"s3://{MANIFESTS}/{DATA}", options)).load_all(strict=True))

    def _process(self, name: str, command: str) -> Process:
        return Process(name, command, self.directory / f"{name}.log", self.config)
