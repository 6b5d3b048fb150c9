"""What is wrong with a configuration, in words: what was given, what is allowed.

No message shows the value of a key that holds a secret.
"""

from __future__ import annotations

import difflib
from collections import Counter
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, SecretStr

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pydantic_core import ErrorDetails


def describe(fault: ErrorDetails, model: type[BaseModel], given: Mapping[str, Any]) -> str:
    """Says what one fault is that pydantic found.

    Args:
        fault: one of `ValidationError.errors()`.
        model: the model that was validated.
        given: the values that were validated.

    Returns:
        One line, without the place.
    """
    location = fault["loc"]
    holder = _model_at(model, location[:-1])
    if fault["type"] == "extra_forbidden" and holder is not None:
        close = nearest(str(location[-1]), holder.model_fields)
        known = ", ".join(holder.model_fields)
        return "unknown key; " + (f"the nearest one is {close}" if close else f"known are {known}")
    if fault["type"] == "missing":
        return "is missing"
    if fault["type"] == "value_error":  # our own words, which show what may be shown
        return fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "model_type":  # what stands there instead may be a URL with everything in it
        return "must be a table"
    allowed = fault["msg"].removeprefix("Input should be ")
    if holder is not None and _is_secret(holder, str(location[-1])):
        return allowed
    value = _value_at(given, location)
    return f"given {value!r}: {allowed}" if isinstance(value, str | int | float) else allowed


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that somebody may have meant, None where nothing comes near."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)), None)


def between_sections(tree: Mapping[str, Any]) -> Iterator[str]:
    """Finds what no section by itself can see; reads whatever is there, valid or not.

    Args:
        tree: the merged configuration.

    Yields:
        One line a fault.
    """
    yield from _transport(tree)
    buckets = [bucket for bucket in _tables(tree, "bucket") if isinstance(bucket.get("name"), str)]
    names = [bucket["name"] for bucket in buckets]
    yield from (f"bucket {name!r} is configured {count} times" for name, count in Counter(names).items() if count > 1)
    yield from _roots(buckets)
    yield from _movers(tree, names)


def _transport(tree: Mapping[str, Any]) -> Iterator[str]:
    broker, embedded = "amqp" in tree, "embedded" in tree
    if broker == embedded:
        yield f"{'both [amqp] and' if broker else 'neither [amqp] nor'} [embedded] given: it must be one of them"
        return
    source = _section(tree, "source")
    if embedded and source.get("kind") == "amqp":
        yield "source.kind 'amqp' does not go with [embedded]"
    bridged = broker and source.get("kind") == "webhook"
    if bridged and "spool" not in source:
        yield "source.spool is missing: where [amqp] has the broker, events that are posted wait for it in a file"
    if not bridged:
        yield from (
            f"source.{key} goes with [amqp] and source.kind 'webhook' only"
            for key in ("spool", "spool_max")
            if key in source
        )
    if embedded and _section(tree, "sink").get("kind") == "amqp":
        yield "sink.kind 'amqp' does not go with [embedded]"
    amqp = _section(tree, "amqp")
    parts = sorted({"host", "port", "user", "password", "vhost"} & amqp.keys())
    if "url" in amqp and parts:
        yield f"amqp.url and amqp.{parts[0]} are both given: the URL says it all"


def _roots(buckets: list[dict[str, Any]]) -> Iterator[str]:
    """Manifest roots must not be shared or nested: one bucket would read the manifests of another."""
    roots = [
        (str(bucket["manifests"]).rstrip("/") + "/", bucket["name"]) for bucket in buckets if bucket.get("manifests")
    ]
    for index, (root, name) in enumerate(roots):
        for other, owner in roots[index + 1 :]:
            if root.startswith(other) or other.startswith(root):
                yield f"bucket {owner!r}: manifests {other!r} and {root!r} of bucket {name!r} share a root"
    for bucket in buckets:
        if str(bucket.get("manifests")).rstrip("/") == str(bucket.get("data") or f"s3://{bucket['name']}").rstrip("/"):
            yield f"bucket {bucket['name']!r}: data and manifests are one place: manifests need a root of their own"


def _movers(tree: Mapping[str, Any], buckets: list[str]) -> Iterator[str]:
    movers = _tables(tree, "mover")
    names = Counter(str(mover.get("name")) for mover in movers)
    yield from (f"mover {name!r} is configured {count} times" for name, count in names.items() if count > 1)
    listed: set[str] = set()
    for mover in movers:
        wanted = mover.get("buckets")
        for bucket in wanted if isinstance(wanted, list) else ():
            listed.add(bucket)
            if bucket not in buckets:
                yield f"mover {mover.get('name')!r} lists bucket {bucket!r}, which is none of {', '.join(buckets)}"
    if movers:
        yield from (f"no mover lists bucket {bucket!r}" for bucket in dict.fromkeys(buckets) if bucket not in listed)


def _tables(tree: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    value = tree.get(name)
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _section(tree: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = tree.get(name)
    return value if isinstance(value, dict) else {}


def _model_at(model: type[BaseModel] | None, location: tuple[int | str, ...]) -> type[BaseModel] | None:
    for part in location:
        if model is None or isinstance(part, int):
            continue
        field = model.model_fields.get(part)
        model = None if field is None else next(iter(_models_in(field.annotation)), None)
    return model


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _is_secret(model: type[BaseModel], name: str) -> bool:
    field = model.model_fields.get(name)
    return field is not None and SecretStr in (field.annotation, *get_args(field.annotation))


def _value_at(tree: Any, location: tuple[int | str, ...]) -> object:
    for part in location:
        tree = tree[part]
    return tree
