"""Where an S3 store is and as whom: what is wrong is said before the first request, and no secret is repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blobmap.errors import RefusedError, UsageError
from blobmap.s3_address import (
    Credentials,
    StorageOptions,
    bucket_url,
    is_anonymous,
    known_credentials,
    region_of,
    s3_address,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.small_s3 import SmallS3

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "sesame"}
NOWHERE = {"AWS_SHARED_CREDENTIALS_FILE": "/nonexistent/credentials", "AWS_EC2_METADATA_DISABLED": "true"}


@pytest.mark.parametrize(
    ("url", "bucket", "prefix"),
    [
        ("s3://bucket", "bucket", ""),
        ("s3://bucket/", "bucket", ""),
        ("s3://bucket/a/b", "bucket", "a/b"),
        ("s3://bucket/a b/%20/", "bucket", "a b/%20"),
        ("s3://bucket/a?b#c", "bucket", "a?b#c"),
    ],
)
def test_a_url_is_a_bucket_and_a_prefix_as_they_are(url: str, bucket: str, prefix: str) -> None:
    address = s3_address(url, StorageOptions(), KEYS)
    assert (address.bucket, address.prefix, address.endpoint, address.name) == (bucket, prefix, None, url.rstrip("/"))


@pytest.mark.parametrize("url", ["s3://", "s3:///a", "s3://b/a//c", "s3://b/../c", "s3://b/./c"])
def test_a_url_without_a_bucket_or_with_an_odd_prefix_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match=r"give s3://bucket or s3://bucket/prefix"):
        s3_address(url, StorageOptions(), KEYS)


@pytest.mark.parametrize(
    ("endpoint", "virtual_hosted", "host"),
    [
        ("https://s3.example.net", False, "https://s3.example.net"),
        ("https://s3.example.net/", False, "https://s3.example.net"),
        ("https://s3.example.net:8443", False, "https://s3.example.net:8443"),
        ("https://S3.Example.net:8443//", False, "https://s3.example.net:8443"),
        ("https://[::1]:8443", False, "https://[::1]:8443"),
        ("https://s3.example.net", True, "https://b.s3.example.net"),
        ("https://s3.example.net:81/", True, "https://b.s3.example.net:81"),
        ("https://b.s3.example.net", True, "https://b.s3.example.net"),
    ],
)
def test_o11_o16_an_endpoint_is_a_host_with_the_bucket_in_it_where_that_is_asked(
    endpoint: str, virtual_hosted: bool, host: str
) -> None:
    """Trailing slash and odd port work, and the bucket is in the request one way or the other."""
    options = StorageOptions(endpoint=endpoint, virtual_hosted=virtual_hosted)
    address = s3_address("s3://b/p", options, KEYS)
    assert (address.endpoint, address.name) == (host, f"s3://b/p at {host}")


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        ("http://127.0.0.1:9000/s3", r"has a path.*give http://127\.0\.0\.1:9000, and the bucket in s3://bucket"),
        ("https://host/s3/", r"has a path"),
        ("https://host/?x=1", r"has a path"),
        ("https://host#x", r"has a path"),
        ("localhost:9000", r"'localhost:9000' is no URL of a server: give https://host"),
        ("ftp://host", r"is no URL of a server"),
        ("https://", r"is no URL of a server"),
        ("https://host:99999", r"no valid port: allowed is 1 to 65535"),
        ("https://host:x", r"no valid port"),
        ("http://host:9000", r"'http://host:9000' is plain http.*--allow-http"),
    ],
)
def test_o16_an_endpoint_that_cannot_work_is_refused_with_the_reason(endpoint: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        s3_address("s3://b", StorageOptions(endpoint=endpoint), KEYS)


@pytest.mark.parametrize("bucket", ["a bucket", "b%ZZ", "\u00dc", "b?x", "b#x"])
def test_a_bucket_that_cannot_be_is_refused(bucket: str) -> None:
    with pytest.raises(UsageError, match="the name of a bucket has letters, digits"):
        s3_address(f"s3://{bucket}/p", StorageOptions(), KEYS)


@pytest.mark.parametrize("host", ["gate way", "1.2.3.400", "1.2.3", "a%20b", "a^b"])
def test_a_host_that_cannot_be_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match="is no URL of a server"):
        s3_address("s3://b", StorageOptions(endpoint=f"https://{host}:7070"), KEYS)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_bucket_goes_in_front_of_a_name_only(host: str) -> None:
    options = StorageOptions(endpoint=f"https://{host}", virtual_hosted=True)
    with pytest.raises(UsageError, match="is an IP address, and --virtual-hosted puts the bucket in front of a name"):
        s3_address("s3://b", options, KEYS)


def test_a_password_in_an_endpoint_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError, match="holds a user or password") as caught:
        s3_address("s3://b", StorageOptions(endpoint="https://me:sesame@host"), KEYS)
    assert "sesame" not in str(caught.value)


def test_what_is_not_given_comes_from_the_environment() -> None:
    variables = KEYS | {
        "AWS_ENDPOINT_URL_S3": "http://one",
        "AWS_ENDPOINT_URL": "http://two",
        "AWS_ALLOW_HTTP": "true",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "1",
        "AWS_SKIP_SIGNATURE": "TRUE",
    }
    address = s3_address("s3://b", StorageOptions(), variables)
    assert address.endpoint == "http://b.one"
    assert (address.anonymous, address.virtual_hosted, address.allow_http) == (True, True, True)
    assert s3_address("s3://b", StorageOptions(endpoint="http://three"), variables).endpoint == "http://b.three"
    del variables["AWS_ENDPOINT_URL_S3"]
    assert s3_address("s3://b", StorageOptions(), variables).endpoint == "http://b.two"


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf"), 86_401])
def test_a_time_that_is_none_is_refused(timeout_s: float) -> None:
    with pytest.raises(UsageError, match=r"timeout .* is not allowed: give seconds, above 0 and up to 86400"):
        StorageOptions(timeout_s=timeout_s)


def test_only_segments_can_be_excluded() -> None:
    with pytest.raises(UsageError, match="'a/b' cannot be excluded: give one segment"):
        StorageOptions(exclude=("a", "a/b"))


# As whom.


def test_a_given_key_pair_goes_before_the_environment() -> None:
    options = StorageOptions(access_key_id="mine", secret_access_key="my secret")  # noqa: S106 - it opens nothing
    assert s3_address("s3://b", options, KEYS).credentials == Credentials("mine", "my secret")
    assert s3_address("s3://b", StorageOptions(), KEYS).credentials is None, "the library reads the environment itself"


@pytest.mark.parametrize(
    ("options", "variables"),
    [
        (StorageOptions(access_key_id="mine"), {}),
        (StorageOptions(secret_access_key="mine"), KEYS),  # noqa: S106 - it opens nothing
        (StorageOptions(), {"AWS_ACCESS_KEY_ID": "key"}),
        (StorageOptions(), {"AWS_SECRET_ACCESS_KEY": "sesame"}),
    ],
)
def test_half_a_key_pair_is_refused(options: StorageOptions, variables: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"both .* or neither") as caught:
        s3_address("s3://b", options, variables)
    assert "sesame" not in str(caught.value)


def test_no_secret_is_shown() -> None:
    options = StorageOptions(access_key_id="mine", secret_access_key="sesame")  # noqa: S106 - it opens nothing
    address = s3_address("s3://b", options, {})
    assert "sesame" not in repr(options) + repr(address) + address.name


def test_a_profile_of_the_shared_file_is_used(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    path.write_text(
        "[default]\naws_access_key_id = one\naws_secret_access_key = s%1\n"
        "[temporary]\naws_access_key_id = two\naws_secret_access_key = s2\naws_session_token = t2\n"
        "[half]\naws_access_key_id = three\n"
    )
    variables = {"AWS_SHARED_CREDENTIALS_FILE": str(path), "AWS_EC2_METADATA_DISABLED": "true"}
    assert s3_address("s3://b", StorageOptions(), variables).credentials == Credentials("one", "s%1")
    variables["AWS_PROFILE"] = "temporary"
    assert s3_address("s3://b", StorageOptions(), variables).credentials == Credentials("two", "s2", "t2")
    for profile in ("half", "missing"):
        variables["AWS_PROFILE"] = profile
        with pytest.raises(RefusedError, match="there are no credentials"):
            s3_address("s3://b", StorageOptions(), variables)


def test_the_shared_file_lies_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text("[default]\naws_access_key_id=a\naws_secret_access_key=b\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert s3_address("s3://b", StorageOptions(), {}).credentials == Credentials("a", "b")


def test_a_shared_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    path.write_text("aws_access_key_id = one\n")
    with pytest.raises(UsageError, match=r"credentials cannot be read as a credentials file"):
        s3_address("s3://b", StorageOptions(), {"AWS_SHARED_CREDENTIALS_FILE": str(path)})


@pytest.mark.parametrize(
    "variables",
    [
        {"AWS_WEB_IDENTITY_TOKEN_FILE": "/token", "AWS_ROLE_ARN": "arn"},
        {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/x"},
        {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://x", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "/token"},
    ],
)
def test_roles_are_left_to_the_library(variables: dict[str, str]) -> None:
    assert s3_address("s3://b", StorageOptions(), NOWHERE | variables).credentials is None
    half = dict(list(variables.items())[:1]) if len(variables) > 1 else {}
    with pytest.raises(RefusedError, match="there are no credentials"):
        s3_address("s3://b", StorageOptions(), NOWHERE | half)


def test_without_credentials_it_is_said_at_once_and_anonymous_asks_for_none(small_s3: SmallS3) -> None:
    """No request at all towards a server of one's own; and nothing to the metadata service when anonymous."""
    variables = {"AWS_SHARED_CREDENTIALS_FILE": "/nonexistent", "AWS_METADATA_ENDPOINT": small_s3.endpoint}
    with pytest.raises(RefusedError, match=r"no credentials: set AWS_ACCESS_KEY_ID.*or give --anonymous"):
        s3_address("s3://b", StorageOptions(endpoint="https://host"), variables)
    assert s3_address("s3://b", StorageOptions(anonymous=True), variables).anonymous
    assert small_s3.seen == []


