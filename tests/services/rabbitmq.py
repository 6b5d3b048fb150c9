"""A RabbitMQ of the distribution's package, private to a test run: own node, ports, data, cookie and epmd.

The server script is called directly and not through the package's wrapper, which insists on the user rabbitmq or root
and on the data directory of the system's broker. Variables: https://www.rabbitmq.com/docs/configure (as of 3.10).
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from tests.services.certificates import make_certificates
from tests.services.ports import PortLease, is_free, lease_port
from tests.services.process import ServiceError, ServiceMissingError, ServiceProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

# Where Debian, and the packages of the RabbitMQ team, put the scripts.
SCRIPTS_PATTERN = "rabbitmq_server-*/sbin"
SCRIPTS_ROOT = Path("/usr/lib/rabbitmq/lib")

# First bytes of an AMQP 0-9-1 connection (specification, section 4.2.2); the server answers with Connection.Start.
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"

# Asks epmd for the nodes it knows; the reply begins with its port (Erlang distribution protocol, NAMES_REQ).
NAMES_REQUEST = b"\x00\x01n"

START_S = 60.0
STOP_S = 60.0
CTL_S = 60.0
REPLY_S = 1.0

# Another program may take a port between our look at it and the broker's bind.
START_TRIES = 5

# One scheduler thread each: a test broker is one of several services on few cores.
BROKER_FLAGS = "+S 1:1 -kernel inet_dist_use_interface {127,0,0,1}"
CTL_FLAGS = "+S 1:1"


class RabbitMQ:
    """A broker in a directory, as a context manager: started on entry, gone without a trace on exit.

    Args:
        directory: Empty or missing; data, log and cookie go there. It is not removed.
        plugins: Plugins to enable.
        tls: Whether it listens with TLS too, with a certificate of a private authority.

    Attributes:
        node: Name of the Erlang node.
    """

    def __init__(self, directory: Path, *, plugins: tuple[str, ...] = (), tls: bool = False) -> None:
        self.directory = directory
        self.node = f"blobmap-{secrets.token_hex(6)}@localhost"
        self._plugins = plugins
        self._tls = tls
        self._scripts = installed_scripts()
        self._ports: dict[str, PortLease] = {}
        self._epmd: ServiceProcess | None = None
        self._broker: ServiceProcess | None = None

    def __enter__(self) -> Self:
        self._write_directory()
        try:
            self._start_on_free_ports()
        except BaseException:
            self._discard()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._discard()

    @property
    def url(self) -> str:
        """AMQP URL of the virtual host `/`."""
        return self.url_of("/")

    @property
    def port(self) -> int:
        """AMQP port; the same after every restart."""
        return self._ports["amqp"].number

    @property
    def tls_port(self) -> int:
        """AMQPS port; only with `tls`."""
        return self._ports["tls"].number

    @property
    def authority(self) -> Path:
        """Certificate of the authority that signed the broker's; only with `tls`."""
        return self.directory / "ca.pem"

    @property
    def epmd_port(self) -> int:
        """Port of this broker's own port mapper daemon."""
        return self._ports["epmd"].number

    @property
    def pid(self) -> int:
        """Process id of the broker."""
        return self._running().pid

    @property
    def log(self) -> Path:
        """The output of all runs of this broker."""
        return self.directory / "rabbitmq.out"

    def url_of(self, vhost: str) -> str:
        """AMQP URL of a virtual host, with the broker's administrator."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/{quote(vhost, safe='')}"

    def start(self) -> None:
        """Start the broker again on the same ports and data, and wait until it answers.

        Raises:
            ServiceError: It runs already, ended while starting or did not answer in time.
        """
        if self._broker is not None:
            raise ServiceError(f"{self.node} is running already")
        broker = ServiceProcess([str(self._scripts / "rabbitmq-server")], environment=self.environment(), log=self.log)
        self._broker = broker
        try:
            name = self.node.encode()
            wait_until(
                lambda: self._replies("amqp", PROTOCOL_HEADER, name),
                broker,
                what=f"broker {self.node}",
                timeout_s=START_S,
            )
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Shut the broker down in order.

        Raises:
            ServiceError: It does not run, or did not end in time.
        """
        broker, self._broker = self._running(), None
        broker.stop(STOP_S)

    def restart(self) -> None:
        """Shut the broker down in order and start it again."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """End the broker at once (SIGKILL), as a power cut would."""
        broker, self._broker = self._running(), None
        broker.kill()

    def pause(self) -> None:
        """Stop the clock of the broker (SIGSTOP): connections stay open and nothing answers."""
        self._running().send(signal.SIGSTOP)

    def resume(self) -> None:
        """Go on after `pause`."""
        self._running().send(signal.SIGCONT)

    def ctl(self, *arguments: str) -> str:
        """What `rabbitmqctl` prints.

        Args:
            *arguments: Command and its arguments.

        Raises:
            ServiceError: The command failed; the message has its output.
        """
        done = subprocess.run(
            [str(self._scripts / "rabbitmqctl"), "--node", self.node, "--quiet", *arguments],
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CTL_S,
            check=False,
        )
        if done.returncode != 0:
            raise ServiceError(f"rabbitmqctl {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def add_vhosts(self, names: Sequence[str]) -> None:
        """Create virtual hosts that `guest` may use; one call for many, as each call starts an Erlang machine."""
        everything = {"user": "guest", "configure": ".*", "write": ".*", "read": ".*"}
        definitions = {
            "vhosts": [{"name": name} for name in names],
            "permissions": [{"vhost": name, **everything} for name in names],
        }
        file = self.directory / "vhosts.json"
        file.write_text(json.dumps(definitions))
        try:
            self.ctl("import_definitions", str(file))
        except ServiceError:  # on a loaded machine it answers clients before it takes commands
            self.ctl("await_startup")
            self.ctl("import_definitions", str(file))

    def raise_alarm(self) -> None:
        """Make the broker believe that memory is short: it blocks every connection that publishes."""
        self.ctl("set_vm_memory_high_watermark", "0")

    def clear_alarm(self) -> None:
        """End what `raise_alarm` began."""
        self.ctl("set_vm_memory_high_watermark", "0.4")

    def environment(self) -> dict[str, str]:
        """The whole environment in which the scripts of the package find this node and no other."""
        here = self.directory
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "HOME": str(here),  # the cookie is there
            "ERL_CRASH_DUMP": str(here / "erl_crash.dump"),  # else in the current directory
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self.epmd_port),
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._ports["distribution"].number),
            # Without these two rabbitmqctl listens on one of ten fixed ports.
            "RABBITMQ_CTL_DIST_PORT_MIN": "0",
            "RABBITMQ_CTL_DIST_PORT_MAX": "0",
            "RABBITMQ_MNESIA_BASE": str(here / "data"),
            "RABBITMQ_LOG_BASE": str(here / "log"),
            "RABBITMQ_PID_FILE": str(here / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(here / "enabled_plugins"),
            "RABBITMQ_CONFIG_FILE": str(here / "rabbitmq.conf"),
            # Named so that those of the system's broker are not read.
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(here / "advanced.config"),
            "RABBITMQ_CONF_ENV_FILE": str(here / "rabbitmq-env.conf"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": BROKER_FLAGS,
            "RABBITMQ_CTL_ERL_ARGS": CTL_FLAGS,
            # Makes the script become the Erlang machine instead of its parent, so that our child is the broker itself.
            "RUNNING_UNDER_SYSTEMD": "true",
        }

    def _running(self) -> ServiceProcess:
        if self._broker is None:
            raise ServiceError(f"{self.node} is not running")
        return self._broker

    def _write_directory(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "enabled_plugins").write_text(f"[{','.join(self._plugins)}].\n")
        cookie = self.directory / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16))
        cookie.chmod(0o400)

    def _write_configuration(self) -> None:
        # The name comes back in the greeting of every connection: so we know our broker from another on the same port.
        lines = [f"cluster_name = {self.node}"]
        if self._tls:
            made = make_certificates(self.directory)
            lines += [
                f"listeners.ssl.1 = 127.0.0.1:{self.tls_port}",
                f"ssl_options.cacertfile = {made.authority}",
                f"ssl_options.certfile = {made.certificate}",
                f"ssl_options.keyfile = {made.key}",
            ]
        (self.directory / "rabbitmq.conf").write_text("\n".join(lines) + "\n")

    def _start_on_free_ports(self) -> None:
        names = ("amqp", "distribution", "epmd", *(("tls",) if self._tls else ()))
        for attempt in range(1, START_TRIES + 1):
            self._ports = {name: lease_port() for name in names}
            self._write_configuration()
            try:
                self._start_epmd()
                self.start()
            except ServiceError:
                self._end_processes()
                if attempt == START_TRIES or all(is_free(lease.number) for lease in self._ports.values()):
                    raise
                self._release_ports()
            else:
                return

    def _start_epmd(self) -> None:
        """Start the port mapper ourselves: one that Erlang starts leaves the process group and outlives the broker."""
        epmd = ServiceProcess(
            ["epmd", "-address", "127.0.0.1", "-port", str(self.epmd_port)],
            environment={"PATH": os.environ.get("PATH", os.defpath)},
            log=self.directory / "epmd.out",
        )
        self._epmd = epmd
        port = self.epmd_port.to_bytes(4, "big")
        wait_until(lambda: self._replies("epmd", NAMES_REQUEST, port), epmd, what="epmd", timeout_s=START_S)

    def _replies(self, port: str, question: bytes, answer: bytes) -> bool:
        """Whether what listens on a port gives the answer that tells ours from others."""
        try:
            with socket.create_connection(("127.0.0.1", self._ports[port].number), timeout=REPLY_S) as connection:
                connection.sendall(question)
                return answer in connection.recv(4096)
        except OSError:
            return False

    def _discard(self) -> None:
        self._end_processes()
        self._release_ports()

    def _end_processes(self) -> None:
        """Kill, as nobody will read the data again; an orderly stop takes seconds."""
        for process in (self._broker, self._epmd):
            if process is not None:
                process.kill()
        self._broker = self._epmd = None

    def _release_ports(self) -> None:
        for lease in self._ports.values():
            lease.release()


def installed_scripts() -> Path:
    """Directory of the server's own scripts, of the newest release where there are several.

    Raises:
        ServiceMissingError: RabbitMQ or Erlang is not installed.
    """
    found = sorted(SCRIPTS_ROOT.glob(SCRIPTS_PATTERN), key=_release)
    if not found or shutil.which("erl") is None or shutil.which("epmd") is None:
        raise ServiceMissingError(
            f"RabbitMQ is not installed: no {SCRIPTS_ROOT / SCRIPTS_PATTERN}, or no erl and epmd in PATH;"
            " install the package rabbitmq-server"
        )
    return found[-1]


def _release(scripts: Path) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", scripts.parent.name)]
