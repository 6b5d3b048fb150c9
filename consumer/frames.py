"""Deliveries out of the bytes that a broker sends; every other frame stays as it is.

A delivery is two frames or more: a method, a header, and as many bodies as the header's size asks for; on their channel
nothing comes between them (AMQP 0-9-1, sections 2.3.5 and 4.2.6). What is needed of them stands where two lengths tell,
so that a delivery costs a few slices. Properties are read only where one of them matters. Pure.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from pamqp.header import ContentHeader

from consumer.ports import Delivery

if TYPE_CHECKING:
    from datetime import datetime

_METHOD, _HEADER, _BODY = 1, 2, 3
_KINDS = frozenset({_METHOD, _HEADER, _BODY, 8})  # the last one is a heartbeat
_END = 0xCE

_read_head = struct.Struct(">BHI").unpack_from  # kind, channel, bytes of the payload
_HEAD = 7
_AROUND = 8  # the head, and the byte that ends a frame

_DELIVER = b"\x00\x3c\x00\x3c"
_CHANNEL_CLOSE = b"\x00\x14\x00\x28"
_CODE = 6  # a closing method's text follows the method's name and a number

# Of a delivery's method, behind the consumer's tag: number, redelivered. The names of exchange and routing key follow.
_read_number = struct.Struct(">QB").unpack_from
_NUMBER = 9

# Of a header: class, weight, bytes of the body, and which properties follow.
_read_content = struct.Struct(">4xQH").unpack_from
_CONTENT = 14
_TIMESTAMP = 1 << 6

# Whoever publishes writes the properties, and a broker passes them on: times beyond a calendar, tables within tables.
_UNREADABLE = (ValueError, OverflowError, OSError, IndexError, RecursionError)


class DisorderError(Exception):
    """What came is not what a broker sends; the text says why."""


class Assembly:
    """Puts the deliveries of one consumer together.

    Args:
        channel: number of its channel.
        consumer_tag: its tag, of at most 255 bytes.

    Attributes:
        channel: number of its channel.
        complete: the deliveries that are complete; to be taken out by the caller.
        closed: why the broker has closed the channel, None where it has not.
    """

    def __init__(self, channel: int, consumer_tag: str) -> None:
        self.channel = channel
        self.complete: list[Delivery] = []
        self.closed: str | None = None
        self._ours = _DELIVER + _short(consumer_tag)
        self._names = (_short("") + _short(""), "", "")  # of exchange and routing key, as they came and as they read
        self._number: int | None = None  # None between deliveries
        self._redelivered = 0
        self._missing = -1  # bytes of the body; none is known before the header
        self._header = b""
        self._bodies: list[bytes] = []

    def take(self, kind: int, payload: bytes) -> bool:
        """Takes a frame of the channel.

        Args:
            kind: as the frame's head says.
            payload: what is between its head and its end.

        Returns:
            Whether it belongs to a delivery.

        Raises:
            DisorderError: it may not come here, or is cut off within.
        """
        if self._number is None:
            if kind == _METHOD and payload.startswith(self._ours):
                self._begin(payload)
                return True
            if kind == _METHOD and payload.startswith(_CHANNEL_CLOSE) and len(payload) > _CODE:
                self.closed = payload[_CODE + 1 : _CODE + 1 + payload[_CODE]].decode(errors="replace")
            return False
        if kind == _HEADER and self._missing < 0 and len(payload) >= _CONTENT:
            self._missing, _ = _read_content(payload)
            self._header = payload
        elif kind == _BODY and len(payload) <= self._missing:
            self._bodies.append(payload)
            self._missing -= len(payload)
        else:
            raise DisorderError(f"a frame of kind {kind} with {len(payload)} bytes within a delivery")
        if not self._missing:
            self._finish(self._number)
        return True

    def _begin(self, payload: bytes) -> None:
        at = len(self._ours)
        names = payload[at + _NUMBER :]
        if names != self._names[0]:  # they are the same nearly always
            self._names = (names, *_two_names(names))
        self._number, self._redelivered = _read_number(payload, at)

    def _finish(self, number: int) -> None:
        _, exchange, routing_key = self._names
        body = self._bodies[0] if len(self._bodies) == 1 else b"".join(self._bodies)
        _, flags = _read_content(self._header)
        times, first_seen = 1, None
        if self._redelivered or flags & _TIMESTAMP:
            times, first_seen = _told(self._header, redelivered=bool(self._redelivered))
        self.complete.append(Delivery(number, body, exchange, routing_key, times, first_seen))
        self._number, self._missing = None, -1
        self._bodies = []


class FrameSorter:
    """Cuts the bytes of one connection into frames, from its first byte on.

    Attributes:
        assembly: what deliveries go to, None as long as nothing is consumed.
        disorder: what no broker would have sent, None where nothing came that is.
    """

    def __init__(self) -> None:
        self.assembly: Assembly | None = None
        self.disorder: str | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._wanted = _AROUND

    def sort(self, data: bytes) -> bytes:
        """Takes bytes, cut wherever they are.

        Args:
            data: what came.

        Returns:
            The frames that are complete now and not the assembly's. From something on that no broker sends: every
            byte, for whoever closes the connection.
        """
        if self.disorder is not None:
            return data
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes < self._wanted:
            return b""
        return self._sort(b"".join(self._held))

    def _sort(self, data: bytes) -> bytes:
        others: list[bytes] = []
        own = -1 if self.assembly is None else self.assembly.channel
        at, end = 0, len(data)
        self._wanted = _AROUND
        while end - at >= _AROUND and self.disorder is None:
            kind, channel, size = _read_head(data, at)
            after = at + _AROUND + size
            if kind not in _KINDS:
                self.disorder = f"a frame of kind {kind}"
                break
            if after > end:
                self._wanted = after - at
                break
            if data[after - 1] != _END:
                self.disorder = "a frame that does not end where it says"
                break
            if channel != own or not self._take(kind, data[at + _HEAD : after - 1]):
                others.append(data[at:after])
            at = after
        if self.disorder is not None:
            others.append(data[at:])
            at = end
        self._held = [data[at:]]
        self._held_bytes = end - at
        return b"".join(others)

    def _take(self, kind: int, payload: bytes) -> bool:
        try:
            return self.assembly is not None and self.assembly.take(kind, payload)
        except DisorderError as error:
            self.disorder = str(error)
            return False


def _short(text: str) -> bytes:
    data = text.encode()
    return bytes((len(data),)) + data


def _two_names(data: bytes) -> tuple[str, str]:
    first = 1 + data[0] if data else 0
    if len(data) < first + 1 or len(data) != first + 1 + data[first]:
        raise DisorderError("the method of a delivery is cut off")
    return data[1:first].decode(errors="replace"), data[first + 1 :].decode(errors="replace")


def _told(header: bytes, *, redelivered: bool) -> tuple[int, datetime | None]:
    """How often a message was delivered, and when it was published; what cannot be read says nothing.

    A count in a message that comes for the first time is its publisher's.
    """
    content = ContentHeader()
    try:
        content.unmarshal(header)
    except _UNREADABLE:
        return 1 + redelivered, None
    properties = content.properties
    count = properties.headers.get("x-delivery-count") if redelivered and properties.headers else None
    return 1 + (count if isinstance(count, int) else redelivered), properties.timestamp
