"""Where an S3 store is and as whom we come: from a URL, the options and the environment to one checked configuration.

Everything that can be seen to be wrong before the first request is said here. No request is made, but one: without
any credentials, towards AWS, the machine is asked whether it has an instance role.
"""

from __future__ import annotations

import configparser
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from blobmap.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_METADATA_WAIT_S = 2.0
_MAX_TIMEOUT_S = 86_400
_ON = frozenset({"1", "true", "yes", "on"})
# The client library panics at some of what no server accepts. A colon stands behind Ceph's tenants.
_BUCKET = re.compile("[A-Za-z0-9._:-]+")
_NO_HOST = re.compile(r"""[\s%<>|\\^{}"`]""")
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
# What the client library takes credentials from by itself, besides a key pair: all of a row must be set.
_OTHER_CREDENTIALS = (
    ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"),
    ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",),
    ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
)

DEFAULT_EXCLUDE = (".sgwtmp", ".versitygw", ".snapshot")  # what gateways and file systems keep beside the objects


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """How to reach a store. What is None or False is left to the environment (`AWS_*`), as with other S3 programs.

    Attributes:
        endpoint: URL of the server.
        region: what requests are signed for.
        anonymous: do not sign, and look for no credentials.
        allow_http: whether the endpoint may be plain http.
        virtual_hosted: put the bucket in the host, not in the path.
        timeout_s: seconds within which a request has its answer or its error, retries included.
        exclude: segments that are left out of every listing with all that is below them.
        access_key_id: one half of a key pair that goes before what the environment has.
        secret_access_key: the other half.
    """

    endpoint: str | None = None
    region: str | None = None
    anonymous: bool = False
    allow_http: bool = False
    virtual_hosted: bool = False
    timeout_s: float = 60.0
    exclude: tuple[str, ...] = DEFAULT_EXCLUDE
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse what no store can be reached with.

        Raises:
            UsageError: the time is not between 0 and a day, or what is excluded is no segment.
        """
        if not 0 < self.timeout_s <= _MAX_TIMEOUT_S:
            raise UsageError(
                f"timeout {self.timeout_s:g} is not allowed: give seconds, above 0 and up to {_MAX_TIMEOUT_S}"
            )
        for segment in self.exclude:
            if "/" in segment:
                raise UsageError(f"{segment!r} cannot be excluded: give one segment of a key, without '/'")


@dataclass(frozen=True, slots=True)
class Credentials:
    """A key pair, with a token where it is a temporary one."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class S3Address:
    """A bucket, or a part of one, at a server.

    Attributes:
        bucket: name of the bucket.
        prefix: key of the prefix below which the store begins, without outer slashes; "" is the whole bucket.
        endpoint: URL of the server, with the bucket in the host where requests are virtual-hosted; None is AWS.
        region: what requests are signed for; None leaves it to the environment.
        anonymous: do not sign, and look for no credentials.
        virtual_hosted: the bucket is in the host, not in the path.
        allow_http: whether the endpoint may be plain http.
        credentials: what to sign with; None leaves it to the environment.
    """

    bucket: str
    prefix: str
    endpoint: str | None = None
    region: str | None = None
    anonymous: bool = False
    virtual_hosted: bool = False
    allow_http: bool = False
    credentials: Credentials | None = None

    @property
    def name(self) -> str:
        """What messages call it: bucket, prefix and server, and no secret."""
        place = f"s3://{self.bucket}/{self.prefix}".rstrip("/")
        return f"{place} at {self.endpoint}" if self.endpoint else place


def s3_address(url: str, options: StorageOptions, environment: Mapping[str, str]) -> S3Address:
    """The address that a URL `s3://bucket[/prefix]` means.

    Raises:
        UsageError: the URL or the endpoint cannot be right.
        RefusedError: there are no credentials, and the access is not anonymous.
    """
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    prefix = prefix.strip("/")
    if not bucket or any(segment in {"", ".", ".."} for segment in prefix.split("/") if prefix):
        raise UsageError(f"{url!r} is no S3 URL: give s3://bucket or s3://bucket/prefix, without empty segments")
    if not _BUCKET.fullmatch(bucket):
        raise UsageError(f"{url!r} is no S3 URL: the name of a bucket has letters, digits, '.', '-' and '_'")
    given = options.endpoint or _first(environment, *_ENDPOINTS)
    allow_http = options.allow_http or _is_on(environment, "AWS_ALLOW_HTTP")
    virtual_hosted = options.virtual_hosted or _is_on(environment, "AWS_VIRTUAL_HOSTED_STYLE_REQUEST")
    anonymous = options.anonymous or _is_on(environment, "AWS_SKIP_SIGNATURE")
    endpoint = _endpoint(given, bucket, allow_http=allow_http, virtual_hosted=virtual_hosted) if given else None
    address = S3Address(bucket, prefix, endpoint, options.region, anonymous, virtual_hosted, allow_http)
    return address if anonymous else replace(address, credentials=_credentials(options, environment, address))


