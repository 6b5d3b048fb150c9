"""A small S3 server of our own over HTTP, for what a well-behaved server cannot be made to show.

It holds any key, odd ones too, honours conditions under a lock, pages as S3 does, and misbehaves on demand: status
codes, HTML, silence, conditions that are ignored or raced, an etag that is only accepted without quotes, a full page
that promises more. Signatures are not checked.
"""

from __future__ import annotations

import hashlib
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import parse_qs, quote_plus, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Mood = Literal[
    "well",
    "silent",
    "html",
    "json",
    "conditions-501",
    "conditions-ignored",
    "conditions-raced",
    "updates-raced",
    "losers-kept",
    "no-etag",
    "etag-unquoted",
    "full-page-truncated",
    "never-encoded",
]
_PAGE = 1000
# What the credentials service of a container answers.
_CREDENTIALS = b'{"AccessKeyId": "a", "SecretAccessKey": "b", "Token": "c", "Expiration": "2100-01-01T00:00:00Z"}'


class Seen(NamedTuple):
    method: str
    path: str
    host: str
    signed: bool


@dataclass
class SmallS3:
    """What the server holds and how it behaves; change it while it runs.

    Attributes:
        objects: key to content.
        status: answer every request with this status and S3 error code.
        fail_times: how many requests `status` still applies to; None: all.
        seen: every request so far.
        cold: keys of storage class GLACIER, with what `x-amz-restore` says of them; "" where nobody asked for them.
    """

    bucket: str = "bkt"
    objects: dict[str, bytes] = field(default_factory=dict)
    mood: Mood = "well"
    status: tuple[int, str] | None = None
    fail_times: int | None = None
    seen: list[Seen] = field(default_factory=list)
    cold: dict[str, str] = field(default_factory=dict)
    port: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def etag_of(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


@contextmanager
def running_s3() -> Iterator[Callable[[], SmallS3]]:
    """A server at one port for many tests; a call of what is yielded makes it as new."""
    state = SmallS3()

    class Handler(_Handler):
        s3 = state

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False

    def fresh() -> SmallS3:
        Handler.s3.released.set()
        Handler.s3 = SmallS3(port=server.server_address[1])
        return Handler.s3

    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield fresh
    finally:
        fresh()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    s3: SmallS3
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._serve()

    def do_HEAD(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        pass

    def _serve(self) -> None:
        s3 = self.s3
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        s3.seen.append(Seen(self.command, self.path, self.headers["Host"], "Authorization" in self.headers))
        if self.path == "/credentials":
            self._answer(200, _CREDENTIALS, {"Content-Type": "application/json"})
            return
        if s3.mood == "silent":
            s3.released.wait(60)
            self.close_connection = True
            return
        if s3.mood == "html":
            self._answer(
                200, b"<html><body>Welcome to the portal</body></html>", {"Content-Type": "text/html", "ETag": '"x"'}
            )
            return
        if s3.mood == "json":
            self._answer(200, b"{}", {"Content-Type": "application/json"})
            return
        if s3.status is not None and s3.fail_times != 0:
            if s3.fail_times is not None:
                s3.fail_times -= 1
            self._error(*s3.status)
            return
        self._route(body)

    def _route(self, body: bytes) -> None:
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        key = unquote(parts.path)[len(bucket) + 2 :]
        query = {name: values[0] for name, values in parse_qs(parts.query, True, errors="surrogateescape").items()}
        if bucket != self.s3.bucket:
            self._error(404, "NoSuchBucket")
        elif self.command == "POST":
            self._delete_many(body)
        elif not key:
            self._list(query)
        elif self.command == "PUT":
            self._put(key, body)
        elif self.command == "DELETE":
            with self.s3.lock:
                self.s3.objects.pop(key, None)
            self._answer(204)
        else:
            self._get(key)

    def _get(self, key: str) -> None:
        data = self.s3.objects.get(key)
        if data is None:
            self._error(404, "NoSuchKey")
            return
        headers = self._etag(data) | {"Last-Modified": "Mon, 30 Nov 2026 21:00:00 GMT"}
        if key in self.s3.cold:
            restored = self.s3.cold[key]
            if self.command == "GET" and 'ongoing-request="false"' not in restored:
                self._error(403, "InvalidObjectState")
                return
            headers |= {"x-amz-storage-class": "GLACIER"} | ({"x-amz-restore": restored} if restored else {})
        self._answer(200, data, headers)

    def _etag(self, data: bytes) -> dict[str, str]:
        return {} if self.s3.mood == "no-etag" else {"ETag": etag_of(data)}

    def _put(self, key: str, body: bytes) -> None:
        match, none_match = self.headers.get("If-Match"), self.headers.get("If-None-Match")
        if (match or none_match) and self.s3.mood == "conditions-501":
            self._error(501, "NotImplemented")
            return
        if self.s3.mood == "conditions-ignored":
            match = none_match = None
        if self.s3.mood == "conditions-raced" or (self.s3.mood == "updates-raced" and match):
            refused = self._refusal(key, match, none_match)
            time.sleep(0.02)
            if refused is None:
                self.s3.objects[key] = body
        else:
            with self.s3.lock:
                refused = self._refusal(key, match, none_match)
                if refused is None or self.s3.mood == "losers-kept":
                    self.s3.objects[key] = body
        if refused is None:
            self._answer(200, b"", self._etag(body))
        else:
            self._error(*refused)

    def _refusal(self, key: str, match: str | None, none_match: str | None) -> tuple[int, str] | None:
        data = self.s3.objects.get(key)
        if none_match == "*" and data is not None:
            return 412, "PreconditionFailed"
        if match is not None:
            if data is None:
                return 404, "NoSuchKey"
            held = etag_of(data).strip('"') if self.s3.mood == "etag-unquoted" else etag_of(data)
            if match != held:
                return 412, "PreconditionFailed"
        return None

    def _delete_many(self, body: bytes) -> None:
        text = body.decode()
        keys = [piece.split("</Key>")[0] for piece in text.split("<Key>")[1:]]
        with self.s3.lock:
            for key in keys:
                self.s3.objects.pop(key, None)
        deleted = "".join(f"<Deleted><Key>{_xml(key)}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode(), {"Content-Type": "application/xml"})

    def _list(self, query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        after = query.get("continuation-token") or query.get("start-after") or ""
        limit = int(query.get("max-keys", _PAGE))
        spell = _encoded if query.get("encoding-type") == "url" and self.s3.mood != "never-encoded" else str
        rows: list[str] = []
        last, more, count = "", False, 0
        seen_prefix: str | None = None
        with self.s3.lock:
            objects = sorted((key, data) for key, data in self.s3.objects.items() if key.startswith(prefix))
        for key, data in objects:
            common = None
            if delimiter and delimiter in key[len(prefix) :]:
                common = key[: key.index(delimiter, len(prefix)) + len(delimiter)]
            if key <= after or (common is not None and (common == seen_prefix or after.startswith(common))):
                continue
            if count == limit:
                more = True
                break
            if common is not None:
                seen_prefix = common
                rows.append(f"<CommonPrefixes><Prefix>{_xml(spell(common))}</Prefix></CommonPrefixes>")
            else:
                rows.append(_contents(spell(key), data, "GLACIER" if key in self.s3.cold else "STANDARD"))
            count, last = count + 1, common or key
        more = more or (self.s3.mood == "full-page-truncated" and count == limit)
        token = f"<NextContinuationToken>{_xml(last)}</NextContinuationToken>" if more else ""
        encoding = "<EncodingType>url</EncodingType>" if spell is _encoded else ""
        answer = (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult>'
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{encoding}{''.join(rows)}</ListBucketResult>"
        )
        self._answer(200, answer.encode(), {"Content-Type": "application/xml"})

    def _error(self, status: int, code: str) -> None:
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>as the test wants it</Message></Error>"
        self._answer(status, body.encode(), {"Content-Type": "application/xml"})

    def _answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _contents(key: str, data: bytes, storage_class: str) -> str:
    at = datetime(2026, 11, 30, 21, tzinfo=UTC).isoformat().replace("+00:00", ".000Z")
    return (
        f"<Contents><Key>{_xml(key)}</Key><LastModified>{at}</LastModified><ETag>{_xml(etag_of(data))}</ETag>"
        f"<Size>{len(data)}</Size><StorageClass>{storage_class}</StorageClass></Contents>"
    )


def _encoded(key: str) -> str:
    return quote_plus(key, errors="surrogateescape")


def _xml(text: str) -> str:
    return "".join(f"&#{ord(c)};" if ord(c) < 32 or c in "&<>\"'" else c for c in text)
