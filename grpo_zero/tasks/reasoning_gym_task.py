"""The data sets of the package reasoning-gym (2505.24760) by name: its questions, its scores."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import yaml

from grpo_zero.errors import UserError, named, nearest
from grpo_zero.tasks.reasoning_gym_checks import checked, is_harmless
from grpo_zero.tasks.row_files import Row
from grpo_zero.tasks.tags import has_exact_form, last_answer
from grpo_zero.types import Problem, Verdict

DEFAULT_PROMPT = (
    "{question}\n\n"
    "Put your reasoning between <think> and </think>, and after it the answer alone between <answer> and </answer>."
)
"""The default wording; ``{question}`` is filled in from the row."""
WITHOUT_GOLD = frozenset({"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"})
"""Data sets whose rows hold no right answer; their scorers judge without one."""
NOT_ALONE = frozenset({"composite"})
"""Needs other data sets with parameters of their own."""
HELD_OUT_SEED = 2**30
"""Added to the seed of held-out rows. Row i is made from seed + i, so training rows of the same run never share a seed."""
NUM_CHECKED = 8
"""Rows whose own answer must score in full when loading."""
FULL = 1.0 - 1e-9
"""Score from which an answer counts as right."""


class ReasoningGymTask:
    """One data set; the reward is its scorer's, from 0 to 1, for the last answer block after the reasoning."""

    time_limit_s = 5.0
    """Limit an answer where the configuration has none: some scorers compute with what the text says."""

    def __init__(
        self,
        dataset: str = "",
        parameters: Sequence[str] = (),
        prompt: str = DEFAULT_PROMPT,
        system_prompt: str | None = None,
        response_start: str = "<think>",
    ) -> None:
        """``prompt`` is a template with ``{question}``; ``system_prompt`` None sends none.

        Args:
            dataset: its name in reasoning-gym.
            parameters: the data set's own, each as ``name=value`` with the value in YAML.
            response_start: text with which the prompt begins the response.

        Raises:
            UserError: package not installed, no such data set or parameter, a value that it refuses, no ``{question}``.
        """
        if "{question}" not in prompt:
            raise UserError("The prompt lacks the placeholder {question}; without it the model sees no question.")
        self.name, self.dataset = f"reasoning_gym:{dataset}", dataset
        self.parameters = _read_parameters(dataset, parameters)
        self.prompt, self.system_prompt, self.response_start = prompt, system_prompt, response_start
        self._scorer = self._made(size=1, seed=0)

    @property
    def example(self) -> Callable[[dict[str, Any]], str] | None:
        """Makes the gold in the documented form, for data sets that have one."""
        return None if self.dataset in WITHOUT_GOLD else _gold_answer

    def load(self, path: str, *, test_size: int, **generator: Any) -> tuple[list[Row], list[Row], dict[str, int]]:
        """Rows to train on and held-out rows, made from different seeds; training rows that ask the same are dropped.

        ``generator`` has ``train_size`` and ``seed``; ranges that are meant for Countdown are not looked at.
        Raises ``UserError`` for another path than ``generate``, too few rows, and a data set that its own scorer cannot judge.
        """
        if path != "generate":
            raise UserError(f"data.path is {path!r}, but {self.name} makes its rows itself: set data.path=generate.")
        seed = generator["seed"]
        test = self._rows(test_size, seed + HELD_OUT_SEED)
        held_out = {self.problem(row).key for row in test}
        made = self._rows(generator["train_size"], seed)
        train = [row for row in made if self.problem(row).key not in held_out]
        if not train:
            raise UserError(
                f"{self.name} asks nothing beside the {test_size} held-out questions: lower data.test_size, or widen "
                "data.parameters."
            )
        for row in [*train[:NUM_CHECKED], *test[:NUM_CHECKED]]:
            # An integral that sympy leaves as it is: writing the question again must not be paid, so its scorer never sees it.
            is_judged = self.dataset not in WITHOUT_GOLD and is_harmless(self.dataset, row["answer"])
            if is_judged and not self.verify(self.problem(row), _gold_answer(row)).correct:
                raise UserError(
                    f"{self.name} does not find its own answer {row['answer']!r:.60} right: change data.parameters or the "
                    "version of reasoning-gym."
                )
        return train, test, {"train": len(train), "test": len(test), "dropped": len(made) - len(train)}

    def problem(self, row: Mapping[str, Any]) -> Problem:
        """Make the question of one row."""
        question = row["question"]
        messages = [{"role": "user", "content": self.prompt.replace("{question}", question)}]
        if self.system_prompt is not None:
            messages.insert(0, {"role": "system", "content": self.system_prompt})
        return Problem(tuple(messages), self.response_start, row, " ".join(question.split()))

    def verify(self, problem: Problem, completion: str, finished: bool = True) -> Verdict:
        """Part ``score``; note ``form``, whether the tags are exact. Never raises.

        A text at which the scorer raises scores 0: several do at whatever is not the kind of answer they expect.
        """
        notes = {"form": float(has_exact_form(completion, problem.response_start))}
        block = last_answer(completion)
        answer = None if block is None else block.strip()
        if answer is None:
            score, reason = 0.0, "no answer block" if finished else "cut off before an answer block"
        elif not is_harmless(self.dataset, answer):
            score, reason = 0.0, "an answer that the scorer must not see"
        else:
            try:
                score = checked(self.dataset, self._scorer.score_answer(answer, problem.row), answer, problem.row)
                reason = "right" if score >= FULL else f"score {score:g}"
            except Exception as error:  # foreign code on any text; see above
                score, reason = 0.0, f"the scorer raised {named(error)}"
        return Verdict(score, {"score": score}, reason, correct=score >= FULL, notes=notes)

    def _rows(self, size: int, seed: int) -> list[Row]:
        if not size:
            return []
        with _quiet():
            data = self._made(size=size, seed=seed)
            return [data[index] for index in range(size)]

    def _made(self, **size_and_seed: int) -> Any:
        try:
            return _library().create_dataset(self.dataset, **self.parameters, **size_and_seed)
        except (AssertionError, ValueError, TypeError) as error:
            raise UserError(f"{self.name} does not take data.parameters as they are: {named(error)}.") from error


