"""What can be found about a manifest, and the checks that find it: each looks at one manifest and what lies below it.

A check yields a finding for each thing that it finds and nothing where all is well. It reads what was counted before;
only pins and neighbours are looked up in the bucket itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from blobmap.census import Size
from blobmap.claims import own_claims
from blobmap.covered import covered_objects
from blobmap.decisions import Before
from blobmap.errors import UsageError
from blobmap.overlap import overlap
from blobmap.partition import plan_partition
from blobmap.policy import format_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from blobmap.inventory import Inventory
    from blobmap.manifest import Manifest
    from blobmap.roles import Standing
    from blobmap.storage import Storage
    from blobmap.tally import Measured

FindingKind = Literal[
    "unreadable",
    "nothing stored",
    "same id",
    "same prefix",
    "no objects",
    "misfit",
    "no encoding",
    "claims metadata",
    "claims coordinate",
    "two scopes",
    "width",
    "dangling pin",
    "document",
]
"""What can be found.

unreadable: the manifest, or what is remembered beside it, breaks its format or lies where it does not belong.
nothing stored: no object lies in its scope. same id, same prefix: two of its rules share one. no objects: a rule
matches none, and is not of an array that waits for its first one. misfit: the arithmetic of a rule fits none of the
objects below its prefix. no encoding: an array has objects for which no rule can be written. claims metadata, claims
coordinate: a rule covers what must stay on disk. two scopes: objects match rules of two manifests. width: today a rule
would be cut very differently. dangling pin: a pin holds nothing. document: a metadata document in the scope cannot be
understood.
"""

_FAR: Final = 4  # powers of two and a mean that drifts make a width differ by up to 2; more is said
_NAMED: Final = 4  # arrays that a finding names
_ALWAYS_HOT: Final = ("dimension coordinate", "scalar")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    Attributes:
        scope: of the manifest.
        kind: what it is.
        subject: the rule, pin, array or other scope that it is about; "" for the manifest itself.
        text: for people.
    """

    scope: str
    kind: FindingKind
    subject: str
    text: str


def check_all(manifest: Manifest, neighbours: Iterable[Manifest], inventory: Inventory, data: Storage) -> list[Finding]:
    """Look at one manifest in every way.

    Args:
        manifest: to look at.
        neighbours: those of the scopes around it.
        inventory: what lies in its scope.
        data: the bucket.

    Returns:
        What was found.

    Raises:
        UnavailableError: the bucket cannot be reached.
        RefusedError: the bucket does not serve us.
    """
    found = [*check_form(manifest), *check_pins(manifest, data)]
    if not any(size.objects for size in inventory.sizes_below(manifest.scope).values()):
        said = f"nothing is stored below {manifest.scope!r}: was the store removed or renamed?"
        return [Finding(manifest.scope, "nothing stored", "", said), *found]
    arrays, standings = inventory.arrays_below(manifest.scope)
    rules = {path: claim.rule.id for path, claim in own_claims(manifest, arrays).items() if claim.rule is not None}
    found += check_rules(manifest, rules, inventory)
    found += check_arrays(manifest, arrays, inventory)
    found += check_hot(manifest, rules, standings, inventory)
    found += check_widths(manifest, arrays, standings)
    for neighbour in neighbours:
        found += check_overlap(manifest, neighbour, data)
    return found


def check_form(manifest: Manifest) -> Iterator[Finding]:
    """Find rules of one manifest that the format lets stand and that cannot both be meant."""
    ids = Counter(blob.id for blob in manifest.blobs)
    prefixes = Counter(prefix.removesuffix("/") for blob in manifest.blobs for prefix in blob.prefixes)
    for name, count in ids.items():
        if count > 1:
            said = f"{count} rules are called {name!r}: their blobs cannot be told apart"
            yield Finding(manifest.scope, "same id", name, said)
    for prefix, count in prefixes.items():
        if count > 1:
            said = f"{count} rules have the prefix {prefix!r}: readers may take either"
            yield Finding(manifest.scope, "same prefix", prefix, said)


def check_rules(manifest: Manifest, rules: Mapping[str, str], inventory: Inventory) -> Iterator[Finding]:
    """Find rules that match no object, and say what becomes of those below their prefixes.

    Args:
        manifest: to look at.
        rules: id of the rule that claims an array, by path of the array.
        inventory: what lies in its scope.
    """
    for blob in manifest.blobs:
        if inventory.blobs.get((manifest.scope, blob.id), Size()).objects:
            continue
        below: defaultdict[str, int] = defaultdict(int)
        for prefix in blob.prefixes:
            for fate, size in inventory.sizes_below(_array_of(manifest, prefix)).items():
                below[fate] += size.objects
        where = ", ".join(map(repr, blob.prefixes))
        if below["unmanaged"] and blob.bucket is not None:
            said = (
                f"rule {blob.id!r} ({where}, {blob.bucket.key_encoding}) fits none of the {below['unmanaged']:,} "
                "objects that lie below: they are spelled otherwise, and stay unmanaged"
            )
            yield Finding(manifest.scope, "misfit", blob.id, said)
        elif not below["pinned"] and blob.id not in rules.values():
            claimed = "; what lies there is claimed otherwise" if below["blob"] or below["hot"] else ""
            said = f"rule {blob.id!r} ({where}) matches no object{claimed}"
            yield Finding(manifest.scope, "no objects", blob.id, said)


