"""What becomes of one parsed entry of a message: emit, withhold, relist, ignore, unclaimed, document or refuse.

Pure: it asks the tries, which answer from memory, and decides. Nothing here knows of queues, batches or clocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from blobmap.chunk_keys import METADATA_NAMES, ChunkKeyEncoding
from consumer.events import GatewayTest, ObjectEvent, Parsed, Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blobmap.resolve import Trie
    from blobmap.rules import Kind, Resolution

IgnoreReason: TypeAlias = Literal[
    "test-event",  # the gateway tried its target
    "no-news",  # neither created nor removed
    "manifest-bucket",  # our own manifests, or somebody's work on them
    "foreign-bucket",  # a bucket that is not configured
    "directory-marker",  # a trailing slash: an object without bytes of anybody
    "metadata",  # never archivable, whatever a manifest says; its removal makes no store
    "hot",
    "pinned",
    "own-principal",  # written by an account whose writes are not news, where no blob has it
    "removed-unclaimed",  # nobody was ever told of it, so nobody needs to hear that it is gone
]

RelistReason: TypeAlias = Literal[
    "empty-key",  # the gateway lost the key
    "odd-key",  # no listing shows such a key: the gateway may know the object by another one
]


# Only a group has them.
_OF_GROUPS = frozenset({".zgroup", ".zmetadata"})

# Below an array, a chunk in every spelling; a rule reads as many indices as it wants, and an array has no more axes.
_MOST_AXES = 64
_SPELLINGS = (
    ChunkKeyEncoding("default", "/"),
    ChunkKeyEncoding("default", "."),
    ChunkKeyEncoding("v2", "/"),
    ChunkKeyEncoding("v2", "."),
)
_CHUNKS = tuple(spelling.encode((0,) * _MOST_AXES) for spelling in _SPELLINGS)

_KEPT_ON_DISK: dict[Kind, IgnoreReason] = {"hot": "hot", "pinned": "pinned"}


class Emit(NamedTuple):
    """A mover has to hear of it.

    Attributes:
        event: what happened.
        scope: scope of the claim.
        blob_id: the blob that the object belongs to, unique within the scope.
        epoch: epoch of the manifest that said so.
    """

    event: ObjectEvent
    scope: str
    blob_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Withheld:
    """A blob has it, and an account wrote it whose writes are not news: noted, but no mover hears of it.

    Attributes:
        event: what happened.
        scope: scope of the claim.
        blob_id: the blob that the object belongs to, unique within the scope.
    """

    event: ObjectEvent
    scope: str
    blob_id: str


@dataclass(frozen=True, slots=True)
class Relist:
    """Something changed in a bucket, and the event does not say at which key: only a listing can tell.

    Attributes:
        event: what happened.
        reason: what is wrong with its key.
    """

    event: ObjectEvent
    reason: RelistReason


@dataclass(frozen=True, slots=True)
class Ignore:
    """No news: counted by its reason, and that is all."""

    reason: IgnoreReason


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """A new object that no rule covers: its store has to be flagged.

    Attributes:
        event: what happened.
        scope: the longest scope above the key, None where there is none.
    """

    event: ObjectEvent
    scope: str | None


@dataclass(frozen=True, slots=True)
class Document:
    """A zarr document was written: never archivable, yet it can make a store of objects that were none before.

    Attributes:
        event: what happened.
        scope: the longest scope above it, None where there is none.
        known: nothing has to be done about it: what it describes is claimed or kept on disk, or is a group of a scope
            as far as its name tells, or the writer is an account whose writes are not news.
    """

    event: ObjectEvent
    scope: str | None
    known: bool


Outcome: TypeAlias = Emit | Withheld | Relist | Ignore | Unclaimed | Document | Refusal


@dataclass(frozen=True, slots=True)
class Rules:
    """What of the configuration decides about an event.

    Attributes:
        own_principals: accounts whose writes are not news.
        manifest_roots: for each bucket that holds manifests, the prefixes below which they lie (`""`: all of it).
    """

    own_principals: frozenset[str] = frozenset()
    manifest_roots: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def route(parsed: Parsed, tries: Mapping[str, Trie], rules: Rules) -> Outcome:
    """Decides about one entry.

    Args:
        parsed: what `parse_message` gave.
        tries: the manifests in force, by bucket; a bucket that is not in it is not ours.
        rules: what the configuration says.

    Returns:
        The outcome. Total: never raises.
    """
    if isinstance(parsed, Refusal):
        return parsed
    if isinstance(parsed, GatewayTest):
        return Ignore("test-event")
    reason = _place_reason(parsed, tries, rules)
    if reason is not None:
        return Ignore(reason)
    return _by_key(parsed, tries[parsed.bucket], rules)


def _place_reason(event: ObjectEvent, tries: Mapping[str, Trie], rules: Rules) -> IgnoreReason | None:
    """The reasons that neither a key's form nor a manifest has a say in."""
    if event.kind == "other":
        return "no-news"
    if any(_below(event.key, root) for root in rules.manifest_roots.get(event.bucket, ())):
        return "manifest-bucket"
    if event.bucket not in tries:
        return "foreign-bucket"
    return None


def _below(key: str, prefix: str) -> bool:
    return not prefix or key == prefix or key.startswith(prefix + "/")


def _by_key(event: ObjectEvent, trie: Trie, rules: Rules) -> Outcome:
    """What the key alone decides, then the manifests.

    An empty, `.` or `..` segment is kept by S3 and folded away by a gateway over a file system, so that the event's
    key and the listing's key differ: such a key is never answered, a listing has to tell the object.
    """
    if not event.key:
        return Relist(event, "empty-key")
    segments = event.key.split("/")
    marker = segments[-1] == "" and len(segments) > 1
    if marker:
        segments.pop()
    if "" in segments or "." in segments or ".." in segments:
        return Relist(event, "odd-key")
    if marker:
        return Ignore("directory-marker")
    if segments[-1] in METADATA_NAMES:
        return _document(event, trie, rules) if event.kind == "created" else Ignore("metadata")
    return _by_claim(event, trie.lookup(event.key), rules)


def _document(event: ObjectEvent, trie: Trie, rules: Rules) -> Document:
    """Says whether a document that was written can be news."""
    scope = trie.lookup(event.key).scope
    if event.principal in rules.own_principals:
        return Document(event, scope, known=True)
    if scope is None:
        return Document(event, None, known=False)
    prefix, _, name = event.key.rpartition("/")
    return Document(event, scope, known=prefix == scope or name in _OF_GROUPS or _is_claimed(prefix, trie))


def _is_claimed(prefix: str, trie: Trie) -> bool:
    """Whether chunks of an array at this prefix would lie under a rule, a hot pattern or a pin."""
    return any(trie.lookup(f"{prefix}/{chunk}").kind != "unmanaged" for chunk in _CHUNKS)


def _by_claim(event: ObjectEvent, answer: Resolution, rules: Rules) -> Outcome:
    """What the manifests in force decide."""
    kept = _KEPT_ON_DISK.get(answer.kind)
    if kept is not None:
        return Ignore(kept)
    own = event.principal in rules.own_principals
    if answer.blob_id is not None and answer.scope is not None and answer.epoch is not None:
        if own:
            return Withheld(event, answer.scope, answer.blob_id)
        return Emit(event, answer.scope, answer.blob_id, answer.epoch)
    if own:
        return Ignore("own-principal")
    if event.kind == "removed":
        return Ignore("removed-unclaimed")
    return Unclaimed(event, answer.scope)
