"""TRL's trainer on our tasks: what it is asked, what it pays, and what stands in our files afterwards."""

from __future__ import annotations

import importlib.util
import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.runs import DigitsTask, make_model_folder

from grpo_zero.algorithms.advantages import advantages
from grpo_zero.config import load_config
from grpo_zero.observe.files import read_rows
from grpo_zero.observe.record import StepRecord
from grpo_zero.text.chat import ChatTemplate, prompt_ids
from grpo_zero.text.tokenizer import Tokenizer
from grpo_zero.train.problems import load_rows, make_task
from grpo_zero.types import Problem, Verdict

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning:transformers"),
    pytest.mark.filterwarnings("ignore::FutureWarning:peft"),
]
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")
    trl = pytest.importorskip("trl", reason="needs TRL: uv sync --group test")
    from grpo_zero.bridges.trl import MetricsCallback, dataset, prepare_tokenizer, reward_functions
    from grpo_zero.bridges.trl.names import our_name

ROOT = Path(__file__).parents[2]
EMBEDDED = ROOT / "grpo_zero" / "embedded" / "countdown-tiny"
GROUP_SIZE, NUM_QUESTIONS, MAX_LENGTH = 4, 2, 8


class PartsTask(DigitsTask):
    """Two parts, a note and a verifier that fails now and then, so that random weights give every kind of verdict."""

    name = "parts"

    def verify(self, problem: Problem, completion: str, finished: bool = True) -> Verdict:
        digits = super().verify(problem, completion, finished).reward
        if completion[:1] in "abcdefghijklm" and completion:
            return Verdict(float("nan"), {}, "failed", failed=True)
        parts = {"digits": digits, "length": min(len(completion), 40) / 40}
        return Verdict(sum(parts.values()), parts, "counted", correct=digits > 0.1, notes={"cut": float(not finished)})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny countdown model with weights that transformers opens."""
    folder = make_model_folder(tmp_path_factory.mktemp("trl") / "model", initializer_range=0.3)
    torch.manual_seed(0)
    config = transformers.AutoConfig.from_pretrained(folder)
    config.eos_token_id = [
        0,
        2,
        *range(20, 45),
    ]  # ends for some completions only, so that lengths differ and some are cut
    transformers.AutoModelForCausalLM.from_config(config).float().save_pretrained(folder)
    return folder


class Watched(trl.GRPOTrainer):
    """TRL's trainer, keeping what each rollout came to."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        self.rollouts.append({"rows": [row["row"] for row in inputs], **output})
        return output


def trainer(model: Path, task: Any, folder: Path, **settings: Any) -> Watched:
    options = {"counts": (2, 2), "numbers": (1, 20), "targets": (2, 40), "train_size": 8, "seed": 0}
    rows, held_out, _ = task.load("generate", test_size=3, **options)
    tokenizer = prepare_tokenizer(str(model), task)
    questions = dataset(task, rows)
    arguments = trl.GRPOConfig(
        output_dir=str(folder / "checkpoints"),
        per_device_train_batch_size=4,
        gradient_accumulation_steps=GROUP_SIZE * NUM_QUESTIONS // 4,
        num_generations=GROUP_SIZE,
        max_completion_length=MAX_LENGTH,
        learning_rate=1e-3,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        logging_steps=1,
        disable_tqdm=True,
        **settings,
    )
    network = transformers.AutoModelForCausalLM.from_pretrained(model)
    made = Watched(
        network,
        reward_functions(task, tokenizer, questions, generation_config=network.generation_config),
        args=arguments,
        train_dataset=questions,
        eval_dataset=dataset(task, held_out),
        processing_class=tokenizer,
        callbacks=[MetricsCallback(folder)],
    )
    made.rollouts = []
    return made


