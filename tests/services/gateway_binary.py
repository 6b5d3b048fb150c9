"""The gateway's binary: one pinned release, built once per user and kept outside the checkout.

`python -m tests.services.gateway_binary` builds it ahead of a test run and prints its path.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.services.process import ServiceMissingError

VERSION = "v1.8.0"
PACKAGE = "github.com/versity/versitygw/cmd/versitygw"

# A cold build fetches some hundred modules and takes a minute or two on two cores.
BUILD_S = 900


def installed_gateway() -> Path:
    """Path of the binary, which is built where it is missing.

    Raises:
        ServiceMissingError: It is missing and cannot be built; the message has the refusal.
    """
    binary = cache_directory() / "versitygw"
    if not binary.exists():
        binary.parent.mkdir(parents=True, exist_ok=True)
        with (binary.parent / "build.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not binary.exists():  # another run may have built it while we waited
                _build(binary)
    return binary


def cache_directory() -> Path:
    """Directory of the pinned release in the user's cache (XDG Base Directory Specification)."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "blobmap" / f"versitygw-{VERSION}"


def _build(binary: Path) -> None:
    """Build beside the final place and move there, so that nobody ever sees half a binary."""
    go = shutil.which("go")
    if go is None:
        raise ServiceMissingError(f"versitygw {VERSION} is not at {binary}, and no go is in PATH to build it")
    command = [go, "install", f"{PACKAGE}@{VERSION}"]
    with tempfile.TemporaryDirectory(dir=binary.parent, prefix="build-") as place:
        # Without cgo the build needs no C compiler and the binary no particular libc.
        environment = {**os.environ, "GOBIN": place, "CGO_ENABLED": "0"}
        try:
            subprocess.run(
                command, cwd=place, env=environment, capture_output=True, text=True, timeout=BUILD_S, check=True
            )
        except subprocess.CalledProcessError as error:
            refusal = error.stderr.strip().splitlines()[-1:] or [f"exit {error.returncode}"]
            raise ServiceMissingError(f"versitygw {VERSION}: {' '.join(command)} was refused: {refusal[0]}") from error
        except subprocess.TimeoutExpired as error:
            raise ServiceMissingError(
                f"versitygw {VERSION}: {' '.join(command)} was not done after {BUILD_S} s"
            ) from error
        (Path(place) / "versitygw").replace(binary)


def main() -> int:
    """Build the binary if it is missing, and print its path."""
    try:
        binary = installed_gateway()
    except ServiceMissingError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{binary}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
