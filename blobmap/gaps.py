"""What a listing could not read, by name, so that a part is never taken for the whole."""

from __future__ import annotations


class Gaps:
    """The prefixes and keys that listings of one store could not read.

    Attributes:
        unreadable: prefixes that could not be listed whole, each the smallest that is known.
        odd_keys: keys that exist and cannot be addressed.
    """

    def __init__(self) -> None:
        self.unreadable: list[str] = []
        self.odd_keys: list[str] = []

    def note_unreadable(self, prefix: str) -> None:
        """Remember a prefix that could not be listed."""
        prefix = printable(prefix)
        if prefix not in self.unreadable:
            self.unreadable.append(prefix)

    def note_odd(self, key: str) -> None:
        """Remember a key that cannot be addressed."""
        key = printable(key)
        if key not in self.odd_keys:
            self.odd_keys.append(key)

    def touching(self, prefix: str) -> tuple[str, ...]:
        """The unreadable prefixes that lie above, at or below a prefix."""
        return tuple(gap for gap in self.unreadable if _touch(gap, prefix))

    def forget(self, prefix: str) -> None:
        """Drop what was noted at or below a prefix: it is listed anew."""
        for noted in (self.unreadable, self.odd_keys):
            noted[:] = [key for key in noted if prefix and key != prefix and not key.startswith(prefix + "/")]


def printable(name: str) -> str:
    """A name whose bytes that are no UTF-8 (as surrogates) are written as escapes."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _touch(gap: str, prefix: str) -> bool:
    """Whether two prefixes are the same, or one lies above the other, by whole segments."""
    above, below = sorted((gap, prefix), key=len)
    return not above or above == below or below.startswith(above + "/")