def test_prompts_rewards_advantages_and_metrics(model: Path, tmp_path: Path) -> None:
    """Of every rollout: TRL's prompts are our ids, its advantages ours of our rewards, the file's numbers those of both."""
    task = PartsTask(prompt="Make {target} from {nums}.", system_prompt=None)
    run = trainer(model, task, tmp_path, max_steps=3, eval_strategy="steps", eval_steps=3, reward_weights=[1.0, 1.0])
    run.train()
    trained = [row for row in read_rows(tmp_path / "metrics.jsonl") if row["kind"] == "train"]
    rollouts = run.rollouts[:3]
    assert [row["step"] for row in trained] == [1, 2, 3]
    ours = Tokenizer.from_folder(model)
    template = ChatTemplate.select("auto", ours)
    kinds = set()
    for row, rollout in zip(trained, rollouts, strict=True):
        problems = [task.problem(json.loads(text)) for text in rollout["rows"]]
        for ids, mask, problem in zip(rollout["prompt_ids"], rollout["prompt_mask"], problems, strict=True):
            assert ids[mask.bool()].tolist() == prompt_ids(ours, template, problem)
        answers = [
            ids[mask.bool()].tolist()
            for ids, mask in zip(rollout["completion_ids"], rollout["completion_mask"], strict=True)
        ]
        verdicts = [
            task.verify(problem, ours.decode_completion(ids), ids[-1] in ours.stop_ids)
            for problem, ids in zip(problems, answers, strict=True)
        ]
        kinds |= {(verdict.failed, verdict.correct) for verdict in verdicts}
        rewards = np.array([verdict.reward for verdict in verdicts])
        expected = advantages(torch.from_numpy(rewards.reshape(-1, GROUP_SIZE)), scale="group_std", std="sample")
        found = rollout["advantages"].numpy().reshape(-1, GROUP_SIZE)
        np.testing.assert_allclose(found, np.nan_to_num(expected.numpy()), rtol=1e-3, atol=1e-5)
        lengths = [len(ids) for ids in answers]
        paid = [verdict for verdict in verdicts if not verdict.failed]
        assert row["reward"] == pytest.approx(np.nanmean(rewards), rel=1e-6)
        assert row["reward/digits"] == pytest.approx(np.mean([v.parts["digits"] for v in paid]), rel=1e-6)
        assert row["reward/length"] == pytest.approx(np.mean([v.parts["length"] for v in paid]), rel=1e-6)
        assert row["success"] == pytest.approx(np.mean([v.correct for v in verdicts]))
        assert row["note/cut"] == pytest.approx(np.mean([v.notes["cut"] for v in paid]))
        assert row.get("failed_share", 0.0) == pytest.approx(np.mean([v.failed for v in verdicts]))
        assert row["num_tokens"] == sum(lengths)
        assert row["length"] == pytest.approx(np.mean(lengths))
    assert kinds == {(True, False), (False, True), (False, False)}, "there were failed, right and wrong answers"


def test_the_packaged_model_succeeds_as_often_as_in_our_trainer(tmp_path: Path) -> None:
    """About 3 of 10 answers, all of the right form; with other prompts or another reading of the answers next to none."""
    config = load_config("quickstart")
    task = make_task(config)
    rows, _, _ = load_rows(config, task)
    tokenizer, questions = prepare_tokenizer(str(EMBEDDED), task), dataset(task, rows[:20])
    network = transformers.AutoModelForCausalLM.from_pretrained(EMBEDDED)
    trl.GRPOTrainer(
        network,
        reward_functions(task, tokenizer, questions, generation_config=network.generation_config),
        args=trl.GRPOConfig(
            output_dir=str(tmp_path / "checkpoints"),
            per_device_train_batch_size=64,
            num_generations=4,
            max_completion_length=config.training.max_gen_len,
            max_steps=1,
            logging_steps=1,
            use_cpu=True,
            bf16=False,
            report_to="none",
            save_strategy="no",
        ),
        train_dataset=questions,
        processing_class=tokenizer,
        callbacks=[MetricsCallback(tmp_path)],
    ).train()
    [row] = read_rows(tmp_path / "metrics.jsonl")
    assert row["reward/format"] > 0.09
    assert 0.12 < row["success"] < 0.55


