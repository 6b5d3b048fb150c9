"""What goes wrong at a server becomes one line and the right class, within the time that was given."""

from __future__ import annotations

import shutil
import ssl
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from obstore.store import MemoryStore, S3Store

from blobmap.errors import (
    BlobmapError,
    ConflictError,
    MissingError,
    RefusedError,
    UnavailableError,
    UsageError,
)
from blobmap.raw_listing import RawListing
from blobmap.storage import Storage, StorageOptions, open_storage
from blobmap.store_faults import translate
from tests.services.certificates import make_certificates
from tests.support.backends import small_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.services.certificates import Certificates
    from tests.support.small_s3 import SmallS3

READS: dict[str, Callable[[Storage], object]] = {
    "pages": lambda storage: list(storage.pages()),
    "level": lambda storage: storage.level(),
    "get": lambda storage: storage.get("a/b"),
}
WRITES: dict[str, Callable[[Storage], object]] = {
    "create": lambda storage: storage.create("a/b", b"1"),
    "update": lambda storage: storage.update("a/b", b"1", '"etag"'),
    "put": lambda storage: storage.put("a/b", b"1"),
}
ALL = READS | WRITES


def opened(server: SmallS3, url: str = "s3://bkt/p", *, timeout_s: float = 2.0) -> Storage:
    return open_storage(url, small_options(server, timeout_s=timeout_s))


def error_of(act: Callable[[Storage], object], storage: Storage) -> BlobmapError:
    with pytest.raises(BlobmapError) as caught:
        act(storage)
    said = str(caught.value)
    assert "\n" not in said, "one line"
    assert "bkt" in said, "with the bucket"
    assert "Debug" not in said
    assert len(said) < 350
    return caught.value


# HTTP status and S3 code, and what they mean.
STATUSES = [
    ((500, "InternalError"), UnavailableError, "the server failed (HTTP 500, InternalError, as the test wants it)"),
    ((503, "SlowDown"), UnavailableError, "the server failed (HTTP 503"),
    ((429, "TooManyRequests"), UnavailableError, "the server failed (HTTP 429"),
    ((401, "Unauthorized"), RefusedError, "access denied, Unauthorized"),
    ((403, "AccessDenied"), RefusedError, "access denied, AccessDenied, as the test wants it"),
    ((403, "SignatureDoesNotMatch"), RefusedError, "access denied, SignatureDoesNotMatch"),
    (
        (400, "AuthorizationHeaderMalformed"),
        RefusedError,
        "refused the request (HTTP 400, AuthorizationHeaderMalformed",
    ),
    ((405, "MethodNotAllowed"), RefusedError, "refused the request (HTTP 405"),
    ((404, "NoSuchBucket"), RefusedError, "the bucket does not exist"),
    ((404, "XAdminUserNotFound"), RefusedError, "XAdminUserNotFound, as the test wants it"),
    ((301, "PermanentRedirect"), RefusedError, "the region is wrong, give --region"),
]


@pytest.mark.parametrize("act", ALL)
@pytest.mark.parametrize(("status", "kind", "said"), STATUSES, ids=[code for (_, code), _, _ in STATUSES])
def test_a_status_means_the_same_to_every_act(
    small_s3: SmallS3, act: str, status: tuple[int, str], kind: type[BlobmapError], said: str
) -> None:
    small_s3.status = status
    error = error_of(ALL[act], opened(small_s3, timeout_s=0.2))
    assert type(error) is kind
    assert said in str(error)
    assert (error.exit_code, error.retryable) == (3, kind is UnavailableError)


