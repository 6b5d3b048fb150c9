"""The manifest of one scope: its types, their validation, its JSON, and how keys and patterns are named in it.

Here is what a manifest of format 3 may say. What a key means under it is told in `resolve`, where manifests are kept in
`manifests`. A value that exists is a valid one: everything is checked when it is made, whether it came from JSON or
from our own code. The constraints are those of the published format, which `manifest-v3.schema.json` beside this file
spells as JSON Schema; both accept and refuse the same documents. As in JSON Schema, a number without a fractional part
is an integer (`3.0` is 3), and a boolean is not a number.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args

from blobmap.chunk_keys import KeyEncoding
from blobmap.constraints import (
    ConstraintError,
    check_all,
    check_integer,
    check_optional_text,
    check_text,
    frozen_object,
    refuse,
    shown,
    within,
)
from blobmap.errors import ManifestError
from blobmap.strict_json import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SCHEMA_VERSION: Final = 3
SCHEMA_FILE: Final = "manifest-v3.schema.json"
"""The JSON Schema of the format, a file of this package."""
MAX_BYTES: Final = 64 * 2**20
"""A longer manifest is refused unread."""

# `width` and `index` lie below this.
_TOO_LARGE: Final = 2**63
_FILE: Final = "manifest.json"
# What this project keeps beside the manifests: below it nothing is one.
_OWN: Final = ".blobmap"
_ID: Final = re.compile(r"[a-z0-9_]+")
_KEY_ENCODINGS: Final[tuple[str, ...]] = get_args(KeyEncoding)
_HOT_ENDINGS: Final = ("/**", "/*", "**", "*")
_MANIFEST_REQUIRED: Final = ("schema_version", "scope", "epoch", "hot_always", "blobs")
_MANIFEST_OPTIONAL: Final = ("pinned", "policy", "generated_at", "generated_by", "provenance")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Bucket:
    """The arithmetic of a rule: which part of a chunk's key is divided, and by how much.

    Attributes:
        index: which segment below the rule's prefix (or dotted part of it) is divided, counted from 0.
        width: how many consecutive indices make one blob.
        key_encoding: how the parts are separated, see the resolution rules in `blobmap.resolve`.

    Raises:
        ManifestError: a value outside what format 3 allows.
    """

    index: int
    width: int
    key_encoding: KeyEncoding

    def __post_init__(self) -> None:
        check_integer("index", self.index, least=0, below=_TOO_LARGE)
        check_integer("width", self.width, least=1, below=_TOO_LARGE)
        if self.key_encoding not in _KEY_ENCODINGS:
            refuse("key_encoding", self.key_encoding, ", ".join(map(repr, _KEY_ENCODINGS)))


@dataclass(frozen=True, slots=True)
class Blob:
    """One rule: what lies below its prefixes belongs to blobs called `<id>_<n>`.

    Attributes:
        id: begins the identifiers of the rule's blobs.
        prefixes: relative to the scope, by whole segments; `""` is the whole scope.
        bucket: how `n` comes from a key; None: `n` is 0.

    Raises:
        ManifestError: a value outside what format 3 allows.
    """

    id: str
    prefixes: tuple[str, ...]
    bucket: Bucket | None

    def __post_init__(self) -> None:
        check_text("id", self.id)
        if _ID.fullmatch(self.id) is None:
            refuse("id", self.id, "one or more of a-z, 0-9 and _")
        check_all("prefixes", self.prefixes, str, "strings", least=1)
        if self.bucket is not None and not isinstance(self.bucket, Bucket):
            refuse("bucket", self.bucket, "a bucket or None")


@dataclass(frozen=True, slots=True)
class Pin:
    """A prefix that somebody keeps on disk on purpose.

    Attributes:
        prefix: relative to the scope, by whole segments; `""` pins the whole scope.
        reason: why; never empty.
        by: who set it.
        at: when, ISO 8601 UTC.
        until: when it should be looked at again, ISO 8601 UTC; None: open-ended. Never enforced.
        until_written: whether the document spells an open end as `null`, so that it is written as it was read.

    Raises:
        ManifestError: a value outside what format 3 allows.
    """

    prefix: str
    reason: str
    by: str | None = None
    at: str | None = None
    until: str | None = None
    until_written: bool = field(default=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_text("prefix", self.prefix)
        check_text("reason", self.reason, empty=False)
        for name in ("by", "at", "until"):
            check_optional_text(name, getattr(self, name))


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything that is written down about one scope.

    Attributes:
        scope: the prefix covered, relative to the bucket; `""` is the whole bucket.
        epoch: counts the changes of what follows up to `policy`.
        hot_always: patterns of what is never archivable, see `read_hot_pattern`.
        blobs: the rules.
        pinned: what is kept on disk on purpose.
        policy: thresholds in force when the cuts were made, by their names in the format (bytes, counts).
        generated_at: when it was written, ISO 8601 UTC.
        generated_by: the program that wrote it, and its version.
        provenance: measured numbers, for people; no resolution reads them.
        pinned_written: whether an empty `pinned` is spelled, so that it is written as it was read.

    Raises:
        ManifestError: a value outside what format 3 allows.
    """

    scope: str
    epoch: int
    hot_always: tuple[str, ...] = ()
    blobs: tuple[Blob, ...] = ()
    pinned: tuple[Pin, ...] = ()
    policy: Mapping[str, int] | None = None
    generated_at: str | None = None
    generated_by: str | None = None
    provenance: Mapping[str, object] | None = None
    pinned_written: bool = field(default=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_text("scope", self.scope)
        check_integer("epoch", self.epoch, least=1)
        check_all("hot_always", self.hot_always, str, "strings")
        check_all("blobs", self.blobs, Blob, "rules")
        check_all("pinned", self.pinned, Pin, "pins")
        check_optional_text("generated_at", self.generated_at)
        check_optional_text("generated_by", self.generated_by)
        for name in ("policy", "provenance"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, frozen_object(name, getattr(self, name), 2))
        for threshold, value in (self.policy or {}).items():
            check_integer(f"policy.{threshold}", value)


def manifest_key(scope: str) -> str:
    """Say where the manifest of a scope is kept, relative to the manifest root.

    Raises:
        ManifestError: no object can be kept for such a scope: it has an empty segment, `.` or `..`, or lies where this
            project keeps its own state.
    """
    if scope and not _is_place(scope):
        raise ManifestError(
            f"no manifest can be kept for scope {scope!r}, allowed: segments other than '', '.', '..', "
            f"the first not {_OWN!r}"
        )
    return f"{scope}/{_FILE}" if scope else _FILE


def scope_of_key(key: str) -> str | None:
    """Say whose manifest is kept under a key of the manifest root; None: the key is not that of a manifest."""
    scope, separator, name = key.rpartition("/")
    if name != _FILE or (separator and not _is_place(scope)):
        return None
    return scope


def _is_place(scope: str) -> bool:
    return scope.split("/", maxsplit=1)[0] != _OWN and is_addressable(scope)


def is_addressable(key: str) -> bool:
    """Say whether a key has only segments that a key may have: one that is empty, `.` or `..` makes it nobody's."""
    return not any(segment in ("", ".", "..") for segment in key.split("/"))


def read_hot_pattern(pattern: str) -> tuple[Literal["name", "prefix"], str]:
    """Say what a pattern of `hot_always` means.

    Returns:
        `"name"` and a last segment, for `**/NAME`; else `"prefix"` and a literal prefix relative to the scope: the
        pattern without one trailing `/**`, `/*`, `**` or `*`, and without one trailing `/`.
    """
    if pattern.startswith("**/") and "/" not in pattern[3:]:
        return "name", pattern[3:]
    for ending in _HOT_ENDINGS:
        if pattern.endswith(ending):
            pattern = pattern.removesuffix(ending)
            break
    return "prefix", pattern.removesuffix("/")


def hot_pattern(path: str) -> str | None:
    """Spell the pattern that keeps one array hot, and nothing beside it.

    Args:
        path: the array's path relative to the scope; `""` where the scope is the array.

    Returns:
        A pattern that `read_hot_pattern` reads back as this path, or None if there is none that every reader of the
        format reads so: then the array must be left out of the rules, which keeps it on disk as well.
    """
    if not path:
        return "**"
    if path.split("/", maxsplit=1)[0] == "**" or not is_addressable(path):
        return None
    return f"{path}/**"


def parse_manifest(data: bytes, *, source: str, scope: str | None = None) -> Manifest:
    """Read a manifest.

    Args:
        data: what was stored.
        source: the name of the object or file, for messages.
        scope: the scope whose manifest is kept in that place; None: the place says nothing.

    Returns:
        The manifest. `render_manifest` gives back the same JSON content.

    Raises:
        ManifestError: it is not a manifest of format 3, or not that of this place. The message names the source, the
            field, what was found and what is allowed.
    """
    try:
        manifest = _read_manifest(decode(data, most_bytes=MAX_BYTES))
        if scope is not None and manifest.scope != scope:
            refuse("scope", manifest.scope, f"{scope!r}, as it lies there")
    except ConstraintError as fault:
        raise ManifestError(f"{source}: {fault}") from None
    return manifest


def render_manifest(manifest: Manifest) -> bytes:
    """Write a manifest as strict JSON in UTF-8, fields always in the same order.

    Raises:
        ManifestError: it is longer than what we read.
    """
    document: dict[str, object] = {"schema_version": SCHEMA_VERSION, "scope": manifest.scope, "epoch": manifest.epoch}
    document |= _present(manifest, "generated_at", "generated_by", "policy")
    document["hot_always"] = manifest.hot_always
    if manifest.pinned or manifest.pinned_written:
        document["pinned"] = [_pin_document(pin) for pin in manifest.pinned]
    document["blobs"] = [_blob_document(blob) for blob in manifest.blobs]
    document |= _present(manifest, "provenance")
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2, default=dict) + "\n"
    # A lone surrogate has no UTF-8; its escape in Python's spelling is also its escape in JSON.
    data = text.encode("utf-8", "backslashreplace")
    if len(data) > MAX_BYTES:
        raise ManifestError(f"the manifest of {manifest.scope!r} has {len(data)} bytes, allowed: {MAX_BYTES}")
    return data


