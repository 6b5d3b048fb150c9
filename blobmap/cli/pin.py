"""Keep a prefix on disk on purpose.

A pin is set once and stays, also when its store is partitioned again. A date in it says when somebody wants to look at
it again; that it has passed is reported, and unpins nothing.
"""

from __future__ import annotations

import getpass
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from blobmap.cli.options import add_global_options, open_data, open_manifests, scope_given
from blobmap.cli.output import many, warn, write_json, write_line, write_table
from blobmap.cli.parsing import Parser, paragraphs
from blobmap.covered import covered_objects
from blobmap.covering import Covering
from blobmap.errors import UnreadableError, UsageError
from blobmap.manifest import Pin
from blobmap.pins import add_pin, list_pins, measure_pin, parse_until, remove_pin, total_pinned
from blobmap.policy import format_size
from blobmap.resolve import Trie

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from blobmap.manifest import Manifest
    from blobmap.pins import PinnedSize
    from blobmap.storage import Storage

_FIELDS: Final = ("prefix", "reason", "by", "at", "until")

ACTIONS: Final = {
    "add": "pin a prefix, or replace the pin that is on it",
    "remove": "take a pin away",
    "show": "list pins with what they hold, those that want looking at first",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `pin` and its actions take."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True, parser_class=Parser)
    add, remove, show = (
        actions.add_parser(name, help=text, description=paragraphs(__doc__ or "")) for name, text in ACTIONS.items()
    )
    for action in (add, remove):
        action.add_argument("scope", metavar="SCOPE", help="which has a manifest")
        action.add_argument(
            "prefix", metavar="PREFIX", nargs="?", default="", help="relative to SCOPE; all of it if left out"
        )
    show.add_argument("scope", metavar="SCOPE", nargs="?", help="only the pins of this scope")
    add.add_argument("--reason", metavar="TEXT", required=True, help="why, for whoever wonders later")
    add.add_argument("--until", metavar="DATE", help="when to look at it again: 2026-12-01, or 2026-12-01T12:00:00Z")
    add.add_argument("--by", metavar="NAME", help="who wants it (you)")
    for action, run_action in ((add, _add), (remove, _remove), (show, _show)):
        add_global_options(action, level=2)
        action.set_defaults(run_action=run_action)


def run(args: argparse.Namespace) -> int:
    """Do what the action says."""
    code: int = args.run_action(args)
    return code


def _add(args: argparse.Namespace) -> int:
    scope = scope_given(args.scope)
    if not args.reason.strip():
        raise UsageError("--reason is empty: say why, since nobody removes a pin that nobody can explain")
    pin = Pin(
        prefix=args.prefix.removesuffix("/"),
        reason=args.reason,
        by=args.by or _user(),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        until=parse_until(args.until) if args.until is not None else None,
    )
    data = open_data(args) if args.data else None
    manifest = add_pin(open_manifests(args), scope, pin)
    _say("pinned", manifest, pin.prefix, as_json=args.json)
    if data is None:
        warn("without --data nobody can see whether the prefix holds anything")
    else:
        _warn_if_empty(data, scope, pin.prefix)
    return 0


def _remove(args: argparse.Namespace) -> int:
    manifest = remove_pin(open_manifests(args), scope_given(args.scope), args.prefix)
    _say("no longer pinned", manifest, args.prefix.removesuffix("/"), as_json=args.json)
    return 0


def _show(args: argparse.Namespace) -> int:
    manifests = open_manifests(args)
    data = open_data(args) if args.data else None
    if args.scope is None:
        held = list(manifests.load_all())
        trie, problems = Trie(), manifests.problems
        trie.add_all(held)
    else:
        covering = Covering(manifests)
        covering.around(scope_given(args.scope))
        held = [manifests.read(scope_given(args.scope)).manifest]
        trie, problems = covering.trie, covering.problems

    def measure(manifest: Manifest, pin: Pin) -> tuple[int, int] | None:
        return measure_pin(data, trie, manifest.scope, pin) if data is not None else None

    pins = list_pins(held, now=datetime.now(UTC), measure=measure)
    if args.json:
        objects, stored_bytes = total_pinned(pins)
        rows = [_as_json(found) for found in pins]
        write_json({"pins": rows, "objects": objects, "bytes": stored_bytes, "problems": problems})
    else:
        _show_table(pins)
    for problem in problems:
        warn(problem)
    if data is None:
        warn("without --data nobody can count what the pins hold")
    return UnreadableError.exit_code if problems else 0


def _say(what: str, manifest: Manifest, prefix: str, *, as_json: bool) -> None:
    if as_json:
        pins = [{name: getattr(pin, name) for name in _FIELDS} for pin in manifest.pinned]
        write_json({"scope": manifest.scope, "epoch": manifest.epoch, "prefix": prefix, "pins": pins})
    else:
        where = f"{prefix!r} of {manifest.scope!r}" if prefix else f"all of {manifest.scope!r}"
        write_line(f"{what}: {where}, epoch {manifest.epoch}")


def _warn_if_empty(data: Storage, scope: str, prefix: str) -> None:
    full = "/".join(part for part in (scope, prefix) if part)
    if next(covered_objects(data, full), None) is None:
        doubled = scope and f"{prefix}/".startswith(f"{scope}/")
        hint = ": PREFIX is relative to SCOPE" if doubled else ": is it spelled right?"
        warn(f"nothing is stored below {full!r}, so the pin holds nothing{hint}")


def _show_table(pins: Sequence[PinnedSize]) -> None:
    if not pins:
        warn("no pins")
        return
    write_table(
        ("scope", "prefix", "objects", "size", "until", "look at", "by", "reason"),
        [
            (
                found.scope or '""',
                found.pin.prefix or "(all)",
                "-" if found.objects is None else f"{found.objects:,}",
                "-" if found.stored_bytes is None else format_size(found.stored_bytes),
                found.pin.until or "-",
                ", ".join(found.concerns) or "-",
                found.pin.by or "-",
                found.pin.reason,
            )
            for found in pins
        ],
        right=(2, 3),
    )
    objects, stored_bytes = total_pinned(pins)
    holding = (
        "" if objects is None or stored_bytes is None else f", {many(objects, 'object')}, {format_size(stored_bytes)}"
    )
    concerns = Counter(concern for found in pins for concern in found.concerns)
    listed = ", ".join(f"{count} {concern}" for concern, count in concerns.items())
    write_line(f"{many(len(pins), 'pin')}{holding}" + (f": {listed}" if listed else ""))


def _as_json(found: PinnedSize) -> dict[str, object]:
    pin = {name: getattr(found.pin, name) for name in _FIELDS}
    return {
        "scope": found.scope,
        **pin,
        "concerns": list(found.concerns),
        "objects": found.objects,
        "bytes": found.stored_bytes,
    }


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name for this user id, as in many containers
        return None