@pytest.mark.parametrize(
    "status", [(404, "NoSuchKey"), (409, "ConditionalRequestConflict"), (412, "PreconditionFailed")]
)
def test_somebody_else_was_faster(small_s3: SmallS3, status: tuple[int, str]) -> None:
    small_s3.status = status
    for act in ("create", "update"):
        error = error_of(WRITES[act], opened(small_s3))
        assert type(error) is ConflictError
        assert error.exit_code == 4
    assert type(error_of(READS["pages"], opened(small_s3))) is RefusedError
    assert type(error_of(WRITES["put"], opened(small_s3))) is RefusedError
    assert type(error_of(READS["get"], opened(small_s3))) is (MissingError if status[0] == 404 else RefusedError)


@pytest.mark.parametrize("act", ["create", "update"])
def test_o06_a_server_without_conditional_writes_is_named_as_that(small_s3: SmallS3, act: str) -> None:
    """501 to a conditional write; nothing is written in another way."""
    small_s3.mood = "conditions-501"
    error = error_of(WRITES[act], opened(small_s3, timeout_s=0.2))
    assert type(error) is RefusedError
    assert "no conditional writes (HTTP 501), so nothing was written" in str(error)
    assert small_s3.objects == {}


@pytest.mark.parametrize("act", READS)
def test_o11_a_web_page_is_no_empty_store(small_s3: SmallS3, act: str) -> None:
    """A portal that answers everything with a page must not look like a store with nothing in it."""
    small_s3.mood = "html"
    error = error_of(READS[act], opened(small_s3))
    assert type(error) is RefusedError
    assert "is a web page: is the endpoint an S3 server?" in str(error)


def test_an_answer_that_is_no_listing_is_refused(small_s3: SmallS3) -> None:
    small_s3.mood = "json"
    error = error_of(READS["pages"], opened(small_s3))
    assert type(error) is RefusedError
    assert "not S3's XML" in str(error)


def test_an_empty_store_is_asked_once_whether_it_is_one(small_s3: SmallS3) -> None:
    storage = opened(small_s3)
    for _ in range(3):
        assert list(storage.pages()) == []
        assert storage.level().prefixes == ()
    assert [seen.method for seen in small_s3.seen if "list-type" not in seen.path] == ["GET"]


@pytest.mark.parametrize("act", ALL)
def test_o13_silence_ends_within_the_time_that_was_given(small_s3: SmallS3, act: str) -> None:
    """A server that takes the connection and never answers. It would hang up after a minute, with another error."""
    small_s3.mood = "silent"
    error = error_of(ALL[act], opened(small_s3, timeout_s=0.4))
    assert type(error) is UnavailableError
    assert "no answer in time" in str(error)
    assert small_s3.endpoint in str(error)
    assert len(small_s3.seen) == 1, "there is no time left for a second try"