def check_arrays(manifest: Manifest, arrays: Sequence[Measured], inventory: Inventory) -> Iterator[Finding]:
    """Find arrays that have objects and can have no rule."""
    for array in arrays:
        path = array.layout.path
        if array.layout.obstacle is not None and "unmanaged" in inventory.sizes_at(_full(manifest, path)):
            said = f"no rule can be written for {path!r}: {array.layout.obstacle}"
            yield Finding(manifest.scope, "no encoding", path, said)


def check_hot(
    manifest: Manifest, rules: Mapping[str, str], standings: Mapping[str, Standing], inventory: Inventory
) -> Iterator[Finding]:
    """Find rules that cover what must never leave the disk.

    Args:
        manifest: to look at.
        rules: id of the rule that claims an array, by path of the array.
        standings: what each array is to the others, by path.
        inventory: what lies in its scope.
    """
    for blob in manifest.blobs:
        documents = sum(inventory.documents_below(_full(manifest, prefix)) for prefix in blob.prefixes)
        if blob.bucket is None and documents:
            said = (
                f"rule {blob.id!r} covers {documents:,} metadata documents: we never take them for a part of it, but "
                "somebody who reads the rule alone would"
            )
            yield Finding(manifest.scope, "claims metadata", blob.id, said)
    covered: defaultdict[str, list[str]] = defaultdict(list)
    for path, rule in rules.items():
        if standings[path].role in _ALWAYS_HOT:
            covered[rule].append(path)
    for rule, paths in covered.items():
        is_kept = all("blob" not in inventory.sizes_at(_full(manifest, path)) for path in paths)
        more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
        names = ", ".join(map(repr, paths[:_NAMED])) + more
        ending = "kept on disk by a hot pattern or a pin" if is_kept else "archivable now, and needed to open the store"
        yield Finding(
            manifest.scope, "claims coordinate", rule, f"rule {rule!r} claims coordinates ({names}), {ending}"
        )


def check_widths(
    manifest: Manifest, arrays: Sequence[Measured], standings: Mapping[str, Standing]
) -> Iterator[Finding]:
    """Find rules whose width is far from what it would be if they were cut today."""
    stored = [array for array in arrays if array.objects]
    try:
        plan = plan_partition(manifest.scope, stored, standings, Before(manifest), force=True)
    except UsageError as error:
        yield Finding(manifest.scope, "width", "", f"widths cannot be judged: {error}")
        return
    today = {prefix: blob for blob in plan.manifest.blobs for prefix in blob.prefixes}
    sizes = {row.blobs.id: row.blobs for row in plan.decisions if row.blobs is not None}
    for blob in manifest.blobs:
        anew = today.get(blob.prefixes[0].removesuffix("/"))
        if blob.bucket is None or anew is None or anew.bucket is None or anew.bucket.index != blob.bucket.index:
            continue
        now, then = anew.bucket.width, blob.bucket.width
        if max(now, then) >= _FAR * min(now, then):
            blob_bytes = sizes[anew.id].blob_bytes * then // now
            said = (
                f"rule {blob.id!r} has width {then}, would be {now} today: a whole blob holds "
                f"{format_size(blob_bytes)} at the present sizes; only force cuts it anew"
            )
            yield Finding(manifest.scope, "width", blob.id, said)


def check_overlap(manifest: Manifest, outer: Manifest, data: Storage) -> Iterator[Finding]:
    """Find objects that a rule of the manifest and one of a scope around it both match."""
    found = overlap(data, manifest, outer)
    if found is not None:
        said = (
            f"{found.objects:,} objects ({format_size(found.stored_bytes)}) match rules of scope {outer.scope!r} too, "
            f"the first is {found.first!r}: the longest prefix decides"
        )
        yield Finding(manifest.scope, "two scopes", outer.scope, said)


def check_pins(manifest: Manifest, data: Storage) -> Iterator[Finding]:
    """Find pins below which nothing lies."""
    for pin in manifest.pinned:
        if next(covered_objects(data, _full(manifest, pin.prefix)), None) is None:
            said = f"the pin on {pin.prefix!r} holds nothing: {pin.reason}"
            yield Finding(manifest.scope, "dangling pin", pin.prefix, said)


def _full(manifest: Manifest, prefix: str) -> str:
    return "/".join(part for part in (manifest.scope, prefix.removesuffix("/")) if part)


def _array_of(manifest: Manifest, prefix: str) -> str:
    """The array that a rule's prefix is of: objects are counted by arrays, and the `c` of their keys is no node."""
    return _full(manifest, prefix).removesuffix("/c")
