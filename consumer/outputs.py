"""Publishing until it is safe: trying again with growing delay, saying what is wrong, and giving up in the end.

Giving up is for the broker's sake: it closes a channel whose deliveries nobody acknowledges (after 30 minutes, as it is
shipped), again and again, and counts each of them as delivered once more.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from blobmap.errors import UnavailableError
from consumer.ports import LostError
from consumer.retry import growing_delays

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from consumer.ports import Status
    from consumer.records import Message

_log = structlog.get_logger(__name__)


class StuckError(UnavailableError):
    """A queue has taken nothing for too long: what it belongs to has to be given back.

    Attributes:
        messages: for each queue that takes nothing, one message that it should take.
    """

    def __init__(self, reason: str, messages: tuple[Message, ...]) -> None:
        super().__init__(reason)
        self.messages = messages


class Outputs:
    """What one session publishes.

    Args:
        status: where to say what is wrong.
        patience_s: seconds after which a message that nobody takes ends the session.
    """

    def __init__(self, status: Status, *, patience_s: float) -> None:
        self._status = status
        self._patience_s = patience_s
        self._failing: dict[str, Message] = {}

    async def publish(self, send: Callable[[Message], Awaitable[None]], message: Message) -> None:
        """Publishes until it is safe; what depends on it stays unacknowledged meanwhile.

        Args:
            send: publishes once.
            message: what is published.

        Raises:
            LostError: the session is over.
            StuckError: the message was not taken for as long as patience lasts.
        """
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for delay in growing_delays():
            try:
                await send(message)
            except LostError:
                raise
            except UnavailableError as error:
                self._failing.setdefault(message.queue, message)
                self._say(message.queue, str(error))
                if loop.time() - began_s + delay > self._patience_s:
                    raise StuckError(str(error), tuple(self._failing.values())) from error
                await asyncio.sleep(delay)
            else:
                self._failing.pop(message.queue, None)
                self._say(message.queue, None)
                return

    def _say(self, queue: str, reason: str | None) -> None:
        """Keeps what is wrong with a queue, and logs it when that changes."""
        before = self._status.troubles.pop(queue, None)
        if reason is not None:
            self._status.troubles[queue] = reason
        if (before is None) != (reason is None):
            _log.warning("output", queue=queue, works=reason is None, reason=reason or before)
