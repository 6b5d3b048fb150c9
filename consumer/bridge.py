"""Posted events on their way to a broker: kept in a file, and from there published as the gateway would have.

The file is what a gateway's post is answered for; it grows while the broker is away and drains when it is back.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog
from aiormq.exceptions import DeliveryError
from pamqp import commands

from blobmap.errors import UnavailableError
from consumer.amqp_faults import in_session
from consumer.broker import connect
from consumer.declare import declare
from consumer.event_file import EventFile
from consumer.retry import growing_delays
from consumer.until import set_within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    import aiormq
    from aiormq.abc import AbstractChannel

    from consumer.address import Address
    from consumer.ports import Delivery, Status
    from consumer.topology import Topology

_log = structlog.get_logger(__name__)

_PERSISTENT = 2

# Events that are published before the first of them is confirmed.
_BATCH = 500

# A broker that has not confirmed by then is given up, unless it said that it is blocked: then what was sent is still on
# its way, and would come out once more for each time that it is sent again.
_CONFIRM_S = 30.0

# For what is being published when we are told to stop; what is not confirmed then stays in the file.
_END_S = 3.0


class Bridge:
    """Forwards events.

    Args:
        spool: where they are.
        address: where the broker is.
        topology: what has to exist there, so that an exchange that is there leads somewhere.
        exchange: exchange of the gateway's events.
        status: where to say that they cannot be forwarded.
    """

    def __init__(
        self, spool: EventFile, address: Address, topology: Topology, *, exchange: str, status: Status
    ) -> None:
        self._spool = spool
        self._address = address
        self._topology = topology
        self._exchange = exchange
        self._status = status
        self._taken: Sequence[Delivery] = ()

    async def run(self) -> None:
        """Forwards until the spool is stopped, however long the broker is away.

        Raises:
            RefusedError: the broker does not serve us.
            UsageError: what exists there differs from what has to.
        """
        delays = growing_delays()
        while True:
            try:
                async with connect(self._address) as connection:
                    await declare(connection, self._topology)
                    with in_session("the broker"):
                        channel = await connection.channel(publisher_confirms=True)
                    while self._taken or (taken := await self._spool.take()):
                        self._taken = self._taken or taken
                        await self._forward(connection, channel)
                        self._trouble(None)
                        delays = growing_delays()
                    return
            except UnavailableError as error:
                self._trouble(str(error))
            if await set_within(self._spool.stopped, next(delays)):
                return

    async def _forward(self, connection: aiormq.Connection, channel: AbstractChannel) -> None:
        """Publishes what was taken, and lets go of it."""
        published = await asyncio.gather(
            *(self._publish(connection, channel, delivery) for delivery in self._taken), return_exceptions=True
        )
        for result in published:
            if result is not None:
                raise result
        await self._spool.acknowledge(self._taken[-1].tag)
        self._taken = ()

    async def _publish(self, connection: aiormq.Connection, channel: AbstractChannel, delivery: Delivery) -> None:
        """Publishes one event. Returns when the broker has confirmed that a queue has it."""
        properties = commands.Basic.Properties(
            content_type="application/json", delivery_mode=_PERSISTENT, timestamp=delivery.first_seen
        )
        where = f"exchange {self._exchange!r}"
        publishing = asyncio.ensure_future(
            channel.basic_publish(delivery.body, exchange=self._exchange, properties=properties, mandatory=True)
        )
        with in_session(where):
            try:
                while not (await asyncio.wait((publishing,), timeout=_CONFIRM_S))[0]:
                    if not await _is_blocked(connection):
                        raise UnavailableError(f"{where}: the broker has not confirmed for {_CONFIRM_S:g} s")
                    self._trouble("the broker is blocked: memory or disk is short there")
                await publishing
            except DeliveryError as error:
                raise UnavailableError(f"{where}: no queue takes the event") from error
            finally:
                publishing.cancel()

    def _trouble(self, reason: str | None) -> None:
        """Keeps what is wrong, and says it when that changes."""
        before = self._status.troubles.pop(self._exchange, None)
        if reason is not None:
            self._status.troubles[self._exchange] = reason
        if (before is None) != (reason is None):
            _log.warning("forwarding", exchange=self._exchange, works=reason is None, reason=reason or before)


async def _is_blocked(connection: aiormq.Connection) -> bool:
    """Whether the broker has said that it takes nothing from anybody now."""
    try:
        async with asyncio.timeout(0):
            await connection.ready()
    except TimeoutError:
        return True
    return False


@asynccontextmanager
async def bridging(
    path: Path,
    address: Address,
    topology: Topology,
    *,
    exchange: str,
    most_bytes: int,
    status: Status,
    stop: asyncio.Event,
) -> AsyncIterator[EventFile]:
    """Keeps posted events and forwards them, as long as the context lasts.

    Args:
        path: file of the spool.
        address: where the broker is.
        topology: what has to exist there.
        exchange: exchange of the gateway's events.
        most_bytes: bytes of events that the spool may hold.
        status: where to say how it goes.
        stop: set where forwarding has ended for a reason that only a person can mend.

    Yields:
        The spool.

    Raises:
        UsageError: the file is of another kind or version, or what exists at the broker differs from what has to.
        RefusedError: the file cannot be written, another process has it, or the broker does not serve us.
    """
    spool = await EventFile.open(path, prefetch=_BATCH, most_bytes=most_bytes, name="source.spool", status=status)
    bridge = Bridge(spool, address, topology, exchange=exchange, status=status)
    forwarding = asyncio.create_task(bridge.run())
    forwarding.add_done_callback(lambda _: stop.set())
    try:
        yield spool
    finally:
        await spool.stop()
        done, _ = await asyncio.wait((forwarding,), timeout=_END_S)
        forwarding.cancel()
        await asyncio.gather(forwarding, return_exceptions=True)
        await spool.close()
    for task in done:
        task.result()
