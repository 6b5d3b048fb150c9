"""The options that every command takes, and what they open."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import blobmap
from blobmap.cli.output import warn
from blobmap.errors import UsageError
from blobmap.manifests import ManifestStore
from blobmap.roots import OWN, check_roots, local_path
from blobmap.s3_address import DEFAULT_EXCLUDE, StorageOptions
from blobmap.storage import empty_storage, open_storage

if TYPE_CHECKING:
    from blobmap.storage import Storage


def add_global_options(parser: argparse.ArgumentParser, *, level: int) -> None:
    """Declare the global options on one parser.

    Args:
        parser: where they go.
        level: 0 for the program, 1 for a command, 2 for an action of a command. From 1 on, an option that is not given
            must leave alone what was given before, so it has no default; `--exclude`, which adds up, has a place of
            its own at each level.
    """
    none = argparse.SUPPRESS if level else None
    off = argparse.SUPPRESS if level else False
    group = parser.add_argument_group("global options (before or after the command)")
    group.add_argument("--data", metavar="URL", default=none, help="the bucket: s3://bucket[/prefix] or a path")
    group.add_argument("--manifests", metavar="URL", default=none, help="the manifest root: a URL or a path of its own")
    group.add_argument(
        "--endpoint",
        metavar="URL",
        default=none,
        help="the S3 server, where it is not AWS; SSL_CERT_FILE: authorities to trust",
    )
    group.add_argument("--region", default=none, help="the S3 region")
    group.add_argument("--anonymous", action="store_true", default=off, help="no credentials, no signing")
    group.add_argument("--allow-http", action="store_true", default=off, help="let credentials travel over plain HTTP")
    group.add_argument("--virtual-hosted", action="store_true", default=off, help="the bucket is in the host name")
    group.add_argument(
        "--exclude",
        metavar="SEGMENT",
        action="append",
        default=none,
        dest=f"exclude_{level}",
        help=f'leave out keys with this segment, besides {", ".join(DEFAULT_EXCLUDE)}; "" clears the list',
    )
    group.add_argument(
        "--timeout", metavar="S", type=float, default=none, help="seconds for each request, all retries in"
    )
    group.add_argument("-v", "--verbose", action="store_true", default=off, help="show where an error came from")
    group.add_argument("--json", action="store_true", default=off, help="answer in JSON on stdout")
    group.add_argument(
        "--version", action="version", version=f"blobmap {blobmap.__version__}", help="print the version and end"
    )


def excluded(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the segments to leave out: the defaults and what was added since the last `--exclude ""`."""
    segments: list[str] = list(DEFAULT_EXCLUDE)
    given = [getattr(args, f"exclude_{level}", None) or () for level in range(3)]
    for segment in [segment for at_level in given for segment in at_level]:
        if segment == "":
            segments.clear()
        elif "/" in segment:
            raise UsageError(f"--exclude {segment!r}: one segment of a key, without a slash")
        else:
            segments.append(segment)
    return tuple(dict.fromkeys(segments))


def scope_given(text: str) -> str:
    """Return the scope that somebody typed, without the slash that completion leaves at its end.

    Raises:
        UsageError: this is no key of a prefix.
    """
    scope = text.removesuffix("/")
    if scope and not {"", ".", ".."}.isdisjoint(scope.split("/")):
        raise UsageError(f"scope {text!r} is no key: give segments with '/' between them, none empty, '.' or '..'")
    return scope


def open_data(args: argparse.Namespace) -> Storage:
    """Open `--data`. It is only ever read."""
    _check(args, "data")
    return open_storage(args.data, _storage_options(args, excluded(args)))


def open_manifests(args: argparse.Namespace, *, write: bool = False, may_be_missing: bool = False) -> ManifestStore:
    """Open `--manifests`.

    Args:
        args: the parsed command line.
        write: whether the command will write there; only then is a missing local directory made.
        may_be_missing: whether the command has an answer where nobody has made the local directory yet.
    """
    _check(args, "manifests")
    path = local_path(args.manifests)
    if may_be_missing and not write and path is not None and not path.exists():
        warn(f"--manifests {args.manifests!r} does not exist yet: taken for a root without manifests")
        return ManifestStore(empty_storage(args.manifests))
    # What is ours beside the manifests stays in sight, also where its name keeps it out of the data.
    exclude = tuple(segment for segment in excluded(args) if segment != OWN)
    return ManifestStore(open_storage(args.manifests, _storage_options(args, exclude), create=write))


def _check(args: argparse.Namespace, wanted: str) -> None:
    what = {"data": "the bucket", "manifests": "the manifest root"}
    if not getattr(args, wanted):
        raise UsageError(f"--{wanted} is missing: {what[wanted]}, as s3://bucket[/prefix] or as a path")
    if args.data and args.manifests:
        check_roots(args.data, args.manifests, excluded(args))


def _storage_options(args: argparse.Namespace, exclude: tuple[str, ...]) -> StorageOptions:
    timeout_s = StorageOptions().timeout_s if args.timeout is None else args.timeout
    if not 0 < timeout_s < float("inf"):
        raise UsageError(f"--timeout {timeout_s:g}: a number of seconds above 0")
    return StorageOptions(
        endpoint=args.endpoint,
        region=args.region,
        anonymous=args.anonymous,
        allow_http=args.allow_http,
        virtual_hosted=args.virtual_hosted,
        timeout_s=timeout_s,
        exclude=exclude,
    )
