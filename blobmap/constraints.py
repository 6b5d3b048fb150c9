"""What a value of a document must be, and how a refusal is said.

Here are checks of single values and the one error that they raise, which says what was found, what is allowed, and
where, whichever document it is about. What documents look like is not known here.
"""

from __future__ import annotations

import math
import reprlib
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NoReturn

from blobmap.errors import ManifestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_DEPTH: Final = 64
"""Levels of arrays and objects within each other, the document itself being the first."""
MAX_DIGITS: Final = 4300
"""Of an integer: Python's own default limit on decimal text. What is longer could be neither read nor written."""

_MAX_INTEGER: Final = 10**MAX_DIGITS - 1


class _Shown(reprlib.Repr):
    """Values in messages: short and on one line, whatever a document held."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 80

    def repr_int(self, x: int, level: int) -> str:
        return super().repr_int(x, level) if x.bit_length() <= 256 else f"an integer of {x.bit_length()} bits"


_shown: Final = _Shown()


class ConstraintError(ManifestError):
    """One broken constraint, which learns its place from the inside out.

    Attributes:
        field: where the value stands, as a path: `blobs[3].bucket.width`; empty for the document itself.
        found: what was given.
        allowed: what may stand there.
    """

    def __init__(self, field: str, found: str, allowed: str) -> None:
        super().__init__(f"{field or 'the document'} is {found}, allowed: {allowed}")
        self.field = field
        self.found = found
        self.allowed = allowed


@contextmanager
def within(parent: str) -> Iterator[None]:
    """Say of every fault found inside that it stands below `parent`."""
    try:
        yield
    except ConstraintError as fault:
        separator = "." if fault.field and not fault.field.startswith("[") else ""
        raise ConstraintError(f"{parent}{separator}{fault.field}", fault.found, fault.allowed) from None


def shown(value: object) -> str:
    """Spell a value for a message: short, on one line, and without ever failing."""
    return _shown.repr(value)


def refuse(field: str, value: object, allowed: str) -> NoReturn:
    """Raise the fault of a value that is not one of those allowed."""
    raise ConstraintError(field, shown(value), allowed)


def check_text(field: str, value: object, *, empty: bool = True) -> None:
    """Refuse what is not a string, or an empty one unless that is allowed."""
    if not isinstance(value, str) or not (value or empty):
        refuse(field, value, "a string" if empty else "a string that is not empty")


def check_optional_text(field: str, value: object) -> None:
    """Refuse what is neither absent nor a string."""
    if value is not None:
        check_text(field, value)


def check_integer(field: str, value: object, *, least: int | None = None, below: int | None = None) -> None:
    """Refuse what is not an integer between two bounds; a boolean is none."""
    low = -_MAX_INTEGER if least is None else least
    high = _MAX_INTEGER if below is None else below - 1
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        bounds = [f"of at least {least}"] if least is not None else []
        bounds.append(f"below {below}" if below is not None else f"with at most {MAX_DIGITS} digits")
        refuse(field, value, f"an integer {' and '.join(bounds)}")


def check_all(field: str, values: object, kind: type, noun: str, *, least: int = 0) -> None:
    """Refuse what is not a tuple of at least so many values of one kind."""
    if not isinstance(values, tuple) or len(values) < least:
        refuse(field, values, f"a list of {noun}" if not least else f"a list of {noun}, at least {least}")
    for number, value in enumerate(values):
        if not isinstance(value, kind):
            refuse(f"{field}[{number}]", value, f"only {noun}")


def frozen_object(field: str, value: object, depth: int) -> Mapping[str, object]:
    """Copy a JSON object into one that nobody can change: its owner may go on changing the original.

    Args:
        field: where it stands.
        value: a mapping of what JSON can say.
        depth: the level at which it stands; its document is at level 1.

    Raises:
        ConstraintError: it is no mapping, holds something that JSON cannot say, or reaches below level 64.
    """
    if not isinstance(value, (dict, MappingProxyType)):
        refuse(field, value, "an object")
    if depth > MAX_DEPTH:
        raise ConstraintError(field, "nested deeper", f"{MAX_DEPTH} levels")
    for key in value:
        check_text(f"a key of {field}", key)
    return MappingProxyType({key: _frozen(f"{field}.{key}", item, depth + 1) for key, item in value.items()})


def _frozen(field: str, value: object, depth: int) -> object:
    if isinstance(value, (dict, MappingProxyType)):
        return frozen_object(field, value, depth)
    if isinstance(value, (list, tuple)):
        if depth > MAX_DEPTH:
            raise ConstraintError(field, "nested deeper", f"{MAX_DEPTH} levels")
        return tuple(_frozen(f"{field}[{number}]", item, depth + 1) for number, item in enumerate(value))
    if value is None or isinstance(value, (str, bool)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if not isinstance(value, int):
        refuse(field, value, "what JSON has")
    check_integer(field, value)
    return value