@pytest.mark.parametrize(
    ("mood", "has_role"), [("instance", True), ("well", False), ("silent", False), ("closed", False), ("off", False)]
)
def test_towards_aws_the_machine_is_asked_once_for_a_role(
    small_s3: SmallS3, monkeypatch: pytest.MonkeyPatch, mood: str, has_role: bool
) -> None:
    monkeypatch.setattr("blobmap.s3_address._METADATA_WAIT_S", 0.2)
    variables = {"AWS_SHARED_CREDENTIALS_FILE": "/nonexistent", "AWS_METADATA_ENDPOINT": small_s3.endpoint}
    if mood == "closed":
        variables["AWS_METADATA_ENDPOINT"] = "http://127.0.0.1:1"
    elif mood == "off":
        variables["AWS_EC2_METADATA_DISABLED"] = "true"
    elif mood == "instance":
        small_s3.bucket = "latest"
    elif mood == "silent":
        small_s3.mood = "silent"
    if has_role:
        assert s3_address("s3://b", StorageOptions(), variables).credentials is None
    else:
        with pytest.raises(RefusedError, match="no credentials"):
            s3_address("s3://b", StorageOptions(), variables)
    assert len(small_s3.seen) == (mood in {"instance", "well", "silent"})


# What a store that was handed in says of itself.


