"""Warm start: rows that can be trusted, a loss that falls, nothing held out in the training data."""

from __future__ import annotations

import json
import math
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.runs import run_config

import grpo_zero.train.sft as sft_module
from grpo_zero.checkpoint.source import open_source
from grpo_zero.config import Config, SftConfig, load_config
from grpo_zero.errors import UserError
from grpo_zero.observe.files import read_rows
from grpo_zero.tasks.countdown_generate import is_held_out
from grpo_zero.train.demonstrations import (
    demonstration_rows,
    generated_rows,
    read_demonstrations,
    tokenize_demonstrations,
)
from grpo_zero.train.policy import Policy, load_policy
from grpo_zero.train.problems import ProblemSource, load_rows, make_task
from grpo_zero.train.schedule import sft_learning_rate as learning_rate_at
from grpo_zero.train.sft import warm_start


@pytest.fixture
def config(model_folder: Path, tmp_path: Path) -> Config:
    return run_config(
        model_folder,
        tmp_path / "runs",
        "data.task=countdown",
        "training.max_gen_len=40",
        "training.run_name=warm",
        f"sft.output={tmp_path}/model",
        "sft.batch_size=8",
        "sft.max_steps=12",
        "sft.warmup_steps=2",
        "sft.learning_rate=0.01",
        "sft.log_interval=1",
    )


def losses(folder: Path) -> list[float]:
    return [row["loss"] for row in read_rows(folder / "metrics.jsonl") if row["kind"] == "sft"]


def problems_of(config: Config, policy: Policy) -> ProblemSource:
    return ProblemSource(
        make_task(config), policy, load_rows(config, make_task(config))[0], config.training.max_prompt_len, "training"
    )


def test_the_loss_falls_and_the_model_is_written(config: Config, tmp_path: Path) -> None:
    output = warm_start(config)
    found = losses(tmp_path / "runs" / "warm")
    assert len(found) == 12
    assert found[0] == pytest.approx(math.log(220), rel=0.2), "random weights know nothing of 220 tokens"
    assert found[-1] < 0.75 * found[0]
    assert load_config(str(tmp_path / "runs" / "warm" / "config.yaml")) == config
    policy = load_policy(replace(config.model, pretrained_model_path=str(output), random_init=False), init_seed=0)
    assert open_source(str(output)).spec == policy.decoder.spec


