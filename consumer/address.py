"""Where a broker is and who we are there: one address, whether written as URL or as separate keys.

The URL form is that of the RabbitMQ URI specification: each part percent-encoded, the path being the virtual host. An
unescaped URL does not merely fail, it can name another host; so it is refused here, by the part that is wrong, before
anything tries to read it. No message has the URL or the password in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote

from blobmap.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

_DEFAULT_PORTS = {"amqp": 5672, "amqps": 5671}
_ENCODED = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*")
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")


@dataclass(frozen=True, slots=True)
class Address:
    """Everything that a connection needs.

    Attributes:
        host: name or IP address.
        port: TCP port.
        user: plain, not encoded.
        password: plain; left out of `repr`.
        vhost: plain.
        tls: whether the connection is encrypted.
        tls_ca: file of the certificates to trust, None for the system's.
    """

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    vhost: str = "/"
    tls: bool = False
    tls_ca: Path | None = None

    def __str__(self) -> str:
        """For messages: who, where, and no secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}:{self.port}, vhost {self.vhost!r}"


def parse_address(url: str, *, tls_ca: Path | None = None) -> Address:
    """Reads an AMQP URL.

    Args:
        url: `amqp[s]://[user[:password]@]host[:port][/vhost]`; without a vhost it is `/`, as for other clients.
        tls_ca: file of the certificates to trust.

    Raises:
        UsageError: a part is not percent-encoded, or it is no such URL at all. Names the part, never shows it.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _DEFAULT_PORTS:
        raise UsageError("the URL must begin with amqp:// or amqps://")
    login, _, place = rest.rpartition("@")
    user, colon, password = login.partition(":")
    _check_encoded(user, "user")
    _check_encoded(password, "password")
    authority, slash, vhost = place.partition("/")
    host, port = _host_and_port(authority, _DEFAULT_PORTS[scheme])
    _check_encoded(vhost, "vhost")
    if tls_ca is not None and scheme != "amqps":
        raise UsageError("tls_ca needs a URL that begins with amqps://")
    return Address(
        host=host,
        port=port,
        user=unquote(user) if login else "guest",
        password=unquote(password) if colon else "guest",
        vhost=unquote(vhost) if slash and vhost else "/",
        tls=scheme == "amqps",
        tls_ca=tls_ca,
    )


def _check_encoded(text: str, part: str) -> None:
    if _ENCODED.fullmatch(text) is None:
        raise UsageError(f"the {part} in the URL must be percent-encoded (or give user, password and vhost as keys)")


def _host_and_port(authority: str, default: int) -> tuple[str, int]:
    host, colon, port = authority.rpartition(":")
    if not colon or "]" in port:  # no port, or the colons of a bare IPv6 address
        host, port = authority, str(default)
    if _HOST.fullmatch(host) is None:
        raise UsageError(
            "the host in the URL is no host name; if it belongs to the password: it must be percent-encoded"
        )
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise UsageError("the port in the URL is no number from 1 to 65535")
    return host.strip("[]"), int(port)
