"""What keys that come one after another have in common, so that most of them need not be taken apart.

Listings and writers go through an array chunk by chunk. Where nothing but one rule decides about an array, a key splits
into a *head* and a *tail* within the digits of the index that is divided: `s.zarr/tas/c/50` and `17/0/0`. Most keys
have the head of the key before, and nearly all have a tail that was seen before, in this array or in another one. A
tail that was once found well formed always is, and gives the last digits of the index. If the indices of the present
blob that begin with the head end in 00 to 47, then the tail that gives 17 is of that blob, and nothing else need be
looked at.

Which rule decides alone is not known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blobmap.rules import LONG

if TYPE_CHECKING:
    from blobmap.rules import Resolution, Rule

Block = tuple[str, int, dict[str, int], int, int, "Resolution", int, int, "Resolution"]
"""Head, its length, the codes of the tails that may follow it; the first and the last code (excluded) that have the
answer after them; and the same for tails of another number of digits: a listing has 501 between 5009 and 5010."""

INDEX_CHARACTERS: Final = "0123456789./"
"""What indices and their separators are made of: keys of one array are the same without those at their end."""

# Digits of a tail, at most: more make fewer heads, but more tails.
_DIGITS: Final = 2
_POWERS: Final = (1, 10, 100)
# The code of a tail is this times its number of digits, plus their value.
_PER_DIGIT: Final = 100
# Tails are forgotten together once there are so many; some 150 bytes each.
_MOST_TAILS: Final = 16_384


Tails = dict[str, dict[str, int]]
"""By separator, the tails that were found well formed, with their codes. It is true of any manifests."""


class Run:
    """What the keys seen last have in common. It holds for one state of all manifests and is dropped with it.

    Attributes:
        block: what can be answered at a glance.
        hints: by what a key begins with, the rule that decided alone about such a key last.
        alone: for rules met so far, whether they decide alone about the keys below their prefix.
    """

    __slots__ = ("_answer", "_digits", "_rule", "_tails", "alone", "block", "hints")

    def __init__(self, tails: Tails, nothing: Resolution) -> None:
        self._tails = tails
        self._rule: Rule | None = None
        self._digits = _DIGITS
        self._answer = nothing
        # Nothing follows the first head: there are no tails, and no key has the same.
        self.block: Block = ("", -1, {}, 0, 0, nothing, 0, 0, nothing)
        self.hints: dict[str, Rule] = {}
        self.alone: dict[Rule, bool] = {}

    def answer(self, rule: Rule, key: str) -> Resolution | None:
        """Answer by a rule that decides alone; None: its arithmetic does not fit the key.

        What the keys to come will probably share with this one is remembered.
        """
        match = rule.fullmatch and rule.fullmatch(key, rule.start)
        if match is None:
            return None
        start, end = match.span(1)
        if end - start >= LONG:
            return rule.answer(key)
        if rule is not self._rule:
            self._rule = rule
            self._digits = _DIGITS
        value = int(match[1])
        answer = rule.resolution(value // rule.width)
        if answer is not self._answer:
            # The first key of a blob: a second one tells whether it is worth more.
            self._answer = answer
        else:
            self._remember(rule, key, (start, end), value, answer)
        return answer

    def _remember(self, rule: Rule, key: str, span: tuple[int, int], value: int, answer: Resolution) -> None:
        start, end = span
        head, at, _, low, high, known, other_low, other_high, other = self.block
        same_head = start <= at <= end <= at + self._digits and key.startswith(head)
        if not same_head:
            at = max(start, end - self._digits)
        digits = end - at
        many = _POWERS[digits]
        code = digits * _PER_DIGIT + value % many
        tails = self._learn(rule.separator, key[at:], code)
        if same_head and (low <= code < high or other_low <= code < other_high):
            return
        # All canonical indices that begin so and have as many digits, as far as they are of this blob.
        after = value - value % many + many
        least = after - many or (many // 10 if at == start and digits > 1 else 0)
        first = value - value % rule.width
        from_code = code - value + max(least, first)
        to_code = code - value + min(after, first + rule.width)
        if not same_head:
            self.block = (key[:at], at, tails, from_code, to_code, answer, 0, 0, answer)
        elif low // _PER_DIGIT == digits:
            self.block = (head, at, tails, from_code, to_code, answer, other_low, other_high, other)
        else:
            self.block = (head, at, tails, low, high, known, from_code, to_code, answer)

    def _learn(self, separator: str, tail: str, code: int) -> dict[str, int]:
        tails = self._tails[separator]
        if len(tails) >= _MOST_TAILS:
            # An array with many chunks at each index: fewer digits, fewer tails.
            tails.clear()
            self._digits = max(0, self._digits - 1)
        tails[tail] = code
        return tails
