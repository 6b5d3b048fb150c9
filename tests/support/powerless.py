"""To be somebody without rights: root reads and writes whatever the mode says, so tests of refused rights step down."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_NOBODY = 65534


@contextmanager
def powerless() -> Iterator[Path]:
    """A directory of one's own, as a user who has no rights but those that a mode gives; no link leads to it."""
    directory = Path(tempfile.mkdtemp(prefix="blobmap-test-")).resolve()
    is_root = os.geteuid() == 0
    if is_root:
        os.chown(directory, _NOBODY, _NOBODY)
        os.seteuid(_NOBODY)
    try:
        yield directory
    finally:
        if is_root:
            os.seteuid(0)
        directory.chmod(0o700)
        for above, names, _ in os.walk(directory):  # looks into each of the names only after this
            for name in names:
                (Path(above) / name).chmod(0o700)
        shutil.rmtree(directory)
