"""A task of your own: make a number from three others, where a near miss is worth something too."""

import random

from grpo_zero.tasks.expressions import ExpressionError, read_expression
from grpo_zero.tasks.tags import last_answer

response_start = "<think>\n"  # every answer begins with this


def rows(split):
    rng = random.Random(split)
    triples = [[rng.randint(1, 12) for _ in range(3)] for _ in range(2000 if split == "train" else 200)]
    return [{"nums": nums, "target": nums[0] * nums[1] + nums[2]} for nums in triples]


def prompt(row):
    return f"Make {row['target']} from {row['nums']}."


def verify(row, completion):
    try:
        made = read_expression(last_answer(completion) or "")
    except ExpressionError:
        return 0.0
    if sorted(made.numbers) != sorted(row["nums"]):
        return 0.0
    return max(0.0, 1.0 - float(abs(made.value - row["target"])) / 10)  # 1 is right, 0.9 is one beside


def example(row):
    a, b, c = row["nums"]
    return f"{a}*{b} is {a * b}</think>\n<answer>{a}*{b}+{c}</answer>"
