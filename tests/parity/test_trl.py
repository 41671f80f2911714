"""Our loss and gradient against TRL's GRPOTrainer: one real step of TRL on a tiny model, and ours on the very same batch.

TRL samples, scores and computes its loss; what it computed it from is caught on the way. Conventions that have to be aligned:
TRL's standard deviation is the sample one; its ``grpo`` is our sequence average, ``dapo`` our token average, ``dr_grpo`` our
constant one. What still differs has a test of its own that says by what and why.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.tiny import GradientCatcher, policy_of

from grpo_zero.algorithms.advantages import advantages
from grpo_zero.checkpoint.load import load_decoder
from grpo_zero.checkpoint.source import open_source
from grpo_zero.config import TrainingConfig
from grpo_zero.presets import AlgorithmConfig
from grpo_zero.train.batch import TrainRow
from grpo_zero.train.rows import weigh
from grpo_zero.train.token_loss import GRPOLoss
from grpo_zero.train.update import update

pytestmark = pytest.mark.filterwarnings("ignore")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")
    trl = pytest.importorskip("trl", reason="needs TRL: uv sync --group test")
    datasets = pytest.importorskip("datasets")

EMBEDDED = Path(__file__).parents[2] / "grpo_zero" / "embedded" / "countdown-tiny"
PROMPTS = ["Make 9 from [2, 5, 13].", "Make 7 from [3, 4].", "Make 40 from [9, 2, 11]."]
GROUP_SIZE, MAX_LENGTH = 4, 8
AVERAGES = {"grpo": "sequence", "dapo": "token", "dr_grpo": "constant"}
SCALES = {"group": "group_std", "batch": "batch_std", "none": "none"}


def reward_of(ids: list[int]) -> float:
    return (sum(ids) % 7) / 6


def token_reward(prompts: list[str], completion_ids: list[list[int]], **columns: Any) -> list[float]:
    """Depends on the tokens; the answers to one prompt all get the same, so that one group has no variance."""
    return [
        0.5 if prompt == PROMPTS[0] else reward_of(ids) for prompt, ids in zip(prompts, completion_ids, strict=True)
    ]


class Watched(trl.GRPOTrainer):
    """TRL's trainer, telling what each loss was computed from, and what came out."""

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        weights = {name: x.detach().clone() for name, x in model.state_dict().items()}
        loss = super()._compute_loss(model, inputs)
        self.caught.append({"inputs": inputs, "loss": loss.item(), "weights": weights})
        return loss


class GradientWatch(transformers.TrainerCallback):
    """Copies the gradients of each optimizer step."""

    def __init__(self, caught: list[dict[str, Any]]) -> None:
        self.caught = caught

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> None:
        self.caught[-1]["gradients"] = {name: p.grad.clone() for name, p in model.named_parameters()}


def trl_steps(folder: Path, **settings: Any) -> list[dict[str, Any]]:
    """Run TRL; what each of its updates saw and computed."""
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "initializer_range": 0.3}
    config = transformers.AutoConfig.for_model(**{**json.loads((EMBEDDED / "config.json").read_text()), **shape})
    model = transformers.AutoModelForCausalLM.from_config(config).float()
    model.save_pretrained(folder / "model")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model").train()  # now TRL can load it twice
    tokenizer = transformers.AutoTokenizer.from_pretrained(EMBEDDED)
    tokenizer.save_pretrained(folder / "model")
    arguments = trl.GRPOConfig(
        output_dir=str(folder / "out"),
        per_device_train_batch_size=len(PROMPTS) * GROUP_SIZE,
        num_generations=GROUP_SIZE,
        max_completion_length=MAX_LENGTH,
        max_grad_norm=1e9,
        max_steps=settings.get("num_iterations", 1),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        shuffle_dataset=False,
        **{"learning_rate": 5e-3, **settings},
    )
    trainer = Watched(
        model=model,
        reward_funcs=token_reward,
        args=arguments,
        train_dataset=datasets.Dataset.from_dict({"prompt": PROMPTS}),
        processing_class=tokenizer,
    )
    trainer.caught = []
    trainer.add_callback(GradientWatch(trainer.caught))
    # Ends for some completions only, so that lengths differ and some are cut.
    trainer.generation_config.eos_token_id = [tokenizer.eos_token_id, *range(20, 45)]
    trainer.eos_token_id_set = trainer.generation_config.eos_token_id
    trainer.train()
    return trainer.caught


