"""What an object store's error means for us: one table from the kind of error to our tree, in one line of text.

The client library gives most of what a server says as one exception type and a long text; what is stable in that text
(the HTTP status, S3's error code, the kind of transport fault) is read here and nowhere else.
"""

from __future__ import annotations

import re
from typing import Literal

from blobmap.errors import BlobmapError, ConflictError, MissingError, RefusedError, UnavailableError, UsageError

Doing = Literal["list", "read", "write", "write on condition"]

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,60})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,200})</Message>")

_ODD_KEY = "this key cannot be addressed: it has an empty segment, '.', '..' or a control character"
_IS_IT_S3 = "is the endpoint an S3 server?"
_CONFLICTS = frozenset({"FileNotFoundError", "AlreadyExistsError", "PreconditionError"})

# What a type says by itself, whatever was asked.
_BY_TYPE: dict[str, tuple[type[BlobmapError], str]] = {
    "PermissionDeniedError": (RefusedError, "access denied"),
    "UnauthenticatedError": (RefusedError, "access denied"),
    "NotSupportedError": (RefusedError, "this kind of store cannot do that"),
    "NotImplementedError": (RefusedError, "this kind of store cannot do that"),
    "InvalidPathError": (MissingError, _ODD_KEY),
    "ValueError": (MissingError, _ODD_KEY),
}

# What a transport fault's text says, in the order in which it is asked.
_TRANSPORT: tuple[tuple[re.Pattern[str], type[BlobmapError], str], ...] = (
    (re.compile("/latest/(api|meta-data)/"), RefusedError, "the instance role of this machine gave no credentials"),
    (re.compile("BadScheme"), UsageError, "the endpoint is plain http: give --allow-http, or an https endpoint"),
    (re.compile("BareRedirect"), RefusedError, "the server redirects to nowhere: the region is wrong, give --region"),
    (re.compile("dns error"), UnavailableError, "the name of the host cannot be resolved"),
    (
        re.compile("UnknownIssuer"),
        RefusedError,
        "TLS failed: the certificate is not trusted: name a file of the authorities to trust in SSL_CERT_FILE",
    ),
    (re.compile("InvalidCertificate"), RefusedError, "TLS failed: the certificate is not valid for this host or time"),
    (re.compile("InvalidContentType|InvalidMessage|AlertReceived"), RefusedError, "TLS failed: no TLS at that port"),
    (re.compile("ConnectionRefused"), UnavailableError, "the connection was refused"),
    (re.compile("TimedOut|kind: Timeout"), UnavailableError, "no answer in time"),
    (
        re.compile("ETag Header missing"),
        RefusedError,
        "the server gives no ETag, so no write can be conditional on one",
    ),
    (re.compile("InvalidListResponse|list response"), RefusedError, f"the answer is not S3's XML: {_IS_IT_S3}"),
    (re.compile(r"\bkind: \w+,"), UnavailableError, "the connection failed"),
)


def translate(error: Exception, where: str, doing: Doing) -> BlobmapError:
    """The error of our tree for one of the client library's.

    Args:
        error: what was caught.
        where: the object and the store, for the message.
        doing: what was asked of the store: an absent object means different things to a reader and to a writer.
    """
    text = str(error)
    name = type(error).__name__
    code = _first(_CODE, text)
    status = _first(_STATUS, text)
    if code == "NoSuchBucket":
        return RefusedError(f"{where}: the bucket does not exist")
    if status == "404" and code and not code.startswith("NoSuch"):
        # versitygw says "not found" of the account that asks (XAdminUserNotFound): nothing is known of the object.
        return RefusedError(f"{where}: access denied{_said(text, code)}")
    if name in _CONFLICTS and doing == "write on condition":
        return ConflictError(f"{where}: somebody else changed it meanwhile")
    if name == "FileNotFoundError" and doing == "read":
        return MissingError(f"{where}: there is no such object")
    if name in _BY_TYPE:
        kind, ours = _BY_TYPE[name]
        return kind(f"{where}: {ours}{_said(text, code)}")
    return _by_status(int(status), where, doing, _said(text, code)) if status else _by_transport(where, text)


def _by_status(status: int, where: str, doing: Doing, said: str) -> BlobmapError:
    if status in {401, 403}:
        return RefusedError(f"{where}: access denied{said}")
    if status in {404, 409, 412} and doing == "write on condition":
        return ConflictError(f"{where}: somebody else changed it meanwhile (HTTP {status}{said})")
    if status == 501 and doing == "write on condition":
        return RefusedError(
            f"{where}: the server has no conditional writes (HTTP 501), so nothing was written: two writers could "
            "overwrite each other unseen"
        )
    if status >= 500 or status == 429:
        return UnavailableError(f"{where}: the server failed (HTTP {status}{said})")
    return RefusedError(f"{where}: the server refused the request (HTTP {status}{said or ': ' + _IS_IT_S3})")


def _by_transport(where: str, text: str) -> BlobmapError:
    for pattern, kind, said in _TRANSPORT:
        if pattern.search(text):
            return kind(f"{where}: {said}")
    return UnavailableError(f"{where}: {text.splitlines()[0][:200] if text else 'failed without a word'}")


def _said(text: str, code: str | None) -> str:
    """What the server says in its own words, ready to follow ours."""
    message = _first(_MESSAGE, text)
    return "".join(f", {piece}" for piece in (code, message) if piece)


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return found.group(1) if found else None
