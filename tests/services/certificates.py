"""A private certificate authority, and a certificate for 127.0.0.1 that it signed; openssl makes them."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

ELLIPTIC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


@dataclass(frozen=True)
class Certificates:
    """Files in PEM form."""

    authority: Path
    certificate: Path
    key: Path


def make_certificates(directory: Path) -> Certificates:
    """Makes them in a directory that exists."""
    authority, authority_key = directory / "ca.pem", directory / "ca.key"
    made = Certificates(authority, directory / "server.pem", directory / "server.key")
    _openssl("-x509", *ELLIPTIC, "-subj", "/CN=test authority", "-keyout", authority_key, "-out", authority)
    _openssl(
        *("-x509", *ELLIPTIC, "-subj", "/CN=localhost", "-CA", authority, "-CAkey", authority_key),
        *("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"),
        *("-keyout", made.key, "-out", made.certificate),
    )
    return made


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", "req", *map(str, arguments)], check=True, capture_output=True)
