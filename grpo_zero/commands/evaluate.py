"""``grpo-zero eval``: score a model on the held-out problems of a config, and compare two."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from grpo_zero.checkpoint.source import open_source
from grpo_zero.config import Config
from grpo_zero.errors import UserError
from grpo_zero.observe.files import finite, write_summary
from grpo_zero.observe.terminal import show
from grpo_zero.runs import model_of
from grpo_zero.scores.answers import Answer, read_answers, write_answers
from grpo_zero.scores.groups import Groups, grouped, in_order_of, problems_of, require_same_problems
from grpo_zero.scores.summary import differences, summary
from grpo_zero.scores.table import sentences, table
from grpo_zero.train.ask import ask
from grpo_zero.train.problems import load_rows, make_task

ANSWER_ENDINGS = (".jsonl", ".jsonl.gz")
"""Of files that hold answers; any other name to compare with is a model."""


def evaluate_model(
    config: Config, json_path: Path | None = None, output: Path | None = None, compare: str | None = None
) -> dict[str, Any]:
    """Ask the model, print what it is worth; the last line is one JSON document.

    Args:
        config: which model, which problems, how to sample.
        json_path: also write the document here.
        output: write every answer here, one a line; those of a second model beside it (``second_output``).
        compare: a model or run folder to ask the same, or a file of answers.

    Raises:
        UserError: nothing to score on, an output that exists, or other problems on the other side.
    """
    if config.data.test_size == 0:
        raise UserError(
            "data.test_size is 0, so there is nothing to score on: give the number of problems to hold out."
        )
    name = config.model.pretrained_model_path
    other, other_config = None, None
    _check_output(output)
    if compare is not None and is_answers(compare):
        other = _read(compare)
    elif compare is not None:
        _check_output(second_output(output))
        other_config = _config_of(compare, config)
    task = make_task(config)
    _, rows, _ = load_rows(config, task)
    started = time.perf_counter()
    expected = None if other is None else (problems_of(other), str(compare))
    answers, machine = ask(config, task, rows, expected)
    _write(output, answers)
    groups = grouped(answers, name)
    if other_config is not None:
        others, _ = ask(other_config, task, rows, (problems_of(groups), name))
        _write(second_output(output), others)
        other = grouped(others, str(compare))
    facts: dict[str, Any] = {"seed": config.training.random_seed, "temperature": config.evaluation.temperature}
    facts |= {"max_gen_len": config.evaluation_gen_len, "eval_s": time.perf_counter() - started, "machine": machine}
    return _report(name, groups, compare, other, facts, json_path)


def score_answers(path: Path, json_path: Path | None = None, compare: str | None = None) -> dict[str, Any]:
    """As ``evaluate_model``, of answers that ``--output`` wrote: no model is asked.

    Raises:
        UserError: a file that cannot be read, or other problems in the other.
    """
    if compare is not None and not is_answers(compare):
        raise UserError(
            f"--answers takes finished answers, and --compare is {compare}, which is no file of answers: give the .jsonl "
            "file that --output wrote for that model."
        )
    groups = _read(str(path))
    other = None if compare is None else _read(compare)
    if other is not None and compare is not None:
        require_same_problems(problems_of(groups), str(path), problems_of(other), compare)
    return _report(str(path), groups, compare, other, {}, json_path)


def is_answers(path: str) -> bool:
    """Whether the name is one of a file of answers."""
    return path.endswith(ANSWER_ENDINGS)


def second_output(output: Path | None) -> Path | None:
    """Where the answers of the second model go: ``answers-compared.jsonl`` beside ``answers.jsonl``."""
    return None if output is None else output.with_name(f"{output.stem}-compared{output.suffix}")


def _config_of(model: str, config: Config) -> Config:
    """The config with another model. A slip in its name shows now, before the first model is asked."""
    path = model_of(model)
    open_source(path, weights=False)
    return replace(config, model=replace(config.model, pretrained_model_path=path, random_init=False))


def _write(path: Path | None, answers: Sequence[Answer]) -> None:
    if path is not None:
        write_answers(path, answers)


def _read(path: str) -> Groups:
    return grouped(read_answers(Path(path)), path)


def _check_output(path: Path | None) -> None:
    """Before the work, not after it."""
    if path is None:
        return
    if not path.name.endswith(".jsonl"):
        raise UserError(f"--output is {path}: give a name that ends with .jsonl, so that --compare can read it later.")
    if not path.parent.is_dir():
        raise UserError(f"--output is {path}, but there is no folder {path.parent}: make it first.")
    if path.exists():
        raise UserError(f"--output is {path}, but {path} exists already: remove it, or give another name.")


def _report(
    name: str,
    groups: Groups,
    compare: str | None,
    other: Groups | None,
    facts: Mapping[str, Any],
    json_path: Path | None,
) -> dict[str, Any]:
    """Print tables, sentences and the document; returns the document."""
    if other is not None and not groups.keys() & other.keys():
        raise UserError(f"{name} has only {next(iter(groups))} answers, and {compare} only {next(iter(other))} ones.")
    found = summary(groups)
    document: dict[str, Any] = {"model": name, **facts, **found}
    show(table(name, found))
    _print_failure(groups)
    if other is not None and compare is not None:
        other = in_order_of(problems_of(groups), other)
        others = summary(other)
        document["compare"] = {"model": compare, **others, "difference": differences(groups, other)}
        show("\n" + table(compare, others))
        _print_failure(other)
        show()
        most = max((len(side["sampled"][0]) for side in (groups, other) if "sampled" in side), default=1)
        for sentence in sentences(name, compare, document["compare"]["difference"], most):
            show(sentence)
    show(json.dumps(finite(document), allow_nan=False))
    if json_path is not None:
        write_summary(json_path, document)
    return document


def _print_failure(groups: Groups) -> None:
    failed = [answer for rows in groups.values() for group in rows for answer in group if answer.failed]
    if failed:
        show(f"verification failed on {len(failed)} answers, the last with: {failed[-1].reason}")
