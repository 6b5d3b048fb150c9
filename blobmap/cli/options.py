"""The options that every command takes, and what they open."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from blobmap.errors import UsageError
from blobmap.manifests import ManifestStore
from blobmap.storage import DEFAULT_EXCLUDE, StorageOptions, open_storage

if TYPE_CHECKING:
    from blobmap.storage import Storage


def add_global_options(parser: argparse.ArgumentParser, *, after: bool) -> None:
    """Declare the global options on the main parser, or on a command's.

    Args:
        parser: where they go.
        after: whether this is a command's parser. There an option that is not given must leave alone what was given
            before the command, so it has no default; `--exclude`, which adds up, gets a place of its own.
    """
    none = argparse.SUPPRESS if after else None
    off = argparse.SUPPRESS if after else False
    group = parser.add_argument_group("global options (before or after the command)")
    group.add_argument("--data", metavar="URL", default=none, help="the bucket: s3://bucket[/prefix] or a path")
    group.add_argument("--manifests", metavar="URL", default=none, help="the manifest root: a URL or a path of its own")
    group.add_argument("--endpoint", metavar="URL", default=none, help="the S3 server, where it is not AWS")
    group.add_argument("--region", default=none, help="the S3 region")
    group.add_argument("--anonymous", action="store_true", default=off, help="no credentials, no signing")
    group.add_argument("--allow-http", action="store_true", default=off, help="let credentials travel over plain HTTP")
    group.add_argument("--virtual-hosted", action="store_true", default=off, help="the bucket is in the host name")
    group.add_argument(
        "--exclude",
        metavar="SEGMENT",
        action="append",
        default=none,
        dest="exclude_after" if after else "exclude",
        help=f'leave out keys with this segment, besides {", ".join(DEFAULT_EXCLUDE)}; "" clears the list',
    )
    group.add_argument(
        "--timeout", metavar="S", type=float, default=none, help="seconds for each request, all retries in"
    )
    group.add_argument("-v", "--verbose", action="store_true", default=off, help="show where an error came from")
    group.add_argument("--json", action="store_true", default=off, help="answer in JSON on stdout")


def excluded(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the segments to leave out: the defaults and what was added since the last `--exclude ""`."""
    segments: list[str] = list(DEFAULT_EXCLUDE)
    for segment in [*(args.exclude or ()), *getattr(args, "exclude_after", ())]:
        if segment == "":
            segments.clear()
        elif "/" in segment:
            raise UsageError(f"--exclude {segment!r}: one segment of a key, without a slash")
        else:
            segments.append(segment)
    return tuple(dict.fromkeys(segments))


def storage_options(args: argparse.Namespace) -> StorageOptions:
    """Return what the global options say about reaching a store."""
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
        exclude=excluded(args),
    )


def open_data(args: argparse.Namespace) -> Storage:
    """Open `--data`. It is only ever read."""
    if not args.data:
        raise UsageError("--data is missing: the bucket, as s3://bucket[/prefix] or as a path")
    return open_storage(args.data, storage_options(args))


def open_manifests(args: argparse.Namespace, *, write: bool = False) -> ManifestStore:
    """Open `--manifests`.

    Args:
        args: the parsed command line.
        write: whether the command will write there; only then is a missing local directory made.
    """
    if not args.manifests:
        raise UsageError("--manifests is missing: the manifest root, as s3://bucket[/prefix] or as a path")
    return ManifestStore(open_storage(args.manifests, storage_options(args), create=write))