def _present(value: Manifest | Pin, *names: str) -> dict[str, object]:
    return {name: found for name in names if (found := getattr(value, name)) is not None}


def _blob_document(blob: Blob) -> dict[str, object]:
    bucket = blob.bucket
    return {
        "id": blob.id,
        "prefixes": blob.prefixes,
        "bucket": bucket and {"index": bucket.index, "width": bucket.width, "key_encoding": bucket.key_encoding},
    }


def _pin_document(pin: Pin) -> dict[str, object]:
    document = {"prefix": pin.prefix, "reason": pin.reason, **_present(pin, "by", "at", "until")}
    return {**document, "until": pin.until} if pin.until_written else document


def _read_manifest(document: dict[str, object]) -> Manifest:
    fields = _fields(document, _MANIFEST_REQUIRED, _MANIFEST_OPTIONAL)
    version = _integer(fields.pop("schema_version"))
    if version != SCHEMA_VERSION or isinstance(version, bool):
        refuse("schema_version", version, f"exactly {SCHEMA_VERSION}, another version is another format")
    if isinstance(policy := fields.get("policy"), dict):
        fields["policy"] = {name: _integer(value) for name, value in policy.items()}
    fields["epoch"] = _integer(fields["epoch"])
    fields["hot_always"] = _list("hot_always", fields["hot_always"])
    fields["blobs"] = _read_all("blobs", fields["blobs"], _read_blob)
    fields["pinned_written"] = "pinned" in fields
    fields["pinned"] = _read_all("pinned", fields.get("pinned", []), _read_pin)
    return Manifest(**fields)


