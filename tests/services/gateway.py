"""A versitygw over a directory, private to a test run: own port, access keys and root; events to AMQP or HTTP."""

from __future__ import annotations

import http.client
import os
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import obstore
from obstore.store import S3Store

from tests.services.ports import PortLease, is_free, lease_port
from tests.services.process import ServiceError, ServiceProcess, wait_until

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

REGION = "us-east-1"
HEALTH_PATH = "/healthz"

START_S = 30.0
STOP_S = 30.0
START_TRIES = 5


@dataclass(frozen=True, slots=True)
class AmqpEvents:
    """Send every event to an exchange, which must exist before the gateway starts.

    Attributes:
        url: AMQP URL of the virtual host.
        exchange: Name of the exchange.
        routing_key: Routing key of every event; empty is sent as it is, whatever the gateway's help says.
    """

    url: str
    exchange: str
    routing_key: str = ""

    def flags(self) -> list[str]:
        """Flags of the gateway."""
        flags = ["--event-rabbitmq-url", self.url, "--event-rabbitmq-exchange", self.exchange]
        return [*flags, "--event-rabbitmq-routing-key", self.routing_key] if self.routing_key else flags


@dataclass(frozen=True, slots=True)
class WebhookEvents:
    """Post every event to a URL, where somebody must listen before the gateway starts.

    Attributes:
        url: HTTP URL.
    """

    url: str

    def flags(self) -> list[str]:
        """Flags of the gateway."""
        return ["--event-webhook-url", self.url]


class Gateway:
    """A gateway as a context manager: started on entry, killed on exit. Its objects are files below `root`.

    Args:
        binary: The program, see `installed_gateway`.
        directory: Empty or missing; root and log go there. It is not removed.
        events: Where events go, None for nowhere.

    Attributes:
        access_key: Access key of the administrator, which is also the principal in events.
        secret_key: Its secret.
        root: Directory whose directories are the buckets.
    """

    def __init__(self, binary: Path, directory: Path, *, events: AmqpEvents | WebhookEvents | None = None) -> None:
        self.access_key = f"AK{secrets.token_hex(8).upper()}"
        self.secret_key = secrets.token_hex(20)
        self.root = directory / "root"
        self._binary = binary
        self._directory = directory
        self._events = events
        self._port: PortLease | None = None
        self._process: ServiceProcess | None = None

    def __enter__(self) -> Self:
        self.root.mkdir(parents=True, exist_ok=True)
        try:
            self._start_on_a_free_port()
        except BaseException:
            self._discard()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._discard()

    @property
    def address(self) -> str:
        """`host:port`; the same after every restart."""
        if self._port is None:
            raise ServiceError("the gateway has no port outside its context")
        return f"127.0.0.1:{self._port.number}"

    @property
    def endpoint(self) -> str:
        """Endpoint URL for S3 clients, path style."""
        return f"http://{self.address}"

    @property
    def pid(self) -> int:
        """Process id."""
        return self._running().pid

    @property
    def log(self) -> Path:
        """The output of all runs of this gateway."""
        return self._directory / "versitygw.out"

    def start(self) -> None:
        """Start on the same port and root, and wait until it answers.

        Raises:
            ServiceError: It runs already, ended while starting (no exchange host, say) or did not answer in time.
        """
        if self._process is not None:
            raise ServiceError("the gateway is running already")
        process = ServiceProcess(self._command(), environment=self._process_environment(), log=self.log)
        self._process = process
        try:
            wait_until(self._answers, process, what="versitygw", timeout_s=START_S)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Shut the gateway down in order."""
        process, self._process = self._running(), None
        process.stop(STOP_S)

    def restart(self) -> None:
        """Shut the gateway down in order and start it again."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """End the gateway at once (SIGKILL)."""
        process, self._process = self._running(), None
        process.kill()

    def create_bucket(self, name: str) -> None:
        """Create a bucket through S3.

        Raises:
            ServiceError: The gateway refused.
        """
        store = self.store(name)
        signed = urlsplit(obstore.sign(store, "PUT", "", timedelta(minutes=1)))
        connection = http.client.HTTPConnection(self.address, timeout=START_S)
        try:
            connection.request("PUT", f"{signed.path}?{signed.query}")
            answer = connection.getresponse()
            body = answer.read().decode(errors="replace")
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise ServiceError(f"bucket {name!r} was not created: {answer.status} {body}")

    def store(self, bucket: str, prefix: str | None = None) -> S3Store:
        """An obstore store of a bucket, with the administrator's keys."""
        return S3Store(
            bucket,
            prefix=prefix,
            endpoint=self.endpoint,
            region=REGION,
            access_key_id=self.access_key,
            secret_access_key=self.secret_key,
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )

    def environment(self) -> dict[str, str]:
        """Variables with which a program started by a test finds and may use this gateway."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
        }

    def _command(self) -> list[str]:
        flags = ["--port", self.address, "--region", REGION, "--health", HEALTH_PATH, "--quiet"]
        flags += self._events.flags() if self._events else []
        backend = ["posix"]
        if not keeps_attributes(self.root):
            sidecar = self._directory / "sidecar"
            sidecar.mkdir(exist_ok=True)
            backend += ["--sidecar", str(sidecar)]
        return [str(self._binary), *flags, *backend, str(self.root)]

    def _process_environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._directory),
            # Not as flags, which every user of the machine can read.
            "ROOT_ACCESS_KEY_ID": self.access_key,
            "ROOT_SECRET_ACCESS_KEY": self.secret_key,
        }

    def _running(self) -> ServiceProcess:
        if self._process is None:
            raise ServiceError("the gateway is not running")
        return self._process

    def _start_on_a_free_port(self) -> None:
        for attempt in range(1, START_TRIES + 1):
            self._port = lease_port()
            try:
                self.start()
            except ServiceError:
                if attempt == START_TRIES or is_free(self._port.number):
                    raise
                self._port.release()
            else:
                return

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(self.address, timeout=1.0)
        try:
            connection.request("GET", HEALTH_PATH)
            return connection.getresponse().status == http.client.OK
        except OSError:
            return False
        finally:
            connection.close()

    def _discard(self) -> None:
        if self._process is not None:
            self.kill()
        if self._port is not None:
            self._port.release()


def keeps_attributes(directory: Path) -> bool:
    """Whether files there can have user extended attributes, where the gateway keeps etags and content types."""
    try:
        os.setxattr(directory, "user.blobmap-test", b"1")
        os.removexattr(directory, "user.blobmap-test")
    except OSError:
        return False
    return True