def check_against_log_history(run: Any, folder: Path) -> list[dict[str, Any]]:
    """Every number that TRL logged stands in the file, under its name here."""
    rows = read_rows(folder / "metrics.jsonl")
    history = [entry for entry in run.state.log_history if "train_runtime" not in entry]
    assert len(rows) == len(history)
    for row, entry in zip(rows, history, strict=True):
        assert row["step"] == entry.pop("step")
        assert row["kind"] == ("eval" if any(name.startswith("eval_") for name in entry) else "train")
        logged = {our_name(name): value for name, value in entry.items() if value is not None}
        if not logged.get("failed_share"):
            logged.pop("failed_share", None)
        numbers = {name: value for name, value in row.items() if name not in ("step", "kind", "num_tokens")}
        assert numbers == logged
        StepRecord(
            row["step"], row["kind"], {name: value for name, value in row.items() if name not in ("step", "kind")}
        )
    return rows


def test_a_run_that_trl_resumes(model: Path, tmp_path: Path) -> None:
    task = DigitsTask(prompt="Make {target} from {nums}.", system_prompt=None)
    first = trainer(model, task, tmp_path, max_steps=2, save_steps=1)
    first.train()
    check_against_log_history(first, tmp_path)
    second = trainer(model, task, tmp_path, max_steps=3, save_steps=1)
    second.train(resume_from_checkpoint=str(tmp_path / "checkpoints" / "checkpoint-1"))
    assert [row["step"] for row in read_rows(tmp_path / "metrics.jsonl")] == [1, 2, 3]
    check_against_log_history(second, tmp_path)


@pytest.fixture
def gsm8k_rows(tmp_path: Path) -> Path:
    rows = [{"question": f"{n} + 1?", "answer": f"{n}+1=<<{n}+1={n + 1}>>{n + 1}\n#### {n + 1}"} for n in range(8)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "rows.jsonl"


def test_the_example_runs(model: Path, gsm8k_rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU, with a tiny model and a handful of questions: LoRA, the strict verifier, evaluation, the adapter on disk."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    spec = importlib.util.spec_from_file_location("trl_gsm8k_lora", ROOT / "examples" / "trl_gsm8k_lora.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    words = f"--model {model} --data {gsm8k_rows} --run {tmp_path / 'run'} --max-steps 2 --held-out 2 "
    words += "--questions 2 --answers 2 --max-length 6 --micro-batch 2"
    run = example.main(words.split())
    found = check_against_log_history(run, tmp_path / "run")
    assert [(row["step"], row["kind"]) for row in found] == [(1, "train"), (2, "train"), (2, "eval")]
    assert found[0].keys() >= {"reward", "reward/format", "reward/answer", "success", "note/strict", "note/lenient"}
    assert found[2].keys() >= {"eval/reward", "eval/success", "eval/note/strict", "eval/truncated_share"}
    assert (tmp_path / "run" / "adapter" / "adapter_config.json").is_file()


def test_the_pages_code_runs(model: Path, gsm8k_rows: Path, tmp_path: Path) -> None:
    """What docs/trl.md shows, with a tiny model, few rows and settings for a CPU in the places of its own."""
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "trl.md").read_text(encoding="utf-8"), re.DOTALL)
    small = "logging_steps=1, max_steps=1, max_completion_length=4, use_cpu=True, bf16=False, report_to='none'"
    for shown, meant in {
        "Qwen2.5-0.5B-Instruct": str(model),
        "gsm8k/main": str(gsm8k_rows),
        "test_size=256": "test_size=2",
        "runs/trl": str(tmp_path / "run"),
        "logging_steps=1": small,
    }.items():
        assert shown in code
        code = code.replace(shown, meant)
    exec(compile(code, "docs/trl.md", "exec"), {})
    [row] = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert row.keys() >= {"reward", "reward/format", "reward/answer", "success", "grad_norm"}
