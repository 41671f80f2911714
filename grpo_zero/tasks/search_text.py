"""Worked searches as text: what a small model learns to write before reinforcement learning starts.

A *try* combines two numbers at a time until one is left. One line is one try, and ends by saying
whether the result is the target::

    9 - 7 = 2, 2 + 8 = 10, no
    9 + 7 = 16, 16 + 8 = 24, yes
    </think>
    <answer>(9 + 7) + 8</answer>

The texts show searching, not cleverness: the tries are drawn at random, and some searches give up.
What is left to learn is which tries are worth writing, and that is what the reward can teach.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from grpo_zero.errors import UserError
from grpo_zero.tasks.tags import CLOSE_ANSWER, CLOSE_THINK, OPEN_ANSWER, OPEN_THINK

MAX_TRY_NUMBERS = 5
"""Most numbers whose tries are listed: four have about a thousand, five tens of thousands."""
GIVE_UP_LINE = "I give up."
GIVE_UP_ANSWER = "none"
"""What stands in the answer block after giving up; the verifier pays nothing for it."""


@dataclass(frozen=True, slots=True)
class Try:
    """One way to combine all the given numbers."""

    steps: tuple[str, ...]
    """What is computed, in order, e.g. ``("9 - 7 = 2", "2 + 8 = 10")``."""
    value: int
    """The result of the last step."""
    expression: str
    """The same as one expression of the given numbers, e.g. ``"(9 - 7) + 8"``."""

    def line(self, target: int) -> str:
        """The steps and the verdict, e.g. ``"9 - 7 = 2, 2 + 8 = 10, no"``."""
        return ", ".join((*self.steps, "yes" if self.value == target else "no"))


@dataclass(frozen=True, slots=True)
class _Operand:
    value: int
    text: str
    is_given: bool

    def inside(self) -> str:
        """The text as part of a larger expression."""
        return self.text if self.is_given else f"({self.text})"


def all_tries(nums: Sequence[int], max_value: int | None = None) -> list[Try]:
    """Every try of ``nums``, distinct by text, in a fixed order.

    A step is a sum, a product, the larger minus the smaller, or the larger divided by the smaller
    where that is exact and the smaller is not 0; so all results are non-negative integers. Tries
    with a result above ``max_value`` are left out.
    Raises ``UserError`` unless there are 2 to ``MAX_TRY_NUMBERS`` numbers.
    """
    if not 2 <= len(nums) <= MAX_TRY_NUMBERS:
        raise UserError(
            f"Search texts need 2 to {MAX_TRY_NUMBERS} numbers, but {list(nums)} has {len(nums)}; "
            "make the warm-start rows with another range of counts."
        )
    given = [_Operand(number, str(number), is_given=True) for number in nums]
    by_steps: dict[tuple[str, ...], Try] = {}
    for found in _tries(given, (), max_value):
        by_steps.setdefault(found.steps, found)
    return list(by_steps.values())


def search_response(
    nums: Sequence[int],
    target: int,
    rng: np.random.Generator,
    *,
    tries: tuple[int, int] = (1, 4),
    give_up: float = 0.35,
    tries_skew: int = 1,
    focus: float | None = None,
    max_value: int | None = None,
    response_start: str = OPEN_THINK,
) -> str:
    """A response that searches for ``target``, drawn with ``rng``; always of the exact form.

    The number of free tries is the smallest of ``tries_skew`` uniform draws over the range ``tries``, both ends included. Free
    tries are drawn from ``all_tries`` without repetition, uniformly or, with ``focus``, each with weight
    ``exp(-|value - target| / focus)``; a hit ends the search. After as many misses the search gives up with probability
    ``give_up`` (always, when no try is right), and is otherwise ended by a right try, uniform among the right ones. Where
    ``response_start``, the part of the response that the prompt holds, does not open the reasoning, the text does.
    ``max_value`` bounds the results of all tries; numbers of the search then stay short.
    Raises ``UserError`` as ``all_tries`` does, and for an impossible ``tries`` or ``give_up``.
    """
    if not (0 <= tries[0] <= tries[1] and 0 <= give_up <= 1):
        raise UserError(
            f"Search texts got tries={tries} and give_up={give_up}; expected a lower and an upper "
            "number of tries, 0 or more, and a probability."
        )
    listed = all_tries(nums, max_value)
    num_free = int(rng.integers(tries[0], tries[1], endpoint=True, size=tries_skew).min())
    shown: list[Try] = []
    for index in _order(listed, target, focus, rng)[:num_free]:
        shown.append(listed[index])
        if listed[index].value == target:
            break
    is_solved = bool(shown) and shown[-1].value == target
    gives_up = not is_solved and bool(rng.random() < give_up)
    right = [one for one in listed if one.value == target]
    if right and not is_solved and not gives_up:
        shown.append(right[rng.integers(len(right))])
        is_solved = True
    lines = [one.line(target) for one in shown]
    if not is_solved:
        lines.append(GIVE_UP_LINE)
    if OPEN_THINK not in response_start:
        lines.insert(0, OPEN_THINK)
    answer = shown[-1].expression if is_solved else GIVE_UP_ANSWER
    return "\n".join([*lines, CLOSE_THINK, f"{OPEN_ANSWER}{answer}{CLOSE_ANSWER}"])


def _order(listed: Sequence[Try], target: int, focus: float | None, rng: np.random.Generator) -> np.ndarray:
    """Indices of ``listed`` in the order in which they are tried.

    Adding Gumbel noise to the log-weights and sorting draws without repetition (Kool et al., 1903.06059, section 2.2).
    """
    if focus is None:
        return rng.permutation(len(listed))
    distances = np.array([abs(one.value - target) for one in listed])
    return np.argsort(distances / focus - rng.gumbel(size=len(listed)))


def _tries(operands: list[_Operand], steps: tuple[str, ...], max_value: int | None) -> Iterator[Try]:
    """Every way to go on from ``operands``; the result of a step stands before what is left."""
    if len(operands) == 1:
        yield Try(steps, operands[0].value, operands[0].text)
        return
    for i, a in enumerate(operands):
        for j in range(i + 1, len(operands)):
            rest = operands[:i] + operands[i + 1 : j] + operands[j + 1 :]
            for left, sign, right, value in _moves(a, operands[j]):
                if max_value is not None and value > max_value:
                    continue
                step = f"{left.value} {sign} {right.value} = {value}"
                joined = _Operand(value, f"{left.inside()} {sign} {right.inside()}", is_given=False)
                yield from _tries([joined, *rest], (*steps, step), max_value)


def _moves(a: _Operand, b: _Operand) -> Iterator[tuple[_Operand, str, _Operand, int]]:
    """Left operand, sign, right operand and result of each move that joins ``a`` and ``b``."""
    yield a, "+", b, a.value + b.value
    yield a, "*", b, a.value * b.value
    large, small = (a, b) if a.value >= b.value else (b, a)
    yield large, "-", small, large.value - small.value
    if small.value and large.value % small.value == 0:
        yield large, "/", small, large.value // small.value