def rows_of(inputs: dict[str, Any]) -> list[TrainRow]:
    """TRL's padded, shuffled batch as rows, group by group, with TRL's advantages."""
    lengths = inputs["completion_mask"].sum(1).tolist()
    prompts = [ids[mask.bool()].tolist() for ids, mask in zip(inputs["prompt_ids"], inputs["prompt_mask"], strict=True)]
    groups = sorted({tuple(prompt) for prompt in prompts})

    def logprobs(name: str, index: int) -> list[float] | None:
        return inputs[name][index][: lengths[index]].tolist() if inputs.get(name) is not None else None

    rows = [
        TrainRow(
            groups.index(tuple(prompt)),
            prompt,
            inputs["completion_ids"][index][: lengths[index]].tolist(),
            inputs["advantages"][index].item(),
            logprobs("old_per_token_logps", index),
            reference_logprobs=logprobs("ref_per_token_logps", index),
        )
        for index, prompt in enumerate(prompts)
    ]
    return sorted(rows, key=lambda row: row.group)


def check_advantages(inputs: dict[str, Any], scale: str) -> None:
    """Ours from the rewards against TRL's: the group whose answers were all paid the same is the one with zeros."""
    rows = rows_of(inputs)
    theirs_PG = np.array([row.advantage for row in rows]).reshape(len(PROMPTS), GROUP_SIZE)
    [flat] = np.flatnonzero(~theirs_PG.any(1))
    rewards_PG = np.array([reward_of(row.completion_ids) for row in rows]).reshape(theirs_PG.shape)
    rewards_PG[flat] = 0.5
    found = advantages(torch.from_numpy(rewards_PG), scale=scale, std="sample").numpy()
    np.testing.assert_allclose(found, theirs_PG, rtol=1e-4, atol=1e-6)
    assert (np.abs(found).sum(1) > 0).sum() == len(PROMPTS) - 1