def _gold_answer(row: Mapping[str, Any]) -> str:
    return f"<answer>{row['answer']}</answer>"


def dataset_names() -> list[str]:
    """Of all data sets that can be a task. Raises ``UserError`` where the package is not installed."""
    return sorted(set(_library().factory.DATASETS) - NOT_ALONE)


def _read_parameters(dataset: str, given: Sequence[str]) -> dict[str, Any]:
    known = dataset_names()
    if dataset not in known:
        suggestion = nearest(dataset, known) or f" There are {', '.join(known)}."
        raise UserError(f"reasoning-gym has no data set {dataset!r} for data.task=reasoning_gym:NAME.{suggestion}")
    fields = {field.name for field in dataclasses.fields(_library().factory.DATASETS[dataset][1])}
    fields -= {"seed", "size"}
    parameters = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name.strip() not in fields:
            raise UserError(
                f"data.parameters has {text!r}, but {dataset} has the parameters {', '.join(sorted(fields))}, each given as "
                f"name=value.{nearest(name.strip(), fields)}"
            )
        try:
            parameters[name.strip()] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise UserError(f"data.parameters has {text!r}, whose value is not valid YAML.") from error
    return parameters


@cache
def _library() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SyntaxWarnings of packages that it imports
            import reasoning_gym  # optional, and slow to import
    except ImportError as error:
        raise UserError(
            "The task reasoning_gym needs the package reasoning-gym: run `pip install reasoning-gym` (one of its dependencies is "
            "built with a C compiler)."
        ) from error
    return reasoning_gym


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Some data sets print or warn while they make rows. Not for ``verify``: this changes what all threads share."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
