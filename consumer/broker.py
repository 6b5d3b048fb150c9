"""A session at a broker: two connections, what has to exist there, a source and a sink.

Two, because a broker under an alarm stops reading from a connection that publishes, and acknowledgements must not wait
behind what it does not read. They live and end together: a session is lost as a whole, and the next one begins anew.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from yarl import URL

from blobmap.errors import UnavailableError, UsageError
from consumer.amqp_faults import connecting
from consumer.declare import declare
from consumer.intake import BrokerSource
from consumer.listening import listen
from consumer.outlet import BrokerSink
from consumer.stream import Connection
from consumer.watchdog import watching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from consumer.address import Address
    from consumer.ports import Status
    from consumer.topology import Topology

# With the longest delay between two tries well below the 15 s in which a broker that is back must be noticed.
_CONNECT_S = 5.0
_DECLARE_S = 5.0

# The broker takes us for dead after twice this; we notice a dead broker sooner, by asking it.
_HEARTBEAT_S = 5

# A broker under an alarm does not answer, and one that is gone never will.
CLOSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Session:
    """What a session gives."""

    source: BrokerSource
    sink: BrokerSink


@asynccontextmanager
async def open_session(
    address: Address,
    topology: Topology,
    *,
    queue: str,
    prefetch: int,
    status: Status,
    close_s: float = CLOSE_S,
    on_announcement: Callable[[str, str], None] | None = None,
) -> AsyncIterator[Session]:
    """Connects, declares and consumes, as long as the context lasts.

    Args:
        address: where the broker is.
        topology: what has to exist.
        queue: what is consumed.
        prefetch: deliveries that may be unacknowledged.
        status: where it is said that the broker is blocked.
        close_s: seconds that closing the source, and each connection, may take.
        on_announcement: called with bucket and scope of every manifest that somebody says has changed, from before
            the session is there until it ends.

    Yields:
        Source and sink.

    Raises:
        UnavailableError: the broker cannot be reached, or was lost meanwhile.
        RefusedError: the broker does not serve us.
        UsageError: what exists there differs from what has to.
    """
    async with connect(address, close_s=close_s) as outgoing, connect(address, close_s=close_s) as incoming:
        async with _in_time(address, _DECLARE_S):  # a broker that just came back may leave a question without an answer
            await declare(outgoing, topology)
            sink = await BrokerSink.open(outgoing, topology)
            source = await BrokerSource.open(incoming, queue, prefetch=prefetch)
            if on_announcement is not None:
                await listen(incoming, topology, on_announcement, source.end)
        for connection in (outgoing, incoming):
            connection.closing.add_done_callback(lambda _: source.end("the connection to the broker was closed"))
        async with watching(source, sink, status):
            try:
                yield Session(source, sink)
            finally:
                await source.close(timeout_s=close_s)


@asynccontextmanager
async def connect(address: Address, *, close_s: float = CLOSE_S) -> AsyncIterator[Connection]:
    """Holds one connection as long as the context lasts. Raises as `open_session`."""
    connection = Connection(_url(address), address.vhost, _tls(address))
    try:
        with connecting(str(address), address.vhost):
            async with asyncio.timeout(_CONNECT_S):
                await connection.connect()
        yield connection
    finally:
        await _close(connection, close_s)


@asynccontextmanager
async def _in_time(address: Address, timeout_s: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError as error:
        raise UnavailableError(f"{address}: no answer for {timeout_s:g} s") from error


async def _close(connection: Connection, close_s: float) -> None:
    """Says goodbye, but not for long, and then hangs up: what waits for the connection ends with it."""
    if not connection.is_opened:
        connection.cut()
        return
    try:
        async with asyncio.timeout(close_s):
            await connection.close()
    except TimeoutError:
        return
    finally:
        connection.cut()


def _url(address: Address) -> URL:
    login = f"{quote(address.user, safe='')}:{quote(address.password, safe='')}"
    host = f"[{address.host}]" if ":" in address.host else address.host
    scheme = "amqps" if address.tls else "amqp"
    return URL(f"{scheme}://{login}@{host}:{address.port}/?heartbeat={_HEARTBEAT_S}", encoded=True)


def _tls(address: Address) -> ssl.SSLContext | None:
    if not address.tls:
        return None
    try:
        return ssl.create_default_context(cafile=None if address.tls_ca is None else str(address.tls_ca))
    except OSError as error:
        raise UsageError(f"amqp.tls_ca {address.tls_ca}: {error}") from error
