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

import aiormq
from yarl import URL

from blobmap.errors import UsageError
from consumer.amqp_faults import connecting
from consumer.declare import declare
from consumer.intake import BrokerSource
from consumer.outlet import BrokerSink

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from consumer.address import Address
    from consumer.topology import Topology

_CONNECT_S = 10.0
_CLOSE_S = 5.0
_HEARTBEAT_S = 10


@dataclass(frozen=True, slots=True)
class Session:
    """What a session gives."""

    source: BrokerSource
    sink: BrokerSink


@asynccontextmanager
async def open_session(address: Address, topology: Topology, *, queue: str, prefetch: int) -> AsyncIterator[Session]:
    """Connects, declares and consumes, as long as the context lasts.

    Args:
        address: where the broker is.
        topology: what has to exist.
        queue: what is consumed.
        prefetch: deliveries that may be unacknowledged.

    Yields:
        Source and sink.

    Raises:
        UnavailableError: the broker cannot be reached, or was lost meanwhile.
        RefusedError: the broker does not serve us.
        UsageError: what exists there differs from what has to.
    """
    async with connect(address) as outgoing, connect(address) as incoming:
        await declare(outgoing, topology)
        sink = await BrokerSink.open(outgoing, topology)
        source = await BrokerSource.open(incoming, queue, prefetch=prefetch)
        for connection in (outgoing, incoming):
            connection.closing.add_done_callback(lambda _: source.end("the connection to the broker was closed"))
        try:
            yield Session(source, sink)
        finally:
            await source.close()


@asynccontextmanager
async def connect(address: Address) -> AsyncIterator[aiormq.Connection]:
    """Holds one connection as long as the context lasts. Raises as `open_session`."""
    connection = aiormq.Connection(_url(address), context=_tls(address))
    connection.vhost = address.vhost  # as it is: aiormq's own reading of the path loses some characters
    with connecting(str(address), address.vhost):
        async with asyncio.timeout(_CONNECT_S):
            await connection.connect()
    try:
        yield connection
    finally:
        await _close(connection)


async def _close(connection: aiormq.Connection) -> None:
    """Says goodbye, but not for long: a broker under an alarm does not answer."""
    try:
        async with asyncio.timeout(_CLOSE_S):
            await connection.close()
    except TimeoutError:
        return


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