def test_a_passing_fault_is_tried_again(small_s3: SmallS3) -> None:
    small_s3.objects = {"p/a/b": b"1"}
    small_s3.status, small_s3.fail_times = (503, "SlowDown"), 2
    assert opened(small_s3, timeout_s=30).get("a/b").data == b"1"
    assert len(small_s3.seen) == 3


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        ("http://127.0.0.1:1", "the connection was refused"),
        ("http://no-such-host.invalid", "the name of the host cannot be resolved"),
    ],
)
def test_o13_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch, endpoint: str, said: str) -> None:
    """Closed port, unknown name; with the endpoint and the bucket, and not as if nothing was found."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    options = StorageOptions(
        endpoint=endpoint,
        allow_http=True,
        access_key_id="any",
        secret_access_key="any",  # noqa: S106 - nobody looks at it
        timeout_s=0.2,
    )
    for act in ALL.values():
        error = error_of(act, open_storage("s3://bkt", options))
        assert type(error) is UnavailableError
        assert str(error).startswith(f"s3://bkt at {endpoint}")
        assert said in str(error)


def test_tls_towards_a_server_without_it(small_s3: SmallS3) -> None:
    options = replace(small_options(small_s3, timeout_s=0.2), endpoint=small_s3.endpoint.replace("http", "https"))
    error = error_of(READS["pages"], open_storage("s3://bkt", options))
    assert type(error) is RefusedError
    assert "TLS failed: no TLS at that port" in str(error)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
def test_a_certificate_that_is_not_trusted(tmp_path: Path, small_s3: SmallS3, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_certificates(tmp_path)
    with tls_server(made) as port:
        options = replace(small_options(small_s3, timeout_s=2.0), endpoint=f"https://127.0.0.1:{port}")
        raw = RawListing("bkt", f"{options.endpoint}/bkt", "us-east-1", None)
        error = error_of(READS["get"], open_storage("s3://bkt", options))
        assert type(error) is RefusedError
        assert "TLS failed: the certificate is not trusted: name a file" in str(error)
        with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            list(raw.pages("", None))

        monkeypatch.setenv("SSL_CERT_FILE", str(made.authority))
        monkeypatch.delenv("SSL_CERT_DIR", raising=False)
        # The server knows no method, so this is its own answer.
        assert "(HTTP 501" in str(error_of(READS["get"], open_storage("s3://bkt", options)))
        with pytest.raises(UnavailableError, match="HTTP 501"):
            list(raw.pages("", None))


def test_plain_http_is_only_used_where_it_is_allowed(small_s3: SmallS3) -> None:
    options = replace(small_options(small_s3), allow_http=False)
    with pytest.raises(UsageError, match="--allow-http"):
        open_storage("s3://bkt", options)
    assert small_s3.seen == []


def test_o05_a_matching_etag_that_is_rejected_is_told_apart_from_a_conflict(small_s3: SmallS3) -> None:
    """A server that sends an ETag with quotes and takes it only without."""
    storage = opened(small_s3)
    etag = storage.create("a/b", b"one")
    small_s3.mood = "etag-unquoted"
    error = error_of(lambda storage: storage.update("a/b", b"two", etag or ""), storage)
    assert type(error) is RefusedError
    assert "the server rejects a matching ETag" in str(error)
    assert small_s3.objects["p/a/b"] == b"one"
    assert sum(seen.method == "PUT" for seen in small_s3.seen) == 4, "one create, and three tries"


def test_a_conflict_that_cannot_be_looked_at_stays_a_conflict(small_s3: SmallS3) -> None:
    small_s3.status = (412, "PreconditionFailed")
    assert type(error_of(WRITES["update"], opened(small_s3))) is ConflictError


@pytest.mark.parametrize("suffix", ["/", ""])
def test_o16_a_trailing_slash_and_an_odd_port_work(small_s3: SmallS3, suffix: str) -> None:
    """Nothing is put together wrongly."""
    small_s3.objects = {"p/a/b": b"1"}
    options = replace(small_options(small_s3), endpoint=small_s3.endpoint + suffix)
    assert open_storage("s3://bkt/p/", options).get("a/b").data == b"1"
    assert small_s3.seen[-1].path == "/bkt/p/a/b"
    assert small_s3.seen[-1].host == f"127.0.0.1:{small_s3.port}"


def test_an_option_goes_before_every_variable(small_s3: SmallS3, monkeypatch: pytest.MonkeyPatch) -> None:
    small_s3.objects = {"p/a/b": b"1"}
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert opened(small_s3).get("a/b").data == b"1"


def test_an_anonymous_request_is_not_signed_and_asks_for_no_credentials(
    small_s3: SmallS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_s3.objects = {"p/a/b": b"1"}
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", small_s3.endpoint)
    options = StorageOptions(endpoint=small_s3.endpoint, allow_http=True, anonymous=True)
    assert open_storage("s3://bkt/p", options).get("a/b").data == b"1"
    assert [(seen.path, seen.signed) for seen in small_s3.seen] == [("/bkt/p/a/b", False)]


def test_o11_what_was_asked_for_reaches_the_client_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host of a virtual-hosted request cannot be resolved here, so it is looked at before it is sent."""
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = one\naws_secret_access_key = two\naws_session_token = three\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    options = StorageOptions(endpoint="https://s3.example.net", region="eu-central-1", virtual_hosted=True)
    store = open_storage("s3://bkt/p", options)._reads._store  # type: ignore[union-attr] # a server's
    assert isinstance(store, S3Store)
    assert (store.prefix, dict(store.config)) == (
        "p",
        {
            "bucket": "bkt",
            "endpoint": "https://bkt.s3.example.net",
            "endpoint_url_s3": "https://bkt.s3.example.net",
            "region": "eu-central-1",
            "virtual_hosted_style_request": "true",
            "access_key_id": "one",
            "secret_access_key": "two",
            "session_token": "three",
        },
    )