def test_interrupted_and_resumed_is_one_run(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = warm_start(
        replace(
            config,
            sft=replace(config.sft, output=f"{tmp_path}/whole"),
            training=replace(config.training, run_name="whole"),
        )
    )
    real_step = sft_module._step

    def step_and_interrupt(policy, optimizer, rows, step, *rest):
        if step == 5:
            signal.raise_signal(signal.SIGINT)
        return real_step(policy, optimizer, rows, step, *rest)

    monkeypatch.setattr(sft_module, "_step", step_and_interrupt)
    assert warm_start(config) is None, "interrupted"
    assert not (tmp_path / "model").exists()
    monkeypatch.setattr(sft_module, "_step", real_step)
    resumed = warm_start(config, resume=tmp_path / "runs" / "warm")
    assert losses(tmp_path / "runs" / "warm") == losses(tmp_path / "runs" / "whole")
    file = "model.safetensors"
    assert (resumed / file).read_bytes() == (whole / file).read_bytes()


def test_evaluates_on_held_out_problems(config: Config, tmp_path: Path) -> None:
    warm_start(replace(config, sft=replace(config.sft, max_steps=3, eval_interval=2)))
    rows = read_rows(tmp_path / "runs" / "warm" / "metrics.jsonl")
    assert [row["step"] for row in rows if row["kind"] == "eval"] == [2, 3]


def test_two_runs_are_one_run(config: Config, tmp_path: Path) -> None:
    warm_start(config)
    other = replace(
        config, sft=replace(config.sft, output=f"{tmp_path}/other"), training=replace(config.training, run_name="other")
    )
    warm_start(other)
    assert losses(tmp_path / "runs" / "warm") == losses(tmp_path / "runs" / "other")
    file = "model.safetensors"
    assert (tmp_path / "model" / file).read_bytes() == (tmp_path / "other" / file).read_bytes()


def test_generated_rows_are_a_function_of_the_step(config: Config) -> None:
    policy = load_policy(config.model, init_seed=0)
    first, again = (generated_rows(policy, problems_of(config, policy), config, step=3) for _ in range(2))
    assert first == again
    later = generated_rows(policy, problems_of(config, policy), config, step=4)
    assert [row.completion_ids for row in later] != [row.completion_ids for row in first]


def test_a_problem_that_returns_is_searched_anew(config: Config) -> None:
    """Also twice within a step."""
    policy = load_policy(config.model, init_seed=0)
    one = ProblemSource(make_task(config), policy, [{"nums": [3, 8], "target": 11}], 40, "training")
    steps = [[tuple(row.completion_ids) for row in generated_rows(policy, one, config, step)] for step in (1, 2)]
    assert len(set(steps[0])) > 1
    assert steps[0] != steps[1]


def test_generated_rows_end_their_turn_and_never_hold_a_held_out_problem(config: Config) -> None:
    policy = load_policy(config.model, init_seed=0)
    problems = problems_of(config, policy)
    for step in range(1, 12):
        for item in problems.draw(config.training.random_seed, step, config.sft.batch_size):
            assert not is_held_out(item.problem.row["nums"], item.problem.row["target"])
        rows = generated_rows(policy, problems, config, step)
        assert [row.group for row in rows] == list(range(8))
        for row in rows:
            assert row.completion_ids[-1] == policy.tokenizer.end_of_turn_id
            assert not policy.tokenizer.stop_ids & set(row.completion_ids[:-1])
            assert row.advantage == 1.0
            text = policy.tokenizer.decode([*row.prompt_ids, *row.completion_ids])
            assert text.count("<think>") == text.count("</think>") == text.count("</answer>") == 1


def test_a_finished_search_is_paid_in_full(config: Config) -> None:
    """What the warm start teaches is what the verifier pays for."""
    policy, task = load_policy(config.model, init_seed=0), make_task(config)
    problems = problems_of(config, policy)
    items = problems.draw(config.training.random_seed, 1, 8)
    verdicts = [
        task.verify(item.problem, policy.tokenizer.decode_completion(row.completion_ids))
        for item, row in zip(items, generated_rows(policy, problems, config, 1), strict=True)
    ]
    assert {verdict.parts["format"] for verdict in verdicts} == {0.1}
    correct = [verdict.correct for verdict in verdicts]
    assert any(correct)
    assert {verdict.reward for verdict in verdicts if verdict.correct} == {1.1}


def write_rows(path: Path, rows: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_demonstrations_from_a_file(config: Config, tmp_path: Path) -> None:
    rows = [{"prompt": f"{n} + 1 = ", "response": f"{n + 1}"} for n in range(10, 15)]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    assert read_demonstrations(path) == rows
    config = replace(config, sft=replace(config.sft, path=str(path)))
    policy = load_policy(config.model, init_seed=0)
    tokenized = tokenize_demonstrations(policy, rows, config, make_task(config).response_start)
    [row, *_] = batch = demonstration_rows(tokenized, config, step=1)
    assert len(batch) == 8
    text = policy.tokenizer.decode([*row.prompt_ids, *row.completion_ids])
    assert text.startswith("<|im_start|>user\n")
    assert text.endswith("<|im_end|>")
    assert [row.group for row in batch] == list(range(8)), "a row twice in a step is two groups"
    seen = {tuple(row.completion_ids) for step in (1, 2) for row in demonstration_rows(tokenized, config, step)}
    assert len(seen) == 5, "every demonstration has its turn"
    warm_start(config)
    found = losses(tmp_path / "runs" / "warm")
    assert found[-1] < 0.5 * found[0]


@pytest.mark.parametrize(
    ("text", "culprit"),
    [
        ("", "holds no rows"),
        ("\n \n", "holds no rows"),
        ('{"prompt": "a", "response": "b"}\n{"prompt": "a"\n', "Line 2 of .*is not JSON"),
        ('{"prompt": "a"}\n', "Line 1 of .*texts prompt and response"),
        ('{"prompt": "a", "response": 5}\n', "Line 1 of .*texts prompt and response"),
        ('["a", "b"]\n', "Line 1 of .*must be an object"),
    ],
)
def test_bad_demonstrations_are_named(tmp_path: Path, text: str, culprit: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match=culprit):
        read_demonstrations(path)


def test_a_demonstration_over_the_context_stops_the_run_before_it_starts(config: Config, tmp_path: Path) -> None:
    """Wherever in the file it stands."""
    rows = [{"prompt": "1 + 1 = ", "response": "2"}] * 200 + [{"prompt": "count", "response": "7" * 1200}]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    with pytest.raises(UserError, match=r"made for 512.*begins '7777"):
        warm_start(replace(config, sft=replace(config.sft, path=str(path))))
    assert not (tmp_path / "runs").exists()


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(UserError, match=r"rows\.jsonl is not UTF-8"):
        read_demonstrations(path)


def test_separators_inside_a_text_do_not_split_a_row(tmp_path: Path) -> None:
    """JSON may hold U+2028 and U+0085 as they are; only a line feed ends a row."""
    rows = [{"prompt": "a\u2028b", "response": "c\u0085d"}]
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(rows[0], ensure_ascii=False) + "\n", encoding="utf-8")
    assert read_demonstrations(path) == rows


def test_the_learning_rate_rises_then_falls_along_a_cosine() -> None:
    sft = SftConfig(learning_rate=1.0, warmup_steps=10, max_steps=110, final_learning_rate_fraction=0.2)
    assert learning_rate_at(1, sft) == pytest.approx(0.1)
    assert learning_rate_at(10, sft) == 1.0
    assert learning_rate_at(60, sft) == pytest.approx(0.6)
    assert learning_rate_at(110, sft) == pytest.approx(0.2)
    assert learning_rate_at(1, replace(sft, warmup_steps=0)) == pytest.approx(1.0, abs=1e-3)
