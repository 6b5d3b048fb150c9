"""What a listing could not read, by name, so that a part is never taken for the whole."""

from __future__ import annotations


class Gaps:
    """The prefixes and keys that listings of one store could not read: each once, in the order of the listing."""

    def __init__(self) -> None:
        self._unreadable: dict[str, None] = {}
        self._odd_keys: dict[str, None] = {}

    @property
    def unreadable(self) -> list[str]:
        """Prefixes that could not be listed whole, each the smallest that is known."""
        return list(self._unreadable)

    @property
    def odd_keys(self) -> list[str]:
        """Keys that exist and cannot be addressed."""
        return list(self._odd_keys)

    def note_unreadable(self, prefix: str) -> None:
        """Remember a prefix that could not be listed."""
        self._unreadable[printable(prefix)] = None

    def note_odd(self, key: str) -> None:
        """Remember a key that cannot be addressed."""
        self._odd_keys[printable(key)] = None

    def touching(self, prefix: str) -> tuple[str, ...]:
        """The unreadable prefixes that lie above, at or below a prefix."""
        return tuple(gap for gap in self.unreadable if _touch(gap, prefix))

    def forget(self, prefix: str) -> None:
        """Drop what was noted at or below a prefix: it is listed anew."""
        for noted in (self._unreadable, self._odd_keys):
            for key in list(noted):
                if not prefix or key == prefix or key.startswith(prefix + "/"):
                    noted.pop(key, None)


def printable(name: str) -> str:
    """A name whose bytes that are no UTF-8 (as surrogates) are written as escapes."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _touch(gap: str, prefix: str) -> bool:
    """Whether two prefixes are the same, or one lies above the other, by whole segments."""
    above, below = sorted((gap, prefix), key=len)
    return not above or above == below or below.startswith(above + "/")
