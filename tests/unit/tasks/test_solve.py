"""The backward search against the plain forward one."""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_zero.tasks.search_text import all_tries
from grpo_zero.tasks.solve import is_solvable, is_solvable_whole


def every_value(nums: list[Fraction]) -> set[Fraction]:
    """The oracle: all values by trying every operation on every pair."""
    if len(nums) == 1:
        return set(nums)
    values: set[Fraction] = set()
    for i in range(len(nums)):
        for j in range(len(nums)):
            if i == j:
                continue
            rest = [nums[k] for k in range(len(nums)) if k not in (i, j)]
            a, b = nums[i], nums[j]
            for result in [a + b, a - b, a * b] + ([a / b] if b else []):
                values |= every_value([result, *rest])
    return values


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=4))
def test_is_solvable_agrees_with_the_forward_search(nums: list[int]) -> None:
    values = every_value([Fraction(number) for number in nums])
    for target in range(1, 60):
        assert is_solvable(nums, target) is (target in values)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 30), min_size=2, max_size=4))
def test_is_solvable_whole_agrees_with_all_tries(nums: list[int]) -> None:
    values = {one.value for one in all_tries(nums)}
    for target in range(1, 120):
        assert is_solvable_whole(nums, target) is (target in values)


def test_larger_rows() -> None:
    assert is_solvable([1, 1, 1, 1, 1, 1], 6)
    assert is_solvable([75, 50, 2, 3, 8, 7], 812)
    assert not is_solvable([1, 1, 1, 1, 1], 100)
    assert not is_solvable([1, 1, 1, 1, 1, 1], 100)
