"""The listing that we sign ourselves: its signature, its answers, and its faults."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from obstore.store import S3Store

from blobmap.errors import RefusedError, UnavailableError
from blobmap.raw_listing import RawListing, _signed
from blobmap.s3_address import Credentials
from blobmap.storage import Storage

if TYPE_CHECKING:
    from obstore.store import S3Credential

    from tests.support.small_s3 import SmallS3

SOMEBODY = Credentials("key", "secret")


def listing_of(server: SmallS3, *, root: str = "", timeout_s: float = 5.0) -> RawListing:
    return RawListing("here", f"{server.endpoint}/{server.bucket}", "us-east-1", SOMEBODY, root, timeout_s)


def keys_of(listing: RawListing, prefix: str = "", after: str | None = None) -> list[str]:
    return [entry["path"] for page in listing.pages(prefix, after) for entry in page.objects]


def test_a_request_is_signed_as_in_the_example_that_aws_prints() -> None:
    """The example GET Bucket (List Objects) of "Authenticating Requests: Using the Authorization Header"."""
    credentials = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    url = "https://examplebucket.s3.amazonaws.com?max-keys=2&prefix=J"
    headers = _signed(url, "us-east-1", credentials, datetime(2013, 5, 24, tzinfo=UTC))
    assert headers["Authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
        "SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
        "Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
    )


def test_a_token_is_signed_with_the_rest_and_nothing_is_without_credentials() -> None:
    now = datetime(2026, 11, 30, tzinfo=UTC)
    headers = _signed("https://h/b?x=1", "r", Credentials("a", "b", "token"), now)
    assert headers["x-amz-security-token"] == "token"
    assert "x-amz-security-token" in headers["Authorization"]
    assert _signed("https://h/b?x=1", "r", None, now) == {}


KEYS = ["a b", "a%20b", "a+b", "a//b", "/a", "a/../b", "q\n\x01", "<&>\"'", "caf\u00e9", "\U0001f30a", "d/"]


@pytest.mark.parametrize("mood", ["well", "never-encoded"])
def test_keys_come_back_as_they_are(small_s3: SmallS3, mood: str) -> None:
    """Whether a server spells them as it was asked to, or not."""
    small_s3.mood = "never-encoded" if mood == "never-encoded" else "well"
    small_s3.objects = dict.fromkeys(KEYS, b"12")
    [page] = listing_of(small_s3).pages("", None)
    assert [entry["path"] for entry in page.objects] == sorted(KEYS)
    assert page.objects[0] == {
        "path": "/a",
        "last_modified": datetime(2026, 11, 30, 21, tzinfo=UTC),
        "size": 2,
        "e_tag": '"c20ad4d76fe97759aa27a0c99bff6710"',
        "version": None,
    }


def test_bytes_that_are_no_text_stay_apart(small_s3: SmallS3) -> None:
    small_s3.objects = {"s/caf\udce9": b"1", "s/\udcff/x": b"1", "s/ok": b"1", "s/q\n": b"1"}
    assert keys_of(listing_of(small_s3), "s", "s/caf\udce9") == ["s/ok", "s/q\n", "s/\udcff/x"]


def store_of(server: SmallS3) -> S3Store:
    return S3Store(
        server.bucket,
        config={"endpoint": server.endpoint, "access_key_id": "a", "secret_access_key": "b", "region": "us-east-1"},
        client_options={"allow_http": True},
    )


def provide() -> S3Credential:
    return {"access_key_id": "a", "secret_access_key": "b", "expires_at": None}


def test_pages_and_levels_below_a_root(small_s3: SmallS3) -> None:
    small_s3.objects = {f"r/t/{n:04}": b"1" for n in range(2001)} | {
        "r/t//x": b"1",
        "r/u": b"1",
        "r2/x": b"1",
        "x": b"1",
    }
    listing = listing_of(small_s3, root="r")
    assert [len(page.objects) for page in listing.pages("t", None)] == [1000, 1000, 2]
    assert keys_of(listing, "t", "t/1999") == ["t/2000"]
    assert keys_of(listing)[-1] == "u"
    [level] = listing.pages("", None, by_level=True)
    assert (level.prefixes, [entry["path"] for entry in level.objects]) == (("t/",), ["u"])
    first, *_ = listing.pages("t", None, by_level=True)
    assert first.prefixes == ("t//",)


@pytest.mark.parametrize(
    ("status", "kind"), [((403, "AccessDenied"), RefusedError), ((500, "InternalError"), UnavailableError)]
)
def test_an_error_is_told(
    small_s3: SmallS3, monkeypatch: pytest.MonkeyPatch, status: tuple[int, str], kind: type[Exception]
) -> None:
    monkeypatch.setattr("blobmap.raw_listing._PAUSE_S", 0.0)
    small_s3.status = status
    with pytest.raises(kind, match=rf"here: the server did not list odd keys \(HTTP {status[0]}\)"):
        keys_of(listing_of(small_s3))
    assert len(small_s3.seen) == (1 if kind is RefusedError else 3)


def test_a_passing_fault_is_tried_again(small_s3: SmallS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blobmap.raw_listing._PAUSE_S", 0.0)
    small_s3.objects = {"a//b": b"1"}
    small_s3.status, small_s3.fail_times = (503, "SlowDown"), 2
    assert keys_of(listing_of(small_s3)) == ["a//b"]


def test_silence_is_not_waited_for(small_s3: SmallS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blobmap.raw_listing._PAUSE_S", 0.0)
    small_s3.mood = "silent"
    with pytest.raises(UnavailableError, match=r"here: the server did not list odd keys: .*timed out"):
        keys_of(listing_of(small_s3, timeout_s=0.05))


def test_a_store_that_was_handed_in_is_listed_raw_where_its_keys_are_known(
    small_s3: SmallS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_s3.objects = {"a/x": b"1", "b//x": b"1"}
    storage = Storage(store_of(small_s3))
    assert [entry["path"] for page in storage.pages() for entry in page] == ["a/x"]
    assert storage.unreadable == ["b//"]
    provided = Storage(
        S3Store(
            "bkt",
            endpoint=small_s3.endpoint,
            client_options={"allow_http": True},
            credential_provider=provide,
        )
    )
    assert list(provided.pages()) == []
    assert provided.unreadable == [""]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    in_environment = S3Store("bkt", endpoint=small_s3.endpoint, client_options={"allow_http": True, "timeout": "3s"})
    assert [entry["path"] for page in Storage(in_environment).pages() for entry in page] == ["a/x"]


def test_no_secret_is_shown() -> None:
    assert "secret" not in repr(RawListing("here", "https://h/b", "r", SOMEBODY))
