"""Counting a share of one array on local files, in this process or as all that a process of its own does.

No obstore here: a process that only counts should start quickly. `counters` starts such processes.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from threading import Event
from typing import TYPE_CHECKING, Final

from blobmap.errors import BlobmapError, ListingError
from blobmap.gaps import Gaps
from blobmap.local_files import LocalFiles

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from blobmap.splits import Share
    from blobmap.tally import Tally

READY: Final = version("blobmap")
"""What a process that counts says first: two versions would not understand each other."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be counted.

    Attributes:
        root: the directory that is the store.
        exclude: names that are left out with all that is below them.
        key: of the array.
        share: of its files.
        tally: of the array, with nothing counted yet.
    """

    root: str
    exclude: frozenset[str]
    key: str
    share: Share
    tally: Tally


@dataclass(frozen=True, slots=True)
class Counted:
    """What an order came to.

    Attributes:
        tally: the sums.
        unreadable: what could not be listed, as keys.
        odd_keys: what exists and cannot be addressed.
    """

    tally: Tally
    unreadable: list[str] = field(default_factory=list)
    odd_keys: list[str] = field(default_factory=list)


def count(order: Order, stopping: Event, on_objects: Callable[[int], None]) -> Counted:
    """Count what is ordered.

    Args:
        order: with a tally that is added to.
        stopping: ends it early when set; the answer is then of no use.
        on_objects: told the number of objects of each page.

    Raises:
        RefusedError: the root may not be read.
        UnavailableError: the root cannot be read.
    """
    gaps = Gaps()
    for page in LocalFiles(order.root, exclude=order.exclude, gaps=gaps).pages(order.key, None, order.share):
        if stopping.is_set():
            break
        order.tally.add(page)
        on_objects(len(page))
    return Counted(order.tally, gaps.unreadable, gaps.odd_keys)


def serve(asked: Connection) -> None:
    """Count what another process orders, until it goes away.

    Each order is answered with the numbers of objects as they are counted, then with what it came to, or with an error.

    Args:
        asked: where the orders come from.
    """
    # Whoever waits for the answer is told to stop as well, and ends this process when it is done with it.
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, signal.SIG_IGN)
    with suppress(EOFError, OSError):
        asked.send(READY)
        while True:
            order: Order = asked.recv()
            asked.send(_answer(order, asked.send))


def _answer(order: Order, on_objects: Callable[[int], None]) -> Counted | BlobmapError:
    try:
        return count(order, Event(), on_objects)
    except BlobmapError as error:
        return error
    except OSError:
        raise  # nobody listens any more: no fault of a file comes out of a walk
    except Exception as error:  # noqa: BLE001 - whatever it is, the process that waits has to be told
        return ListingError(f"{order.key!r} could not be counted: {type(error).__name__}: {error}")
