"""A listener for events that a gateway posts, private to a test."""

from __future__ import annotations

import queue
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


class WebhookListener:
    """An HTTP server as a context manager that answers 200 to every POST and queues the bodies.

    Attributes:
        bodies: What was posted, in the order of arrival.
    """

    def __init__(self) -> None:
        self.bodies: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Where to post."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/events"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        bodies = self.bodies

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.put(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(HTTPStatus.OK)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
                """Keep quiet: a test reads the bodies."""

        return Handler
