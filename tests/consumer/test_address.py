from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blobmap.errors import UsageError
from consumer.address import Address, parse_address

USER, PASSWORD = "ops@site", "p#a/s:s%w@rd?+ "


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("amqp://h", Address("h", 5672, "guest", "guest", "/")),
        ("amqp://h/", Address("h", 5672, "guest", "guest", "/")),
        ("amqp://h/%2F", Address("h", 5672, "guest", "guest", "/")),
        ("amqp://h/prod", Address("h", 5672, "guest", "guest", "prod")),
        ("amqp://h/%2Fprod%2Fzarr", Address("h", 5672, "guest", "guest", "/prod/zarr")),
        ("amqp://u:p@10.0.0.1:5673/v", Address("10.0.0.1", 5673, "u", "p", "v")),
        ("amqp://u:@h", Address("h", 5672, "u", "", "/")),
        ("amqps://u:p@h", Address("h", 5671, "u", "p", "/", tls=True)),
        ("amqp://[::1]", Address("::1", 5672, "guest", "guest", "/")),
        ("amqp://[::1]:7", Address("::1", 7, "guest", "guest", "/")),
    ],
)
def test_urls(url: str, expected: Address) -> None:
    assert parse_address(url) == expected


@given(user=st.text(min_size=1), password=st.text(min_size=1), vhost=st.text(min_size=1))
def test_r13_an_escaped_url_gives_back_every_part(user: str, password: str, vhost: str) -> None:
    url = f"amqp://{quote(user, safe='')}:{quote(password, safe='')}@h:1/{quote(vhost, safe='')}"
    assert parse_address(url) == Address("h", 1, user, password, vhost)


@pytest.mark.parametrize(
    ("url", "named"),
    [
        (f"amqp://{USER}:{PASSWORD}@127.0.0.1:5672//prod/zarr", "user"),
        (f"amqp://ops:{PASSWORD}@127.0.0.1:5672/%2F", "password"),
        ("amqp://ops:p%wd@h", "password"),
        ("amqp://ops:a#b@h", "password"),
        ("amqp://ops:a/b@h", "password"),
        ("amqp://ops:a:b@h", "password"),
        ("amqp://u:p@h//prod/zarr", "vhost"),
        ("amqp://u:p@h/a?b=c", "vhost"),
        ("amqp://u:p@h/ü", "vhost"),
    ],
)
def test_r13_an_unescaped_url_is_refused_by_the_part(url: str, named: str) -> None:
    with pytest.raises(UsageError, match="must be percent-encoded") as caught:
        parse_address(url)
    assert f"the {named} in the URL" in str(caught.value)
    assert PASSWORD not in str(caught.value)
    assert url not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["", "h", "http://h", "amqp:h", "amqp://", "amqp://h:0", "amqp://h:x", "amqp://h:65536"]
)
def test_what_is_no_amqp_url_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        parse_address(url)


def test_a_certificate_needs_tls() -> None:
    ca = Path("ca.pem")
    assert parse_address("amqps://h", tls_ca=ca).tls_ca == ca
    with pytest.raises(UsageError, match="amqps://"):
        parse_address("amqp://h", tls_ca=ca)


def test_no_text_shows_the_password() -> None:
    address = Address("::1", 5672, "ops", "secret", "/prod")
    assert str(address) == "ops@[::1]:5672, vhost '/prod'"
    assert str(Address("h", 1, "ops", "secret")) == "ops@h:1, vhost '/'"
    assert "secret" not in repr(address)
