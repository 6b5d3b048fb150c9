"""What an object store's error means for us: one table from the kind of error to our tree, in one line of text.

The client library gives most of what a server says as one exception type and a long text; what is stable in that text
(the HTTP status, S3's error code, the kind of transport fault) is read here and nowhere else.
"""

from __future__ import annotations

import re

from blobmap.errors import BlobmapError, ConflictError, MissingError, RefusedError, UnavailableError, UsageError

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,60})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,200})</Message>")
_ODD_KEY = "this key cannot be addressed: it has an empty segment, '.', '..' or a control character"
_ELSE = "somebody else changed it meanwhile"
_BY_TYPE: dict[str, tuple[type[BlobmapError], str]] = {
    "FileNotFoundError": (MissingError, "there is no such object"),
    "AlreadyExistsError": (ConflictError, _ELSE),
    "PreconditionError": (ConflictError, _ELSE),
    "PermissionDeniedError": (RefusedError, "access denied"),
    "UnauthenticatedError": (RefusedError, "access denied"),
    "InvalidPathError": (MissingError, _ODD_KEY),
    "ValueError": (MissingError, _ODD_KEY),
    "NotSupportedError": (RefusedError, "this kind of store cannot do that"),
    "NotImplementedError": (RefusedError, "this kind of store cannot do that"),
}

# What a transport fault's text says, in the order in which it is asked.
_TRANSPORT: tuple[tuple[re.Pattern[str], type[BlobmapError], str], ...] = (
    (re.compile("BadScheme"), UsageError, "the endpoint is plain http: give --allow-http, or an https endpoint"),
    (re.compile("dns error"), UnavailableError, "the host name cannot be resolved"),
    (re.compile("certificate|InvalidContentType|InvalidMessage|tls|Tls"), RefusedError, "the TLS connection failed"),
    (re.compile("ConnectionRefused"), UnavailableError, "the connection was refused"),
    (re.compile("TimedOut|kind: Timeout"), UnavailableError, "no answer in time"),
    (re.compile("list response"), RefusedError, "the answer is not S3's: is the endpoint an S3 server?"),
    (re.compile(r"\bkind: \w+,"), UnavailableError, "the connection failed"),
)


def translate(error: Exception, where: str) -> BlobmapError:
    """The error of our tree for one of the client library's; `where` names the object and the store."""
    text = str(error)
    code = _first(_CODE, text)
    if code == "NoSuchBucket":
        return RefusedError(f"{where}: the bucket does not exist")
    by_type = _BY_TYPE.get(type(error).__name__)
    if by_type is not None:
        kind, said = by_type
        return kind(f"{where}: {said}{_said(text, code) if kind is RefusedError else ''}")
    status = _first(_STATUS, text)
    return _by_status(int(status), where, text, code) if status else _by_transport(where, text)


def _by_status(status: int, where: str, text: str, code: str | None) -> BlobmapError:
    if status in {401, 403}:
        return RefusedError(f"{where}: access denied{_said(text, code)}")
    if status in {404, 409, 412}:
        return ConflictError(f"{where}: {_ELSE} (HTTP {status})")
    if status == 501:
        return RefusedError(
            f"{where}: the server does not implement conditional writes (HTTP 501), so nothing was written: "
            "two writers could overwrite each other unseen"
        )
    said = _said(text, code)
    if status >= 500 or status == 429:
        return UnavailableError(f"{where}: the server failed (HTTP {status}{said})")
    return RefusedError(f"{where}: the server refused the request (HTTP {status}{said})")


def _by_transport(where: str, text: str) -> BlobmapError:
    for pattern, kind, said in _TRANSPORT:
        if pattern.search(text):
            return kind(f"{where}: {said}")
    return UnavailableError(f"{where}: {text.splitlines()[0][:200] if text else 'failed without a word'}")


def _said(text: str, code: str | None) -> str:
    message = _first(_MESSAGE, text)
    return ", ".join(["", *(piece for piece in (code, message) if piece)])


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return found.group(1) if found else None
