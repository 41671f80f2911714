"""Ask a model every held-out problem: its answers as records that need no model any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from grpo_zero.config import Config
from grpo_zero.observe.console import Console
from grpo_zero.scores.answers import Answer, Decoding
from grpo_zero.scores.groups import require_same_problems
from grpo_zero.tasks import Task
from grpo_zero.train.evaluate import Judged, answer_all, flatten
from grpo_zero.train.policy import load_policy, make_engine
from grpo_zero.train.problems import held_out_problems
from grpo_zero.train.recorder import machine_facts


def ask(
    config: Config, task: Task, rows: Sequence[Mapping[str, Any]], expected: tuple[Sequence[str], str] | None = None
) -> tuple[list[Answer], dict[str, str | int]]:
    """Load the configured model, sample and judge its answers, and let it go again.

    Args:
        config: which model, and how to sample.
        task, rows: the held-out problems.
        expected: problems that somebody else answered and who that was: they have to be the same ones.

    Returns:
        The answers, problem by problem, and what they were made on. One of them is shown on the console.

    Raises:
        UserError: no such model, or other problems than expected; before anything is sampled.
    """
    training, model = config.training, config.model.pretrained_model_path
    longest = training.max_prompt_len + config.evaluation_gen_len
    policy = load_policy(config.model, init_seed=training.random_seed, max_tokens=longest)
    items = held_out_problems(config, task, policy, rows)
    names = list(distinct(item.problem.key for item in items))
    if expected is not None:
        require_same_problems(names, model, *expected)
    prompts = [policy.tokenizer.decode(item.prompt_ids) for item in items]
    console = Console()
    sampled_PK, greedy_P1 = answer_all(
        policy,
        make_engine(policy, training),
        task,
        items,
        config,
        progress=lambda finished, total: console.status(f"{model}: {finished}/{total} answers"),
    )
    judged = list(flatten(sampled_PK))
    shown = next((answer for answer in judged if answer.verdict.correct), judged[0])
    console.line(
        f"one answer of {model} ({shown.verdict.reason}):\n{policy.tokenizer.decode(shown.item.prompt_ids)}{shown.text}\n"
    )
    console.close()
    answers = []
    for place, (name, prompt) in enumerate(zip(names, prompts, strict=True)):
        answers += [_answer(model, name, prompt, "greedy", one) for one in (greedy_P1[place] if greedy_P1 else [])]
        answers += [_answer(model, name, prompt, "sampled", one) for one in sampled_PK[place]]
    return answers, machine_facts(policy.decoder.device)


def distinct(keys: Iterable[str]) -> Iterator[str]:
    """The keys; a question that comes again gets its number, so that the two are told apart."""
    seen: Counter[str] = Counter()
    for key in keys:
        seen[key] += 1
        yield key if seen[key] == 1 else f"{key} #{seen[key]}"


def _answer(model: str, problem: str, prompt: str, decoding: Decoding, judged: Judged) -> Answer:
    verdict, completion = judged.verdict, judged.completion
    return Answer(
        model=model,
        problem=problem,
        difficulty=judged.item.problem.difficulty,
        decoding=decoding,
        sample_index=completion.sample_index,
        prompt=prompt,
        response=judged.text,
        correct=bool(verdict.correct),
        reward=float(verdict.reward),
        parts={name: float(value) for name, value in verdict.parts.items()},
        notes={name: float(value) for name, value in verdict.notes.items()},
        reason=verdict.reason,
        failed=bool(verdict.failed),
        finish_reason=completion.finish_reason,
        num_tokens=len(completion.token_ids),
    )