def our_update(
    folder: Path, step: dict[str, Any], algorithm: AlgorithmConfig
) -> tuple[float, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Loss and gradients of our update on TRL's batch, weights and advantages; and TRL's gradients under our names."""
    source = open_source(str(folder / "model"))

    def ours(tensors: dict[str, torch.Tensor], name: str) -> Any:
        config = transformers.AutoConfig.from_pretrained(folder / "model")
        model = transformers.AutoModelForCausalLM.from_config(config).float()
        model.load_state_dict(tensors, strict=False)
        model.save_pretrained(folder / name)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            (folder / name / file).write_text((folder / "model" / file).read_text())
        return load_decoder(open_source(str(folder / name)), dtype=torch.float32, device="cpu")

    assert source.spec.tied_head
    decoder, gradients = ours(step["weights"], "weights"), ours(step["gradients"], "gradients")
    rows = rows_of(step["inputs"])
    catcher = GradientCatcher(decoder)
    facts = update(
        policy_of(decoder),
        catcher,
        weigh(rows, algorithm.average, MAX_LENGTH),
        GRPOLoss(algorithm=algorithm, is_on_policy=rows[0].sampled_logprobs is None),
        learning_rate=0.0,
        config=TrainingConfig(max_grad_norm=1e9),
    )
    return facts["loss"], catcher.gradients, dict(gradients.named_parameters())


def assert_close(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], factor: float = 1.0) -> None:
    for name, gradient in expected.items():
        scale = gradient.abs().max().item()
        assert scale > 0
        torch.testing.assert_close(
            factor * found[name],
            gradient.detach(),
            rtol=1e-3,
            atol=1e-4 * scale,
            msg=lambda m, n=name: f"{n}: {m}",
        )


def check_both_updates(folder: Path, caught: list[dict[str, Any]], algorithm: AlgorithmConfig) -> None:
    """Loss and gradient of the update on policy and of the one after it, in which some ratios have left the clip range."""
    assert len(caught) == 2
    for step in caught:
        loss, gradients, expected = our_update(folder, step, algorithm)
        assert loss == pytest.approx(step["loss"], rel=1e-3, abs=1e-5)
        assert_close(gradients, expected)
    unclipped = replace(algorithm, clip_low=1.0, clip_high=100.0)
    loss, _, _ = our_update(folder, caught[1], unclipped)
    assert loss != pytest.approx(caught[1]["loss"], rel=1e-3, abs=1e-5), "the clip range is left"


@pytest.mark.parametrize("scale_rewards", ["group", "none"])
@pytest.mark.parametrize("loss_type", list(AVERAGES))
def test_advantages_loss_and_gradient_on_policy(tmp_path: Path, loss_type: str, scale_rewards: str) -> None:
    [step] = trl_steps(tmp_path, loss_type=loss_type, scale_rewards=scale_rewards)
    assert len({len(row.completion_ids) for row in rows_of(step["inputs"])}) > 2
    check_advantages(step["inputs"], SCALES[scale_rewards])
    loss, gradients, expected = our_update(tmp_path, step, AlgorithmConfig(average=AVERAGES[loss_type]))
    assert loss == pytest.approx(step["loss"], rel=1e-4, abs=1e-6)
    assert_close(gradients, expected)


@pytest.mark.parametrize("loss_type", [*AVERAGES, "cispo"])
def test_second_update_off_policy_with_clipping_and_kl(tmp_path: Path, loss_type: str) -> None:
    """The weights have moved: ratios, two clip bounds, and a KL to the start (k3 in the loss) away from 0.

    TRL's ``epsilon_high`` is in CISPO the cap itself, here 1 plus ``clip_high``. By default TRL multiplies the KL term by the
    ratio (2512.02556), which GRPO's paper and we do not: switched off.
    """
    is_cispo = loss_type == "cispo"
    caught = trl_steps(
        tmp_path,
        loss_type=loss_type,
        num_iterations=2,
        epsilon=0.05,
        epsilon_high=1.02 if is_cispo else 0.08,
        beta=0.3,
        use_bias_correction_kl=False,
    )
    algorithm = AlgorithmConfig(
        average=AVERAGES.get(loss_type, "token"),
        objective="cispo" if is_cispo else "clipped",
        clip_low=0.05,
        clip_high=0.02 if is_cispo else 0.08,
        kl_weight=0.3,
    )
    check_both_updates(tmp_path, caught, algorithm)


def test_batch_scale_and_sequence_ratio(tmp_path: Path) -> None:
    """GSPO as TRL's documentation sets it up, under the batch's standard deviation."""
    caught = trl_steps(
        tmp_path,
        loss_type="grpo",
        importance_sampling_level="sequence",
        scale_rewards="batch",
        num_iterations=2,
        learning_rate=2e-5,
        epsilon=5e-3,
        epsilon_high=1e-2,
    )
    check_advantages(caught[0]["inputs"], "batch_std")
    algorithm = AlgorithmConfig(ratio_level="sequence", average="sequence", clip_low=5e-3, clip_high=1e-2)
    check_both_updates(tmp_path, caught, algorithm)


@pytest.mark.parametrize("loss_type", list(AVERAGES))
def test_masked_truncated_completions_differ_by_the_number_of_completions(tmp_path: Path, loss_type: str) -> None:
    """Where we differ. TRL zeroes the mask of a cut completion but still divides by all B of them (``grpo``, ``dr_grpo``).

    We leave it out above and below, so our gradient is larger by B over the number left in; ``dapo`` counts tokens on both
    sides, where a cut completion has none, and agrees.
    """
    [step] = trl_steps(tmp_path, loss_type=loss_type, mask_truncated_completions=True)
    lengths = [len(row.completion_ids) for row in rows_of(step["inputs"])]
    assert 0 in lengths, "a cut completion was masked"
    algorithm = AlgorithmConfig(average=AVERAGES[loss_type])
    loss, gradients, expected = our_update(tmp_path, step, algorithm)
    factor = 1.0 if loss_type == "dapo" else sum(length > 0 for length in lengths) / len(lengths)
    assert factor * loss == pytest.approx(step["loss"], rel=1e-4, abs=1e-6)
    assert_close(gradients, expected, factor)
