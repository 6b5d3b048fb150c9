"""A dead letter as a person meets it: what came, from where, why it could not be handled. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from consumer.records import Message

# For letters that somebody else put there.
_UNKNOWN = "unknown"

_SHOWN_BYTES = 160


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter.

    Attributes:
        code: kind of fault, one of few words.
        reason: the fault, one line.
        first_seen: RFC 3339, None where unknown.
        deliveries: how often it was delivered before it was given up, None where unknown.
        exchange: exchange that it was published to (`""`: the default one), None where unknown.
        routing_key: routing key that it was published with.
        body: the bytes.
    """

    code: str
    reason: str
    first_seen: str | None
    deliveries: int | None
    exchange: str | None
    routing_key: str
    body: bytes

    def to_json(self) -> dict[str, object]:
        """All of it, the body as text where it is text, else in base64."""
        document = asdict(self)
        try:
            document["body"] = self.body.decode()
        except UnicodeDecodeError:
            del document["body"]
            document["body_base64"] = base64.b64encode(self.body).decode()
        return document

    def __str__(self) -> str:
        """For people: two lines, the second one with the beginning of the body."""
        came_from = "nobody knows where" if self.exchange is None else f"{self.exchange!r} {self.routing_key!r}"
        times = "?" if self.deliveries is None else self.deliveries
        head = (
            f"{self.first_seen or 'some time'}  {self.code}  delivered {times} times  from {came_from}  {self.reason}"
        )
        body = self.body[:_SHOWN_BYTES].decode(errors="backslashreplace") + "..." * (len(self.body) > _SHOWN_BYTES)
        return f"{_on_one_line(head)}\n    {_on_one_line(body)}"


class HeldLetter(Protocol):
    """A letter that nobody else has meanwhile; let go of, it stays where it was."""

    @property
    def letter(self) -> Letter:
        """What it is."""

    async def requeue(self) -> None:
        """Sends the body back to where it was first published, and then takes the letter away.

        Raises:
            RefusedError: there is no way back for this one; it stays.
            UnavailableError: it could not be sent now; it stays.
        """

    async def drop(self) -> None:
        """Takes the letter away for good."""


class DeadLetters(Protocol):
    """The queue of the dead letters."""

    async def count(self) -> int:
        """How many lie there now."""

    def held(self, most: int) -> AsyncIterator[HeldLetter]:
        """Gives the letters, oldest first, at most so many."""

    async def tell(self, message: Message) -> None:
        """Publishes a message to another queue.

        Raises:
            UnavailableError: it could not be published now.
        """


def read_letter(headers: Mapping[str, object], body: bytes) -> Letter:
    """Reads what stands beside a body.

    Args:
        headers: those that `records.dead_letter` writes, or the broker's `x-death`, where the broker gave up itself.
        body: the bytes.
    """
    if "code" in headers:
        deliveries = str(headers.get("deliveries"))
        return Letter(
            code=str(headers["code"]),
            reason=str(headers.get("reason", "")),
            first_seen=None if headers.get("first_seen") is None else str(headers["first_seen"]),
            deliveries=int(deliveries) if deliveries.isdigit() else None,
            exchange=None if headers.get("exchange") is None else str(headers["exchange"]),
            routing_key=str(headers.get("routing_key", "")),
            body=body,
        )
    deaths = headers.get("x-death")
    death = deaths[0] if isinstance(deaths, Sequence) and deaths else None
    if isinstance(death, Mapping):
        return _given_up(death, headers, body)
    return Letter(_UNKNOWN, "no header says why it is here", None, None, None, "", body)


def _given_up(death: Mapping[str, object], headers: Mapping[str, object], body: bytes) -> Letter:
    count, keys, exchange = headers.get("x-delivery-count"), death.get("routing-keys"), death.get("exchange")
    time = death.get("time")
    seen = time.isoformat() if isinstance(time, datetime) else None
    return Letter(
        code=str(death.get("reason", _UNKNOWN)).replace("_", "-"),
        reason=f"given up by the broker in queue {str(death.get('queue', ''))!r}",
        first_seen=seen,
        deliveries=count + 1 if isinstance(count, int) else None,
        exchange=exchange if isinstance(exchange, str) else None,
        routing_key=str(keys[0]) if isinstance(keys, Sequence) and keys else "",
        body=body,
    )


def _on_one_line(text: str) -> str:
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
