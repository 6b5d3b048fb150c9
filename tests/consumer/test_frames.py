"""Deliveries cut out of bytes: what they are, wherever the bytes are cut, and what a broker would never send."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pamqp.frame
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pamqp import commands
from pamqp.body import ContentBody
from pamqp.header import ContentHeader
from pamqp.heartbeat import Heartbeat

from consumer.frames import Assembly, FrameSorter
from consumer.ports import Delivery

if TYPE_CHECKING:
    from collections.abc import Sequence

TAG = "blobmap"
OWN = 1
SEEN = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)

HEARTBEAT = pamqp.frame.marshal(Heartbeat(), 0)


def frame(value: Any, channel: int = OWN) -> bytes:
    return pamqp.frame.marshal(value, channel)


def method(number: int = 1, *, tag: str = TAG, redelivered: bool = False, key: str = "k") -> commands.Basic.Deliver:
    return commands.Basic.Deliver(tag, number, redelivered, "x", key)


def header(size: int, **properties: Any) -> ContentHeader:
    return ContentHeader(body_size=size, properties=commands.Basic.Properties(**properties))


def delivery(body: bytes, number: int = 1, *, channel: int = OWN, tag: str = TAG, piece: int = 100) -> list[bytes]:
    """The frames of one delivery, its body in pieces of so many bytes."""
    bodies = [ContentBody(body[at : at + piece]) for at in range(0, len(body), piece)]
    return [frame(one, channel) for one in (method(number, tag=tag), header(len(body)), *bodies)]


class Opened:
    """A connection whose channel is consumed."""

    def __init__(self) -> None:
        self.sorter = FrameSorter()
        self.assembly = self.sorter.assembly = Assembly(OWN, TAG)

    def sort(self, *data: bytes) -> bytes:
        return b"".join(self.sorter.sort(one) for one in data)

    @property
    def deliveries(self) -> list[Delivery]:
        return self.assembly.complete


def read_by_pamqp(data: bytes) -> tuple[list[Delivery], list[bytes]]:
    """The same by the library that reads every frame, for bytes in which frames come in order."""
    deliveries: list[Delivery] = []
    others: list[bytes] = []
    begun: list[Any] = []  # method and header of a delivery of ours, and what its bodies hold
    while data:
        size, channel, value = pamqp.frame.unmarshal(data)
        whole, data = data[:size], data[size:]
        mine = isinstance(value, commands.Basic.Deliver) and value.consumer_tag == TAG
        if channel != OWN or not (begun or mine):
            others.append(whole)
            continue
        begun.append(value)
        body = b"".join(piece.value for piece in begun[2:])
        if len(begun) > 1 and len(body) == begun[1].body_size:
            deliveries.append(expected(begun[0], begun[1], body))
            begun = []
    return deliveries, others


def expected(method: commands.Basic.Deliver, header: ContentHeader, body: bytes) -> Delivery:
    before = (header.properties.headers or {}).get("x-delivery-count") if method.redelivered else 0
    return Delivery(
        tag=method.delivery_tag or 0,
        body=body,
        exchange=method.exchange,
        routing_key=method.routing_key or "",
        deliveries=1 + (before if isinstance(before, int) else 1),
        first_seen=header.properties.timestamp,
    )


shorts = st.text(st.characters(codec="utf-8"), max_size=40)
properties = st.builds(
    commands.Basic.Properties,
    content_type=st.none() | shorts.filter(bool),
    headers=st.none() | st.dictionaries(st.sampled_from(["x-delivery-count", "other"]), st.integers(0, 99) | shorts),
    timestamp=st.none() | st.integers(0, 2**32 - 1).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
    message_type=st.none() | shorts.filter(bool),
)


@st.composite
def contents(draw: st.DrawFn) -> list[bytes]:
    """The frames of a delivery, on any channel and to any consumer, with heartbeats in between."""
    channel = draw(st.sampled_from([OWN, OWN, OWN, 2]))
    pieces = draw(st.lists(st.binary(min_size=1, max_size=60), max_size=3))
    parts = [
        commands.Basic.Deliver(
            draw(st.sampled_from([TAG, TAG, "blobmap2", "blob", "", "bloated"])),
            draw(st.integers(1, 2**63 - 1)),
            draw(st.booleans()),
            draw(st.sampled_from(["", "s3.events"])),
            draw(shorts),
        ),
        ContentHeader(body_size=sum(map(len, pieces)), properties=draw(properties)),
        *map(ContentBody, pieces),
    ]
    frames = [frame(one, channel) for one in parts]
    for at in draw(st.lists(st.integers(1, len(frames)), max_size=2)):
        frames.insert(at, draw(st.sampled_from([HEARTBEAT, *delivery(b"elsewhere", channel=3)])))
    return frames


methods = st.sampled_from(
    [
        commands.Basic.ConsumeOk(TAG),
        commands.Basic.Cancel(TAG),
        commands.Basic.Ack(7, True),
        commands.Queue.DeclareOk("q", 1, 2),
    ]
)
sequences = st.lists(contents() | methods.map(lambda one: [frame(one)]) | st.just([HEARTBEAT]), max_size=8).map(
    lambda groups: b"".join(one for group in groups for one in group)
)


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[first:last] for first, last in pairwise(bounds)]


@given(sequences, st.lists(st.integers(0, 2000), max_size=20))
@example(b"".join(delivery(b"x" * 250)) + HEARTBEAT, [])
@example(b"".join(delivery(b"")), [3])
@example(frame(method()) + frame(header(0, timestamp=SEEN, headers={"x-delivery-count": 3})), [])
def test_gives_what_the_library_reads_wherever_the_bytes_are_cut(data: bytes, places: list[int]) -> None:
    opened = Opened()
    rest = opened.sort(*cut(data, places))
    assert opened.sorter.disorder is None
    assert (opened.deliveries, rest) == (read_by_pamqp(data)[0], b"".join(read_by_pamqp(data)[1]))


def test_gives_the_same_byte_by_byte() -> None:
    data = b"".join([*delivery(b"one", 1), HEARTBEAT, *delivery(b"", 2), *delivery(b"t" * 300, 3), HEARTBEAT])
    opened = Opened()
    assert opened.sort(*(data[at : at + 1] for at in range(len(data)))) == HEARTBEAT * 2
    assert [(one.tag, one.body) for one in opened.deliveries] == [(1, b"one"), (2, b""), (3, b"t" * 300)]


def test_hands_on_a_frame_as_soon_as_it_is_whole() -> None:
    opened = Opened()
    assert opened.sort(HEARTBEAT[:5]) == b""
    assert opened.sort(HEARTBEAT[5:] + HEARTBEAT[:3]) == HEARTBEAT
    assert opened.sort(HEARTBEAT[3:]) == HEARTBEAT


def test_keeps_nothing_before_somebody_consumes() -> None:
    data = b"".join(delivery(b"one"))
    assert FrameSorter().sort(data) == data


@pytest.mark.parametrize(
    ("headers", "times"), [({"x-delivery-count": 6}, 7), ({}, 2), (None, 2), ({"x-delivery-count": "six"}, 2)]
)
def test_counts_a_message_that_came_before(headers: dict[str, Any] | None, times: int) -> None:
    opened = Opened()
    opened.sort(frame(method(redelivered=True)), frame(header(0, headers=headers, timestamp=SEEN)))
    assert opened.deliveries == [Delivery(1, b"", "x", "k", times, SEEN)]


def test_a_count_that_a_publisher_wrote_counts_for_nothing() -> None:
    opened = Opened()
    opened.sort(frame(method()), frame(header(0, headers={"x-delivery-count": 190})))
    assert opened.deliveries[0].deliveries == 1


@pytest.mark.parametrize("rest", [b"\xff" * 8, b"\x00", b""])
def test_properties_that_cannot_be_read_say_nothing(rest: bytes) -> None:
    flags = (1 << 6).to_bytes(2)
    opened = Opened()
    opened.sort(frame(method(redelivered=True)), raw(2, (60).to_bytes(2) + bytes(10) + flags + rest))
    assert opened.deliveries == [Delivery(1, b"", "x", "k", 2, None)]


@given(st.binary(max_size=80))
def test_no_properties_stop_a_delivery(rest: bytes) -> None:
    opened = Opened()
    opened.sort(frame(method(redelivered=True)), raw(2, (60).to_bytes(2) + bytes(10) + b"\xff\xfe" + rest))
    assert [one.body for one in opened.deliveries] == [b""]


def test_tells_why_the_broker_has_closed_the_channel() -> None:
    closing = frame(commands.Channel.Close(406, "PRECONDITION_FAILED - delivery acknowledgement timed out", 0, 0))
    opened = Opened()
    assert opened.sort(frame(commands.Channel.Close(404, "another", 0, 0), 2)) != b""
    assert opened.assembly.closed is None
    assert opened.sort(closing) == closing
    assert opened.assembly.closed == "PRECONDITION_FAILED - delivery acknowledgement timed out"


def test_a_channel_that_is_closed_in_few_bytes_is_left_to_others() -> None:
    closing = raw(1, b"\x00\x14\x00\x28\x00\x00")
    opened = Opened()
    assert opened.sort(closing) == closing
    assert (opened.assembly.closed, opened.sorter.disorder) == (None, None)


def raw(kind: int, payload: bytes, channel: int = OWN, end: bytes = b"\xce") -> bytes:
    return kind.to_bytes(1) + channel.to_bytes(2) + len(payload).to_bytes(4) + payload + end


BEGUN = frame(method())
FAULTS = {
    "a kind that is none": (b"", b"AMQP\x00\x00\x09\x01"),
    "another end": (b"", raw(8, b"", 0, b"\xcd")),
    "another end within a delivery": (BEGUN + frame(header(3)), raw(3, b"abc", OWN, b"\x00")),
    "a method within a delivery": (BEGUN, frame(commands.Basic.CancelOk(TAG))),
    "a delivery within a delivery": (BEGUN, BEGUN),
    "a body before the header": (BEGUN, frame(ContentBody(b"abc"))),
    "a second header": (BEGUN + frame(header(3)), frame(header(3))),
    "a body longer than the header says": (BEGUN + frame(header(2)), frame(ContentBody(b"abc"))),
    "a header that is cut off": (BEGUN, raw(2, bytes(13))),
    "a heartbeat on the channel within a delivery": (BEGUN, raw(8, b"")),
    "a method without number and names": (b"", raw(1, b"\x00\x3c\x00\x3c\x07blobmap")),
    "a method with half of its names": (b"", raw(1, b"\x00\x3c\x00\x3c\x07blobmap" + bytes(9) + b"\x01x\x05k")),
    "a method with one of its names": (b"", raw(1, b"\x00\x3c\x00\x3c\x07blobmap" + bytes(9) + b"\x01x")),
    "a method with more than names": (b"", raw(1, b"\x00\x3c\x00\x3c\x07blobmap" + bytes(9) + b"\x01x\x01kk")),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("together", [True, False])
def test_from_a_fault_on_everything_is_left_to_others(name: str, together: bool) -> None:
    before, fault = FAULTS[name]
    good, after = b"".join(delivery(b"good", 9)), HEARTBEAT + b"".join(delivery(b"late", 10))
    opened = Opened()
    pieces = [HEARTBEAT, good, before, fault, after]
    rest = opened.sort(*([b"".join(pieces)] if together else pieces))
    assert opened.sorter.disorder is not None
    assert rest == HEARTBEAT + fault + after
    assert opened.sort(b"z") == b"z"
    assert [one.body for one in opened.deliveries] == [b"good"]
