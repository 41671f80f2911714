"""A whole countdown run on a toy scale: the recipe's tokenizer, a two-layer model, a task that random weights can score on."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from grpo_zero.config import Config, load_config
from grpo_zero.tasks.countdown import CountdownTask
from grpo_zero.types import Problem, Verdict

RECIPE = Path(__file__).parents[2] / "recipes" / "countdown_tiny.py"
SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "initializer_range": 0.1}


def make_model_folder(folder: Path, **config: Any) -> Path:
    """A model folder without weights, as the recipe writes it but smaller."""
    spec = importlib.util.spec_from_file_location("countdown_tiny_recipe", RECIPE)
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    recipe.main(folder)
    edit_json(folder / "config.json", **(SMALL | config))
    return folder


def edit_json(path: Path, **changes: Any) -> None:
    """Overwrite keys of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


class DigitsTask(CountdownTask):
    """Countdown's questions; the reward is the share of digits in the answer, so that random weights get unequal rewards."""

    name = "digits"

    def verify(self, problem: Problem, completion: str, finished: bool = True) -> Verdict:
        reward = sum(c.isdigit() for c in completion) / max(1, len(completion))
        return Verdict(reward, {"digits": reward}, "counted", correct=reward > 0.5)


def run_settings(model_folder: Path, log_dir: Path, *more: str) -> list[str]:
    """Overrides for a run of a few seconds; ``more`` come last."""
    return [
        f"model.pretrained_model_path={model_folder}",
        "model.random_init=true",
        "model.device=cpu",
        "data.task=digits",
        "data.path=generate",
        "data.train_size=32",
        "data.test_size=6",
        "data.numbers_per_problem=[2, 2]",
        "data.number_range=[1, 20]",
        "data.target_range=[2, 40]",
        "data.prompt=Make {target} from {nums}.",
        "data.system_prompt=",
        "training.num_questions_per_batch=2",
        "training.batch_size=8",
        "training.max_prompt_len=40",
        "training.max_gen_len=8",
        "training.learning_rate=0.003",
        "training.skip_unfinished_episodes=false",
        "training.max_steps=4",
        "training.eval_interval=2",
        "training.ckpt_save_interval=0",
        "training.report=false",
        f"training.log_dir={log_dir}",
        *more,
    ]


def run_config(model_folder: Path, log_dir: Path, *more: str) -> Config:
    """The configuration of ``run_settings``."""
    return load_config(None, run_settings(model_folder, log_dir, *more))
