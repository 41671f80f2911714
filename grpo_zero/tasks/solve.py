"""Whether a target can be made of all the given numbers, each used once: an exact search.

Two ways of counting. *Whole*: as the data set was made, every intermediate result is a non-negative
integer, got by sum, product, larger minus smaller, or exact quotient. *Rational*: anything that + -
* / and parentheses can make, as the verifier accepts it.

The search works from the target backwards. The last operation joins the results of two disjoint
parts of the numbers. For each value ``b`` of the smaller part it computes the few values that the
larger part would have to take, and asks for those in turn. So all values are listed only for parts
of up to three numbers, and even six numbers cost a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache

Value = int | Fraction
Part = tuple[int, ...]
_LISTED = 3
"""Parts of up to so many numbers have all their values listed; larger ones are searched."""


def is_solvable(nums: Sequence[int], target: int) -> bool:
    """Whether some expression that uses each of ``nums`` exactly once equals ``target``."""
    # Nearly every row of real data is solvable in whole steps, and those are quicker to search.
    return is_solvable_whole(nums, target) or _Search(nums, whole=False).reaches(tuple(range(len(nums))), target)


def is_solvable_whole(nums: Sequence[int], target: int) -> bool:
    """The same, with non-negative integers as the only intermediate results."""
    return _Search(nums, whole=True).reaches(tuple(range(len(nums))), target)


class _Search:
    """One set of numbers; remembers the values of its small parts. A part is a tuple of indices."""

    def __init__(self, nums: Sequence[int], whole: bool) -> None:
        self.nums = nums
        self.whole = whole
        self.values_by_part: dict[Part, set[Value]] = {}

    def reaches(self, part: Part, target: Value) -> bool:
        """Whether the numbers of ``part`` can make ``target``."""
        if len(part) <= _LISTED - 1:
            return target in self.values(part)
        for small, large in _splits(part):
            for known in self.values(small):
                if known == 0 and target == 0:
                    return True  # 0 times whatever the larger part gives
                wanted = _other_operands(target, known, self.whole)
                if len(large) <= _LISTED:
                    if not self.values(large).isdisjoint(wanted):
                        return True
                elif any(self.reaches(large, value) for value in wanted):
                    return True
        return False

    def values(self, part: Part) -> set[Value]:
        """Every value that the numbers of ``part`` can make."""
        if part not in self.values_by_part:
            found: set[Value] = set()
            if len(part) == 1:
                found = {self.nums[part[0]]}
            for small, large in _splits(part):
                for a in self.values(small):
                    for b in self.values(large):
                        found.update(_results(a, b, self.whole))
            self.values_by_part[part] = found
        return self.values_by_part[part]


@cache
def _splits(part: Part) -> tuple[tuple[Part, Part], ...]:
    """Every way to cut ``part`` in two, the part with fewer numbers first."""
    splits = []
    for mask in range(1, 2 ** (len(part) - 1)):
        chosen = tuple(index for bit, index in enumerate(part) if mask >> bit & 1)
        rest = tuple(index for bit, index in enumerate(part) if not mask >> bit & 1)
        splits.append((chosen, rest) if len(chosen) <= len(rest) else (rest, chosen))
    return tuple(splits)


def _results(a: Value, b: Value, whole: bool) -> Iterator[Value]:
    """Everything that one operation makes of ``a`` and ``b``, in either order."""
    yield a + b
    yield a * b
    if whole:
        large, small = (a, b) if a > b else (b, a)
        yield large - small
        if small and not large % small:
            yield large // small
        return
    yield a - b
    yield b - a
    if b:
        yield _quotient(a, b)
    if a:
        yield _quotient(b, a)


def _other_operands(target: Value, known: Value, whole: bool) -> Iterator[Value]:
    """Every x for which one operation makes ``target`` of x and ``known`` (not of 0 and 0)."""
    yield target + known  # x - known
    if not whole or target >= known:
        yield target - known  # x + known
    if not whole or known >= target:
        yield known - target  # known - x
    if known:
        yield target * known  # x / known
        if not whole or not target % known:
            yield _quotient(target, known)  # x * known
        if target and (not whole or not known % target):
            yield _quotient(known, target)  # known / x


def _quotient(a: Value, b: Value) -> Value:
    """``a / b``, an int where it is whole: Python's integers are far quicker than fractions."""
    return a // b if not a % b else Fraction(a) / b
