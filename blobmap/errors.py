"""Every error that this project raises on purpose, grouped by what the catcher does.

A class carries the exit code of a command that ends with it, and whether trying again later can help. The text of an
error is one line for a person: what was given, what is allowed, and where.
"""

from __future__ import annotations

from typing import ClassVar


class BlobmapError(Exception):
    """Root of the tree.

    Attributes:
        exit_code: what a command exits with when this error ends it (the table is in the README).
        retryable: whether the same call can succeed later without anybody changing anything.
    """

    exit_code: ClassVar[int] = 2
    retryable: ClassVar[bool] = False


class UsageError(BlobmapError):
    """The call or the configuration is wrong: change it."""


class UnavailableError(BlobmapError):
    """A store or a broker cannot be reached just now: try again later."""

    exit_code = 3
    retryable = True


class RefusedError(BlobmapError):
    """A store or a broker answered, and will not serve us: credentials, rights, a missing bucket."""

    exit_code = 3


class ConflictError(BlobmapError):
    """Somebody else changed it meanwhile: read again, then decide again."""

    exit_code = 4
    retryable = True


class UnreadableError(BlobmapError):
    """Something that was read is not what it has to be: leave it alone and name it."""

    exit_code = 5


class ManifestError(UnreadableError):
    """A manifest that breaks its format, or lies where it does not belong."""


class DocumentError(UnreadableError):
    """A zarr metadata document that cannot be understood."""


class ListingError(UnreadableError):
    """A prefix that could not be listed whole: the rest must never be taken for all of it."""


class MissingError(UnreadableError):
    """There is no such object, store or scope."""
