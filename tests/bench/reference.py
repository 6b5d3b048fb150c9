"""The published blobmap 0.5.0 in an environment of its own, to be measured against: installed once, then cached."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

VERSION = "0.5.0"


def reference_python() -> Path:
    """The interpreter that has the published version; `BLOBMAP_BENCH_REFERENCE` names another one.

    Raises:
        CalledProcessError: it cannot be installed.
    """
    given = os.environ.get("BLOBMAP_BENCH_REFERENCE")
    if given:
        return Path(given)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "blobmap-bench" / f"reference-{VERSION}-py{sys.version_info.major}.{sys.version_info.minor}"
    python = home / "bin" / "python"
    if not (home / "complete").exists():
        venv.create(home, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", f"blobmap=={VERSION}"], check=True)
        (home / "complete").touch()
    return python