def _read_blob(document: object) -> Blob:
    fields = _fields(document, ("id", "prefixes", "bucket"), ())
    fields["prefixes"] = _list("prefixes", fields["prefixes"])
    if fields["bucket"] is not None:
        with within("bucket"):
            bucket = _fields(fields["bucket"], ("index", "width", "key_encoding"), ())
            fields["bucket"] = Bucket(_integer(bucket["index"]), _integer(bucket["width"]), bucket["key_encoding"])
    return Blob(**fields)


def _read_pin(document: object) -> Pin:
    fields = _fields(document, ("prefix", "reason"), ("by", "at"), nullable=("until",))
    return Pin(**fields, until_written="until" in fields)


# Any: the types are checked by the value's own construction.
def _fields(
    document: object, required: Sequence[str], optional: Sequence[str], *, nullable: Sequence[str] = ()
) -> dict[str, Any]:
    if not isinstance(document, dict):
        refuse("", document, "an object")
    for name in required:
        if name not in document:
            raise ConstraintError(name, "missing", "a value, it is required")
    for name in document:
        if name not in required and name not in optional and name not in nullable:
            raise ConstraintError(
                "", f"one with a field {shown(name)}", f"only {', '.join((*required, *optional, *nullable))}"
            )
    for name in optional:
        # None stands for an absent field in our types; the format has no null here.
        if name in document and document[name] is None:
            refuse(name, None, "a value, or no such field")
    return dict(document)


def _integer(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _list(field: str, value: object) -> tuple[Any, ...]:
    if not isinstance(value, list):
        refuse(field, value, "a list")
    return tuple(value)


def _read_all(field: str, values: object, read: Callable[[object], _T]) -> tuple[_T, ...]:
    if not isinstance(values, list):
        refuse(field, values, "a list")
    result = []
    for number, value in enumerate(values):
        with within(f"{field}[{number}]"):
            result.append(read(value))
        values[number] = None  # all of them freed at once would stop every thread of the interpreter
    return tuple(result)