def bucket_url(config: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Where requests for a bucket go, from a store's configuration and, for what that leaves out, the environment.

    Args:
        config: of an obstore S3Store, as it gives it back (`endpoint_url_s3` without the `aws_` that it is given with).
        environment: the variables that it was made under.
    """
    bucket = config["bucket"]
    given = config.get("endpoint_url_s3") or config.get("endpoint") or _first(environment, *_ENDPOINTS)
    if not given:
        return f"https://s3.{region_of(config, environment)}.amazonaws.com/{bucket}"
    endpoint = given.rstrip("/")
    name = "virtual_hosted_style_request"
    return endpoint if _is_set(config, environment, name) else f"{endpoint}/{bucket}"


def region_of(config: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """What requests are signed for; arguments as of `bucket_url`."""
    return config.get("region") or _first(environment, "AWS_REGION", "AWS_DEFAULT_REGION") or "us-east-1"


def is_anonymous(config: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    """Whether requests are not signed; arguments as of `bucket_url`."""
    return _is_set(config, environment, "skip_signature")


def known_credentials(config: Mapping[str, str], environment: Mapping[str, str]) -> Credentials | None:
    """The key pair, where it is one that we can see; arguments as of `bucket_url`."""
    if config.get("access_key_id"):
        return Credentials(config["access_key_id"], config.get("secret_access_key", ""), config.get("session_token"))
    access_key_id, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    if access_key_id and secret:
        return Credentials(access_key_id, secret, _first(environment, "AWS_SESSION_TOKEN", "AWS_TOKEN"))
    return None


def _is_set(config: Mapping[str, str], environment: Mapping[str, str], name: str) -> bool:
    return str(config.get(name, environment.get(f"AWS_{name.upper()}", ""))).lower() in _ON


def _endpoint(given: str, bucket: str, *, allow_http: bool, virtual_hosted: bool) -> str:
    """The endpoint as the client library wants it; with the bucket in its host where that is asked for."""
    parts = urlsplit(given)
    # Never repeat what may be a password.
    shown = f"endpoint {given!r}" if "@" not in given else "the endpoint"
    try:
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{shown} has no valid port: allowed is 1 to 65535") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or not _may_be_host(parts.hostname):
        raise UsageError(f"{shown} is no URL of a server: give https://host or https://host:port")
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            f"{shown} holds a user or password: give credentials as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise UsageError(
            f"{shown} has a path, and S3 requests are signed for the root of a host: give "
            f"{parts.scheme}://{parts.netloc}, and the bucket in s3://bucket"
        )
    if parts.scheme == "http" and not allow_http:
        raise UsageError(f"{shown} is plain http, where others can read along: give --allow-http, or an https endpoint")
    host = _host(parts, port)
    if virtual_hosted and _is_ip_address(parts.hostname):
        raise UsageError(
            f"{shown} is an IP address, and --virtual-hosted puts the bucket in front of a name: give a name, or leave "
            "--virtual-hosted out"
        )
    if virtual_hosted and not parts.hostname.startswith(f"{bucket}."):
        host = f"{bucket}.{host}"
    return f"{parts.scheme}://{host}"


def _is_ip_address(host: str) -> bool:
    # What ends in a number is an address to whoever follows the URL Standard.
    return ":" in host or host.rstrip(".").rpartition(".")[2].isdecimal()


def _may_be_host(host: str) -> bool:
    if not _is_ip_address(host):
        return not _NO_HOST.search(host)
    with suppress(ValueError):
        return bool(ip_address(host))
    return False


def _host(parts: SplitResult, port: int | None) -> str:
    name = parts.hostname or ""
    name = f"[{name}]" if ":" in name else name
    return f"{name}:{port}" if port is not None else name


def _credentials(options: StorageOptions, environment: Mapping[str, str], address: S3Address) -> Credentials | None:
    """The key pair: given, from the environment (then the client library reads it), or from the shared file."""
    if options.access_key_id or options.secret_access_key:
        if not options.access_key_id or not options.secret_access_key:
            raise UsageError(f"{address.name}: give both an access key and its secret, or neither")
        return Credentials(options.access_key_id, options.secret_access_key)
    pair = [bool(environment.get(name)) for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")]
    if any(pair):
        if not all(pair):
            raise UsageError(f"{address.name}: set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or neither")
        return None
    if any(all(environment.get(name) for name in names) for names in _OTHER_CREDENTIALS):
        return None
    found = _shared_credentials(environment)
    if found:
        return found
    if address.endpoint is None and _has_instance_role(environment):
        return None
    raise RefusedError(
        f"{address.name}: there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or keep a profile "
        "in ~/.aws/credentials, or give --anonymous for a public bucket"
    )


def _shared_credentials(environment: Mapping[str, str]) -> Credentials | None:
    """The key pair of the profile in the credentials file that other S3 programs share, if there is one."""
    path = Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or Path("~/.aws/credentials").expanduser())
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as a credentials file: {str(error).splitlines()[0]}") from error
    profile = environment.get("AWS_PROFILE") or "default"
    if not parser.has_section(profile):
        return None
    section = parser[profile]
    access_key_id, secret = section.get("aws_access_key_id"), section.get("aws_secret_access_key")
    if not access_key_id or not secret:
        return None
    return Credentials(access_key_id, secret, section.get("aws_session_token"))


def _has_instance_role(environment: Mapping[str, str]) -> bool:
    """Whether this machine answers as one of AWS's: asked once and briefly; the client library would wait minutes."""
    if _is_on(environment, "AWS_EC2_METADATA_DISABLED"):
        return False
    import http.client  # noqa: PLC0415 - slow to import, and hardly ever needed

    parts = urlsplit(environment.get("AWS_METADATA_ENDPOINT") or "http://169.254.169.254")
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_METADATA_WAIT_S)
    try:
        connection.request("PUT", "/latest/api/token", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _first(environment: Mapping[str, str], *names: str) -> str | None:
    return next((environment[name] for name in names if environment.get(name)), None)


def _is_on(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "").lower() in _ON
