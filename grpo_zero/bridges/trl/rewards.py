"""A task's verifier as reward functions of TRL: one for each part of the reward, which together pay what our trainer pays."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import datasets
from transformers import GenerationConfig, PreTrainedTokenizerBase

from grpo_zero.bridges.trl.prompts import ROW, require_response_start
from grpo_zero.errors import UserError
from grpo_zero.tasks import Task
from grpo_zero.tasks.worker import IsolatedTask
from grpo_zero.text.tokenizer import END_TOKENS
from grpo_zero.types import Problem, Verdict

Messages = Sequence[Mapping[str, Any]]


def reward_functions(
    task: Task,
    tokenizer: PreTrainedTokenizerBase,
    questions: datasets.Dataset,
    *,
    generation_config: GenerationConfig | None = None,
    parts: Sequence[str] | None = None,
) -> list[PartReward]:
    """One function for each part of the task's reward, named after it; with weights of 1 they sum to our reward.

    TRL logs each as ``rewards/<part>/mean``. The first also logs what is not paid: ``success``, ``note/<name>`` and
    ``failed_share``, and gives TRL's table of completions a column ``verdict`` with the reason.

    Args:
        task: judges; a verifier that fails gives None, which TRL leaves out of the group as we do.
        tokenizer: of the trainer, from ``prepare_tokenizer``; it tells which answers the length limit cut.
        questions: from ``dataset``; an answer to the first of them tells the names of the parts.
        generation_config: the model's, which may name ids that end an answer beside the tokenizer's own.
        parts: their names, where that answer gets no reward by some of them.

    Raises:
        UserError: prompts without the task's response start; parts that are not known. The functions raise it for an answer
            that is paid for a part not among them.
    """
    require_response_start(tokenizer, task)
    judge = Judge(task, tokenizer, stop_ids(tokenizer, generation_config))
    names = tuple(parts) if parts is not None else _parts_of(task, questions)
    if not names:
        raise UserError(
            f"The task {task.name} gave no reward to a first answer, so the parts of its reward aren't known: name them, as in "
            "reward_functions(..., parts=['format', 'answer']); a plain number is the part 'reward'."
        )
    return [PartReward(judge, names, index) for index in range(len(names))]


class PartReward:
    """One part of the reward, as TRL calls it. All parts share one judge, which verifies an answer once."""

    def __init__(self, judge: Judge, names: Sequence[str], index: int) -> None:
        self.judge, self.names, self.part = judge, names, names[index]
        self.__name__ = self.part
        self.is_first = index == 0

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[str | Messages],
        completion_ids: Sequence[Sequence[int]] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Rewards in the order of ``completions``, None where there is none. Extra columns are not looked at."""
        if ROW not in columns:
            raise UserError(
                f"The dataset has no column {ROW!r}: make it with grpo_zero.bridges.trl.dataset(task, rows)."
            )
        verdicts = self.judge(completions, completion_ids, columns[ROW])
        if self.is_first and log_metric is not None:
            for name, value in unpaid_means(verdicts).items():
                log_metric(name, value)
        if self.is_first and log_extra is not None:
            log_extra("verdict", [verdict.reason for verdict in verdicts])
        return [self._paid(verdict) for verdict in verdicts]

    def _paid(self, verdict: Verdict) -> float | None:
        parts = paid_parts(verdict)
        unknown = parts.keys() - set(self.names)
        if unknown:
            raise UserError(
                f"The task {self.judge.task.name} pays for {', '.join(sorted(unknown))}, but the reward functions were made for "
                f"{', '.join(self.names)}: name all parts, as in reward_functions(..., parts=[...])."
            )
        return parts.get(self.part)


class Judge:
    """Verifies a batch of completions once, though every part's function asks for it."""

    def __init__(self, task: Task, tokenizer: PreTrainedTokenizerBase, stop_ids: frozenset[int]) -> None:
        self.task, self.tokenizer, self.stop_ids = task, tokenizer, stop_ids
        self._problem = lru_cache(maxsize=1024)(lambda row: task.problem(json.loads(row)))
        self._last: tuple[list[tuple[str, str, bool]], list[Verdict]] = ([], [])

    def __call__(
        self,
        completions: Sequence[str | Messages],
        completion_ids: Sequence[Sequence[int]] | None,
        rows: Sequence[str],
    ) -> list[Verdict]:
        """Verdicts in order. Without ``completion_ids`` texts are taken as they are and every answer counts as finished."""
        if completion_ids is None:
            answers = [(row, _text(c), True) for row, c in zip(rows, completions, strict=True)]
        else:
            answers = [(row, *self._decoded(ids)) for row, ids in zip(rows, completion_ids, strict=True)]
        if answers != self._last[0]:
            self._last = answers, self._verify([(self._problem(row), text, ended) for row, text, ended in answers])
        return self._last[1]

    def _decoded(self, ids: Sequence[int]) -> tuple[str, bool]:
        """An answer's text and whether the model ended it itself.

        TRL's own text lacks special tokens wherever they stand; our trainer takes off the one that ends the answer alone.
        """
        is_finished = len(ids) > 0 and ids[-1] in self.stop_ids
        kept = list(ids[:-1] if is_finished else ids)
        text = self.tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return str(text), is_finished

    def _verify(self, answers: Sequence[tuple[Problem, str, bool]]) -> list[Verdict]:
        if isinstance(self.task, IsolatedTask):
            return self.task.verify_all(answers)
        return [self.task.verify(problem, text, is_finished) for problem, text, is_finished in answers]


def stop_ids(tokenizer: PreTrainedTokenizerBase, generation_config: GenerationConfig | None = None) -> frozenset[int]:
    """Ids that end an answer: those that TRL counts as an end, and the special tokens that our trainer stops at."""
    special = {token.content: index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    found = {special[token] for token in END_TOKENS if token in special}
    named = generation_config.eos_token_id if generation_config is not None else None
    found |= {named} if isinstance(named, int) else set(named or ())
    return frozenset(found | {i for i in (tokenizer.eos_token_id, tokenizer.pad_token_id) if i is not None})


def paid_parts(verdict: Verdict) -> Mapping[str, float]:
    """The reward by part; empty where there is no reward."""
    if verdict.failed or math.isnan(verdict.reward):
        return {}
    return verdict.parts or {"reward": verdict.reward}


def unpaid_means(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """Means over the batch of what TRL would not hear of, by catalogue name."""
    means = {
        "success": sum(verdict.correct for verdict in verdicts) / len(verdicts),
        "failed_share": sum(verdict.failed for verdict in verdicts) / len(verdicts),
    }
    for name in dict.fromkeys(name for verdict in verdicts for name in verdict.notes):
        values = [verdict.notes[name] for verdict in verdicts if name in verdict.notes]
        means[f"note/{name}"] = sum(values) / len(values)
    return means


def _parts_of(task: Task, questions: datasets.Dataset) -> tuple[str, ...]:
    row = json.loads(questions[0][ROW])
    answer = task.example(row) if task.example is not None else ""
    return tuple(paid_parts(task.verify(task.problem(row), answer)))


def _text(completion: str | Messages) -> str:
    """The text of a plain or a conversational completion."""
    return completion if isinstance(completion, str) else "".join(m["content"] for m in completion)
