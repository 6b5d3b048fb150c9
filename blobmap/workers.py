"""A bounded pool of threads with one collector: work runs in the pool, its results are taken in by the caller's thread.

Nothing here knows what the work is. Because only the collecting thread touches what the results go into, that needs no
lock; because work may ask for more work, a tree can be walked whose size nobody knows at the start.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from threading import Event
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


class Workers:
    """Runs work in threads and hands each result to the thread that collects.

    Args:
        threads: how much runs at once.

    Attributes:
        stopping: set when no result is wanted any more; long work looks at it and ends early.
    """

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="survey")
        self._done: SimpleQueue[Future[Any]] = SimpleQueue()
        self._then: dict[Future[Any], Callable[[Any], None]] = {}
        self.stopping = Event()

    def do(self, work: Callable[[], _T], then: Callable[[_T], None]) -> None:
        """Have work done; called from the collecting thread only.

        Args:
            work: runs in the pool.
            then: takes the result in the collecting thread, and may ask for more work.
        """
        future = self._pool.submit(work)
        self._then[future] = then
        future.add_done_callback(self._done.put)

    def collect(self) -> None:
        """Take in results until nothing is left to do.

        Raises:
            Exception: what any work raised; the rest is abandoned.
        """
        try:
            while self._then:
                future = self._done.get()
                self._then.pop(future)(future.result())
        finally:
            self.stopping.set()
            self._pool.shutdown(cancel_futures=True)
