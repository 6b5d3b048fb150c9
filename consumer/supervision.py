"""Sessions at a broker, one after the other: opened as soon as the broker is there, given up as a whole when lost."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

import structlog

from blobmap.errors import UnavailableError
from consumer.broker import connect, open_session
from consumer.outlet import BrokerSink
from consumer.outputs import Outputs, StuckError
from consumer.ports import LostError
from consumer.retry import growing_delays, persist
from consumer.until import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from consumer.address import Address
    from consumer.broker import Session
    from consumer.ports import Sink, Status
    from consumer.records import Message
    from consumer.topology import Topology

_log = structlog.get_logger(__name__)

# Nobody watches the connection on which a message is offered: where it is gone without a word, another one has to do.
# While the broker is blocked, on the other hand, each connection would leave one more message in its socket.
_REFUSED_S = 5.0

# A session that lasted this long has worked: the next loss begins with short delays again.
_WORKED_S = 60.0


class Supervisor:
    """Keeps a session open.

    Args:
        address: where the broker is.
        topology: what has to exist there.
        queue: what is consumed.
        prefetch: deliveries that may be unacknowledged.
        give_up_s: seconds to try to reach the broker.
        close_s: seconds that each step of closing a session may take.
        status: where to say how it goes.
        on_announcement: called with bucket and scope of every manifest that somebody says has changed.
    """

    def __init__(
        self,
        address: Address,
        topology: Topology,
        *,
        queue: str,
        prefetch: int,
        give_up_s: float,
        close_s: float,
        status: Status,
        on_announcement: Callable[[str, str], None] | None = None,
    ) -> None:
        self._address = address
        self._topology = topology
        self._queue = queue
        self._prefetch = prefetch
        self._give_up_s = give_up_s
        self._close_s = close_s
        self._status = status
        self._on_announcement = on_announcement

    async def run(
        self,
        pump: Callable[[Session], Awaitable[None]],
        send: Callable[[Sink, Message], Awaitable[None]],
        stop: asyncio.Event,
        *,
        ready: Callable[[], Coroutine[object, object, None]],
    ) -> None:
        """Pumps, in one session after the other, until told to stop.

        Args:
            pump: what is done in a session, as long as it lasts.
            send: publishes one message the way that `pump` does, given the sink of a session.
            stop: set to stop.
            ready: returns as soon as a session would be of use.

        Raises:
            UnavailableError: the broker could not be reached for too long; the message has the cause.
            BlobmapError: something that trying again cannot help.
        """
        delays = growing_delays()
        while not stop.is_set():
            await until(stop, ready())
            opened = None if stop.is_set() else await until(stop, self._reach())
            if opened is None:
                return
            closing, session = opened
            began_s = asyncio.get_running_loop().time()
            try:
                async with closing:
                    await pump(session)
            except StuckError as stuck:
                _log.warning("waiting without events", reason=str(stuck))
                await until(stop, self._until_taken(stuck.messages, send))
            except UnavailableError as error:
                _log.warning("session lost", reason=str(error))
                if asyncio.get_running_loop().time() - began_s > _WORKED_S:
                    delays = growing_delays()
                await until(stop, asyncio.sleep(next(delays)))

    async def _reach(self) -> tuple[AsyncExitStack, Session]:
        """Opens a session, as soon as the broker is there."""

        async def attempt() -> tuple[AsyncExitStack, Session]:
            closing = AsyncExitStack()
            session = await closing.enter_async_context(
                open_session(
                    self._address,
                    self._topology,
                    queue=self._queue,
                    prefetch=self._prefetch,
                    status=self._status,
                    close_s=self._close_s,
                    on_announcement=self._on_announcement,
                )
            )
            _log.info("consuming", broker=str(self._address), queue=self._queue)
            return closing, session

        return await persist(attempt, what="reach the broker", give_up_s=self._give_up_s)

    async def _until_taken(self, messages: Sequence[Message], send: Callable[[Sink, Message], Awaitable[None]]) -> None:
        """Waits, without a subscription, until queues that took nothing take one message each.

        The messages are ones that they should get anyway, and will get once more when their deliveries come again.
        """
        for message in messages:
            offer = partial(self._offer, message, send)
            for delay in growing_delays():
                if await persist(offer, what="reach the broker", give_up_s=self._give_up_s):
                    break
                await asyncio.sleep(delay)

    async def _offer(self, message: Message, send: Callable[[Sink, Message], Awaitable[None]]) -> bool:
        """Offers one message on a connection of its own; false where it has to be offered on another one."""
        async with connect(self._address, close_s=self._close_s) as connection:
            try:
                sink = await BrokerSink.open(connection, self._topology)
                while not await self._taken(sink, message, send):
                    if await sink.blocked() is None:
                        return False
            except LostError as error:
                _log.warning("session lost", reason=str(error))
                return False
        return True

    async def _taken(
        self, sink: BrokerSink, message: Message, send: Callable[[Sink, Message], Awaitable[None]]
    ) -> bool:
        try:
            await Outputs(self._status, patience_s=_REFUSED_S).publish(partial(send, sink), message)
        except StuckError:
            return False
        return True
