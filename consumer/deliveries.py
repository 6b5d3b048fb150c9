"""Deliveries handled one after the other, each of them whole before it is acknowledged: how workers take slow work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import structlog

from blobmap.errors import UnavailableError, UsageError
from consumer.outputs import Outputs, StuckError
from consumer.ports import LostError
from consumer.retry import growing_delays

if TYPE_CHECKING:
    from collections.abc import Sequence

    from consumer.aside import Aside
    from consumer.ports import Delivery, Sink, Source, Status
    from consumer.records import Message

_log = structlog.get_logger(__name__)


class Handler(Protocol):
    """Handles the messages of one queue."""

    async def handle(self, body: bytes, sink: Sink) -> None:
        """Handles one message. Returns when everything that it causes is confirmed; then it is acknowledged.

        Args:
            body: the message.
            sink: publishes in the session of the delivery, and tries for as long as patience lasts.

        Raises:
            UsageError: the message cannot be read: it becomes a dead letter.
            UnavailableError: trying again can help: it is handled again, from the beginning.
        """


class PatientSink:
    """A sink that tries until it works.

    Args:
        sink: publishes once.
        status: where to say what is wrong.
        patience_s: seconds after which a message that nobody takes ends the session.
    """

    def __init__(self, sink: Sink, status: Status, *, patience_s: float) -> None:
        self._sink = sink
        self._outputs = Outputs(status, patience_s=patience_s)

    async def publish(self, message: Message) -> None:
        """Publishes until it is safe.

        Raises:
            LostError: the session is over.
            StuckError: the message was not taken for as long as patience lasts.
        """
        await self._outputs.publish(self._sink.publish, message)


class Deliveries:
    """Hands the deliveries of one queue to a handler.

    Args:
        handler: handles them.
        aside: sets aside what cannot be read.
        patience_s: seconds to go on trying with one delivery.
    """

    def __init__(self, handler: Handler, *, aside: Aside, patience_s: float) -> None:
        self._handler = handler
        self._aside = aside
        self._patience_s = patience_s

    async def run(self, source: Source, sink: Sink, stop: asyncio.Event) -> None:
        """Handles deliveries until told to stop; the one that is at work is finished.

        Args:
            source: gives one delivery at a time (prefetch 1).
            sink: as `PatientSink`.
            stop: set to stop.

        Raises:
            LostError: the session is over; what was at work is cancelled.
            StuckError: a queue took nothing for as long as patience lasts.
            BlobmapError: whatever else the handler raised. What was not acknowledged is delivered again.
        """
        stopping = asyncio.ensure_future(_stop_on(stop, source))
        taking = asyncio.ensure_future(source.take())
        try:
            while deliveries := await taking:
                # Before the acknowledgement it gives nothing, but it tells when the session is over.
                taking = asyncio.ensure_future(source.take())
                for delivery in deliveries:
                    await self._see_through(delivery, sink, taking)
                    await source.acknowledge(delivery.tag)
        finally:
            for task in (stopping, taking):
                task.cancel()
            await asyncio.gather(stopping, taking, return_exceptions=True)

    async def _see_through(self, delivery: Delivery, sink: Sink, over: asyncio.Future[Sequence[Delivery]]) -> None:
        handling = asyncio.ensure_future(self._handle(delivery, sink))
        try:
            await asyncio.wait((handling, over), return_when=asyncio.FIRST_COMPLETED)
            if not handling.done():
                over.result()  # lost; where it was only stopped, what is at work is finished
            await handling
        finally:
            handling.cancel()
            await asyncio.gather(handling, return_exceptions=True)

    async def _handle(self, delivery: Delivery, sink: Sink) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience_s
        for delay in growing_delays():
            try:
                await self._handler.handle(delivery.body, sink)
            except (LostError, StuckError):
                raise
            except UsageError as error:
                await self._set_aside(delivery, str(error), sink)
                return
            except UnavailableError as error:
                if loop.time() + delay > deadline:
                    raise
                _log.warning("tried again", queue=delivery.routing_key, reason=str(error), delay_s=delay)
                await asyncio.sleep(delay)
            else:
                return

    async def _set_aside(self, delivery: Delivery, reason: str, sink: Sink) -> None:
        for message in self._aside.letters(delivery, code="unreadable", reason=reason):
            await sink.publish(message)


async def _stop_on(stop: asyncio.Event, source: Source) -> None:
    await stop.wait()
    await source.stop()