def test_o07_a_full_last_page_that_promises_more_is_no_error(small_s3: SmallS3) -> None:
    """An exactly full page with a token, and then an empty one."""
    small_s3.mood = "full-page-truncated"
    for count in (0, 1000, 2000):
        small_s3.objects = {f"p/t/{n}": b"1" for n in range(count)} | {"p/u": b"1"}
        assert sum(len(page) for page in opened(small_s3).pages("t")) == count


MARKERS = ["p/", "p/st.zarr/", "p/st.zarr/t/", "p/st.zarr/t/c/", "p/st.zarr/u/c/", "p/empty/"]


def test_o09_directory_markers_are_no_objects(small_s3: SmallS3) -> None:
    """Zero-byte keys that end in a slash, with and without keys below them."""
    small_s3.objects = dict.fromkeys(MARKERS, b"") | {"p/st.zarr/t/c/0": b"1", "p/st.zarr/t/c/1": b"", "p/zero": b""}
    storage = opened(small_s3)
    found = [entry["path"] for page in storage.pages() for entry in page]
    assert found == ["st.zarr/t/c/0", "st.zarr/t/c/1", "zero"], "an object may be empty, a marker is none"
    assert [entry["path"] for page in storage.pages("st.zarr/t") for entry in page] == found[:2]
    assert list(storage.pages("st.zarr/u")) == []
    assert storage.level("st.zarr/t").objects == ()
    assert storage.level("st.zarr/t").prefixes == ("st.zarr/t/c",)
    assert (storage.unreadable, storage.odd_keys) == ([], [])


def test_directory_markers_beside_an_odd_key(small_s3: SmallS3) -> None:
    small_s3.objects = dict.fromkeys(MARKERS, b"") | {"p/st.zarr/t/c/0": b"1", "p/st.zarr//x": b"1", "p/full/": b"1"}
    storage = opened(small_s3)
    assert [entry["path"] for page in storage.pages() for entry in page] == ["st.zarr/t/c/0"]
    assert storage.odd_keys == ["full/", "st.zarr//x"], "a key that ends in a slash and holds data is no marker"
    assert storage.level("st.zarr").prefixes == ("st.zarr/t", "st.zarr/u")


def test_errors_of_other_shapes_still_say_something() -> None:
    class BaseError(Exception):
        pass

    class NotSupportedError(Exception):
        pass

    assert "failed without a word" in str(translate(BaseError(), "here", "read"))
    assert str(translate(BaseError("first line\nsecond"), "here", "read")) == "here: first line"
    assert "this kind of store cannot do that" in str(translate(NotSupportedError("x"), "here", "write"))
    assert "the connection failed" in str(translate(BaseError("HttpError { kind: Interrupted, }"), "here", "list"))
    assert "instance role" in str(translate(BaseError("GET http://169.254.169.254/latest/api/token"), "here", "list"))


def test_a_store_that_cannot_delete_what_is_not_there_is_no_error() -> None:
    storage = Storage(MemoryStore())
    storage.delete("never/was")


@contextmanager
def tls_server(made: Certificates) -> Iterator[int]:
    """A TLS port with a certificate that only its own authority has signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    server = _Quiet(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A handshake that the other side breaks off is what the test is about."""
