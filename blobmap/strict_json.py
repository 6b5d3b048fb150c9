"""JSON as RFC 8259 has it, within bounds: bytes that somebody else wrote become a value, or are refused by name.

Python's reader is more generous than the standard: it takes NaN, other encodings, and the last of two equal keys. None
of that may decide where data goes. What the value has to be is not known here.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Final, NoReturn

from blobmap.constraints import MAX_DEPTH, MAX_DIGITS, ConstraintError, shown

_WHITESPACE: Final = " \t\n\r"
_MAX_FLOAT: Final = 1.7976931348623157e308


def decode(data: bytes, *, most_bytes: int) -> dict[str, object]:
    """Read a JSON document that is an object.

    Args:
        data: the document, UTF-8 without a byte order mark.
        most_bytes: the length beyond which it is refused unread.

    Raises:
        ConstraintError: it is too long, not UTF-8, no JSON object, nested too deep, or holds a key twice in one object.
    """
    if len(data) > most_bytes:
        raise ConstraintError("", f"{len(data)} bytes long", f"{most_bytes} bytes")
    try:
        text = data.decode()
        if (begins := text.lstrip(_WHITESPACE)[:1]) != "{":
            raise ConstraintError("", f"one that begins with {shown(begins)}", "a JSON object")
        document: dict[str, object] = json.loads(
            text,
            object_pairs_hook=_object,
            parse_float=_number,
            parse_constant=_constant,
        )
    except UnicodeDecodeError as error:
        raise ConstraintError("", f"not UTF-8 at byte {error.start}", "JSON in UTF-8") from None
    except json.JSONDecodeError as error:
        found = f"not JSON at line {error.lineno}, column {error.colno} ({error.msg})"
        raise ConstraintError("", found, "JSON in UTF-8") from None
    except ValueError:
        # What is left: the interpreter makes no integer of so many digits.
        raise ConstraintError("", "holding an integer of more digits", f"{MAX_DIGITS} digits") from None
    except RecursionError:
        raise _too_deep() from None
    _check_depth(document)
    return document


def _check_depth(document: dict[str, object]) -> None:
    # One level after the other, so that no nesting can exhaust the stack.
    level: list[dict[str, object] | list[object]] = [document]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> ConstraintError:
    return ConstraintError("", "nested deeper", f"{MAX_DEPTH} levels of arrays and objects")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ConstraintError("", f"one with an object that has {shown(twice)} twice", "every key once")
    return result


def _number(text: str) -> float:
    value = float(text)
    if abs(value) > _MAX_FLOAT:
        raise ConstraintError("", f"holding the number {shown(text)}", f"numbers up to {_MAX_FLOAT}")
    return value


def _constant(name: str) -> NoReturn:
    raise ConstraintError("", f"holding {name}", "numbers that JSON has")
