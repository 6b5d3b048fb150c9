"""JSON as RFC 8259 has it, within bounds: bytes that somebody else wrote become a value, or are refused by name.

Python's reader is more generous than the standard: it takes NaN, other encodings, and the last of two equal keys. None
of that may decide where data goes. What the value has to be is not known here.
"""

from __future__ import annotations

import json
from typing import Final, NoReturn

from blobmap.constraints import MAX_DEPTH, MAX_DIGITS, ConstraintError, shown

_MAX_FLOAT: Final = 1.7976931348623157e308


def decode(data: bytes, *, most_bytes: int) -> object:
    """Read a JSON document.

    Args:
        data: the document, UTF-8 without a byte order mark.
        most_bytes: the length beyond which it is refused unread.

    Raises:
        ConstraintError: it is too long, not UTF-8, not JSON, nested too deep, or holds a key twice in one object.
    """
    if len(data) > most_bytes:
        raise ConstraintError("", f"{len(data)} bytes long", f"{most_bytes} bytes")
    try:
        value: object = json.loads(
            data.decode(),
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_constant,
        )
    except UnicodeDecodeError as error:
        raise ConstraintError("", f"not UTF-8 at byte {error.start}", "JSON in UTF-8") from None
    except json.JSONDecodeError as error:
        found = f"not JSON at line {error.lineno}, column {error.colno} ({error.msg})"
        raise ConstraintError("", found, "JSON in UTF-8") from None
    except RecursionError:
        raise _too_deep() from None
    _check_depth(value)
    return value


def _check_depth(value: object) -> None:
    # One level after the other, so that no nesting can exhaust the stack.
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        containers = [item for item in level if isinstance(item, (dict, list))]
        if not containers:
            return
        level = [child for item in containers for child in (item.values() if isinstance(item, dict) else item)]
    raise _too_deep()


def _too_deep() -> ConstraintError:
    return ConstraintError("", "nested deeper", f"{MAX_DEPTH} levels of arrays and objects")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        for name, _ in pairs:
            # Each key is taken away once: the first that is no longer there stood twice.
            if name not in result:
                raise ConstraintError("", f"an object that has {shown(name)} twice", "every key once")
            del result[name]
    return result


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ConstraintError("", f"holding an integer of {len(text)} digits", f"{MAX_DIGITS} digits")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if abs(value) > _MAX_FLOAT:
        raise ConstraintError("", f"holding the number {shown(text)}", f"numbers up to {_MAX_FLOAT}")
    return value


def _constant(name: str) -> NoReturn:
    raise ConstraintError("", f"holding {name}", "numbers that JSON has")
