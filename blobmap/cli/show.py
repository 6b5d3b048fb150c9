"""List the known scopes, or say in words what one manifest does.

Without SCOPE: every manifest with its epoch and how much it names. With SCOPE: its rules, what it keeps hot, its pins
and the thresholds that it was cut with.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from blobmap.cli.options import open_manifests, scope_given
from blobmap.cli.output import many, printable, warn, write_json, write_line, write_table
from blobmap.errors import UnreadableError
from blobmap.manifest import read_hot_pattern, render_manifest
from blobmap.policy import format_size
from blobmap.rules import separator_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from blobmap.manifest import Blob, Manifest, Pin
    from blobmap.manifests import ManifestStore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `show` takes."""
    parser.add_argument("scope", metavar="SCOPE", nargs="?", help='one scope; "" for that of the whole bucket')


def run(args: argparse.Namespace) -> int:
    """Show all scopes or one; exit 5 if a manifest cannot be read."""
    manifests = open_manifests(args)
    if args.scope is None:
        return _show_all(manifests, as_json=args.json)
    manifest = manifests.read(scope_given(args.scope)).manifest
    if args.json:
        write_json(json.loads(render_manifest(manifest)))
    else:
        for line in _in_words(manifest):
            write_line(printable(line))
    return 0


def _show_all(manifests: ManifestStore, *, as_json: bool) -> int:
    rows = sorted(
        (
            manifest.scope,
            manifest.epoch,
            len(manifest.blobs),
            len(manifest.hot_always),
            len(manifest.pinned),
            manifest.generated_at,
        )
        for manifest in manifests.load_all()
    )
    if as_json:
        names = ("scope", "epoch", "rules", "hot_patterns", "pins", "generated_at")
        write_json({"scopes": [dict(zip(names, row, strict=True)) for row in rows], "problems": manifests.problems})
    elif rows:
        write_table(
            ("scope", "epoch", "rules", "hot", "pins", "written"),
            [(scope or '""', *map(str, counts), at or "-") for scope, *counts, at in rows],
            right=(1, 2, 3, 4),
        )
    else:
        warn("no manifests here yet")
    for problem in manifests.problems:
        warn(problem)
    return UnreadableError.exit_code if manifests.problems else 0


def _in_words(manifest: Manifest) -> Iterator[str]:
    made = " ".join(
        part for part in (manifest.generated_at, manifest.generated_by and f"by {manifest.generated_by}") if part
    )
    yield f"scope {manifest.scope!r}, epoch {manifest.epoch}" + (f", written {made}" if made else "")
    if manifest.policy is not None:
        said = (f"{name} {_threshold(name, value)}" for name, value in manifest.policy.items())
        yield f"cut with {', '.join(said)}"
    yield many(len(manifest.blobs), "rule") + (":" if manifest.blobs else ": nothing is archivable")
    for blob in manifest.blobs:
        yield f"  {_rule(blob)}"
    yield "always on disk:"
    for pattern in manifest.hot_always:
        kind, text = read_hot_pattern(pattern)
        yield f"  every object called {text}" if kind == "name" else f"  {_place(text)}"
    for pin in manifest.pinned:
        yield f"pinned: {_pin(pin)}"


def _rule(blob: Blob) -> str:
    below = ", ".join(_place(prefix) for prefix in blob.prefixes)
    if blob.bucket is None:
        return f"{below} -> {blob.id}_0, all of it"
    parts = [f"<{at}>" for at in range(blob.bucket.index)] if blob.bucket.index < 6 else ["..."]
    spelled = separator_of(blob.bucket).join([*parts, "<n>"])
    many = f"{blob.bucket.width} indices a blob" if blob.bucket.width > 1 else "one index a blob"
    return f"{below}, then {spelled} -> {blob.id}_{{n // {blob.bucket.width}}}, {many}"


def _place(prefix: str) -> str:
    return repr(prefix) if prefix else "the whole scope"


def _pin(pin: Pin) -> str:
    by = f" by {pin.by}" if pin.by else ""
    return f"{_place(pin.prefix)}{by}, until {pin.until or 'further notice'}: {pin.reason}"


def _threshold(name: str, value: int) -> str:
    return format_size(value) if name.endswith("_bytes") else str(value)