@pytest.mark.parametrize(
    ("config", "variables", "url"),
    [
        ({"endpoint": "http://h:1/"}, {}, "http://h:1/b"),
        ({"endpoint": "http://h:1", "virtual_hosted_style_request": "true"}, {}, "http://h:1"),
        ({"endpoint": "http://h:1", "endpoint_url_s3": "http://s3"}, {}, "http://s3/b"),
        ({}, {"AWS_ENDPOINT_URL": "http://e"}, "http://e/b"),
        ({}, {"AWS_ENDPOINT_URL": "http://e", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"}, "http://e"),
        ({"region": "eu-central-1"}, {"AWS_REGION": "x"}, "https://s3.eu-central-1.amazonaws.com/b"),
        ({}, {"AWS_DEFAULT_REGION": "x"}, "https://s3.x.amazonaws.com/b"),
        ({}, {}, "https://s3.us-east-1.amazonaws.com/b"),
    ],
)
def test_the_url_of_a_bucket(config: dict[str, str], variables: dict[str, str], url: str) -> None:
    assert bucket_url({"bucket": "b"} | config, variables) == url


def test_the_rest_of_a_configuration() -> None:
    assert region_of({}, {"AWS_REGION": "r"}) == "r"
    assert is_anonymous({"skip_signature": "true"}, {})
    assert is_anonymous({}, {"AWS_SKIP_SIGNATURE": "true"})
    assert not is_anonymous({"skip_signature": "false"}, {"AWS_SKIP_SIGNATURE": "true"})
    pair = {"access_key_id": "a", "secret_access_key": "b", "session_token": "c"}
    assert known_credentials(pair, KEYS) == Credentials("a", "b", "c")
    assert known_credentials({}, KEYS | {"AWS_SESSION_TOKEN": "t"}) == Credentials("key", "sesame", "t")
    assert known_credentials({}, {}) is None
