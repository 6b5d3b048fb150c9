"""A sink that puts each message where its kind goes: records to whoever writes lines, the journal, and all else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer.journal import JOURNAL_SCHEMA
from consumer.records import OBJECTS_SCHEMA

if TYPE_CHECKING:
    from consumer.ports import Journal, Sink
    from consumer.records import Message


class SortedSink:
    """A sink over others.

    Args:
        objects: where object records go.
        journal: where it is written down what movers were told.
        others: where everything else goes.
    """

    def __init__(self, *, objects: Sink, journal: Journal, others: Sink) -> None:
        self._objects = objects
        self._journal = journal
        self._others = others

    async def publish(self, message: Message) -> None:
        """Publishes a message. Raises as the sink that it goes to."""
        if message.schema == OBJECTS_SCHEMA:
            await self._objects.publish(message)
        elif message.schema == JOURNAL_SCHEMA:
            await self._journal.append(message)
        else:
            await self._others.publish(message)
