"""The stream below a connection: opened by us, looked into on its way to aiormq, and cut when nobody answers any more.

aiormq reads a frame in three steps, makes an object of it and starts a task for each delivery, which costs more than
all that is done with a notification. So deliveries are taken out of what comes, and aiormq sees the rest.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

import aiormq
from aiormq.connection import TransportFactory
from aiormq.exceptions import AMQPConnectionError

from consumer.frames import Assembly, FrameSorter

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from aiormq.abc import AbstractChannel
    from yarl import URL

    from consumer.ports import Delivery


class Receiver(Protocol):
    """Where the deliveries of a consumer go."""

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Takes some, in order."""

    def closed(self, reason: str) -> None:
        """Hears why the broker has closed the channel; no more can come."""

    def end(self, reason: str) -> None:
        """Hears why no more can come; may hear it again."""


class Connection(aiormq.Connection):
    """A connection of aiormq's over a stream of ours.

    aiormq gives up a connection from which it sees nothing for some time, and a broker that delivers sends no
    heartbeats: whoever consumes here has to ask the broker something now and then.

    Args:
        url: broker and login.
        vhost: virtual host, as it is: aiormq's own reading of a URL's path loses some characters.
        tls: how to encrypt, None for not at all.
    """

    def __init__(self, url: URL, vhost: str, tls: ssl.SSLContext | None) -> None:
        self._streams = _Streams(tls)
        super().__init__(url, transport_factory=self._streams)
        self.vhost = vhost

    def receive(self, channel: int, consumer_tag: str, receiver: Receiver) -> None:
        """Hands over the deliveries of one consumer from now on.

        Args:
            channel: number of its channel.
            consumer_tag: its tag, of at most 255 bytes.
            receiver: where they go.
        """
        self._streams.stream.receive(Assembly(channel, consumer_tag), receiver)

    async def channel(self, *arguments: Any, **options: Any) -> AbstractChannel:
        """Opens a channel.

        Raises:
            AMQPConnectionError: the connection was closed; aiormq's own word for that, RuntimeError, is that of a bug.
        """
        if self.is_closed:
            raise AMQPConnectionError("the connection was closed")
        return await super().channel(*arguments, **options)

    def cut(self) -> None:
        """Ends the stream without a word; a second time does nothing."""
        if self._streams.writer is not None:
            self._streams.writer.transport.abort()


class _Streams(TransportFactory):
    """How aiormq comes to its stream; its own way to make a TLS context is left aside."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self.stream: _Stream
        self.writer: asyncio.StreamWriter | None = None

    async def create(self, url: URL, **_: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Opens the stream."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(loop=loop)
        transport, self.stream = await loop.create_connection(
            lambda: _Stream(reader, loop), url.host or "", url.port or 0, ssl=self._tls
        )
        self.writer = asyncio.StreamWriter(transport, self.stream, reader, loop)
        return reader, self.writer


class _Stream(asyncio.StreamReaderProtocol):
    """What comes from the broker, on its way to a receiver and to the reader."""

    def __init__(self, reader: asyncio.StreamReader, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(reader, loop=loop)
        self._sorter = FrameSorter()
        self._receiver: Receiver | None = None

    def receive(self, assembly: Assembly, receiver: Receiver) -> None:
        self._sorter.assembly = assembly
        self._receiver = receiver

    def data_received(self, data: bytes) -> None:
        rest = self._sorter.sort(data)
        if self._receiver is not None and self._sorter.assembly is not None:
            _hand_over(self._sorter.assembly, self._receiver)
            if self._sorter.disorder is not None:
                self._receiver.end(f"the broker sends what is no AMQP: {self._sorter.disorder}")
        if rest:
            super().data_received(rest)


def _hand_over(assembly: Assembly, receiver: Receiver) -> None:
    if assembly.complete:
        receiver.deliver(assembly.complete)
        assembly.complete = []
    if assembly.closed is not None:
        receiver.closed(assembly.closed)
