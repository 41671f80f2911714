"""Presets by name, with single parts changed, in a file and on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_zero.config import config_from_dict, config_notes, dump_yaml, load_config
from grpo_zero.errors import UserError
from grpo_zero.presets import PRESETS, AlgorithmConfig


def from_yaml(tmp_path: Path, text: str, *overrides: str) -> AlgorithmConfig:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return load_config(str(path), overrides).algorithm


def test_the_default_is_what_grpo_zero_does() -> None:
    assert config_from_dict({}).algorithm == AlgorithmConfig(
        preset="grpo_zero", baseline="mean", scale="group_std", std="population", average="token", kl_weight=0.0
    )


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_its_name(tmp_path: Path, preset: str) -> None:
    """``algorithm: dapo``, its long form, and ``algorithm=dapo`` are the same, and survive the run folder's config.yaml."""
    found = [
        from_yaml(tmp_path, f"algorithm: {preset}"),
        from_yaml(tmp_path, f"algorithm:\n  preset: {preset}"),
        load_config(None, [f"algorithm={preset}"]).algorithm,
        load_config(None, [f"algorithm.preset={preset}"]).algorithm,
    ]
    assert all(algorithm == found[0] for algorithm in found)
    assert found[0].preset == preset
    for key, value in PRESETS[preset].items():
        assert getattr(found[0], key) == value
    assert from_yaml(tmp_path, dump_yaml(load_config(None, [f"algorithm={preset}"]))) == found[0]


def test_single_parts_can_be_changed(tmp_path: Path) -> None:
    algorithm = from_yaml(tmp_path, "algorithm:\n  preset: dapo\n  clip_high: 0.25", "algorithm.average=sequence")
    assert (algorithm.clip_high, algorithm.average, algorithm.dynamic_sampling_rounds) == (0.25, "sequence", 3)


def test_another_preset_on_the_command_line_replaces_the_parts_of_the_file(tmp_path: Path) -> None:
    """Also those that a run folder's config.yaml spells out; parts given beside it stay, in either order."""
    text = dump_yaml(load_config(None, ["algorithm=dapo", "algorithm.std=sample"]))
    assert from_yaml(tmp_path, text, "algorithm=dr_grpo") == load_config(None, ["algorithm=dr_grpo"]).algorithm
    both = [
        from_yaml(tmp_path, text, *overrides)
        for overrides in (("algorithm=gspo", "algorithm.clip_low=0.1"), ("algorithm.clip_low=0.1", "algorithm=gspo"))
    ]
    assert both[0] == both[1]
    assert (both[0].clip_low, both[0].clip_high, both[0].std) == (0.1, 4e-4, "population")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["algorithm=dappo"], "algorithm.preset is dappo, but it must be one of grpo_zero, grpo, dapo"),
        (["algorithm=DR-GRPO"], "Did you mean 'dr_grpo'?"),
        (
            ["algorithm.kl_weight=0.1", "algorithm.kl_in=reward"],
            "use the scale none, whiten or batch_std, or kl_in loss.",
        ),
        (["algorithm.clip_hi=0.3"], "Did you mean 'clip_high'?"),
        (["algorithm.dual_clip=0.5"], "above 1"),
        (["algorithm=cispo", "algorithm.dual_clip=3"], "algorithm.objective is cispo, which has no such bound"),
        (["algorithm=rloo", "algorithm.ratio_level=sequence"], "policy_gradient, which has no ratio"),
        (["algorithm.kl_weight=-1"], "at least 0"),
        (
            ["training.questions_per_update=5"],
            "training.questions_per_update is 5, but the 32 questions of a step (training.num_questions_per_batch) do not "
            "split into parts of that size: use one of 1, 2, 4, 8, 16, 32.",
        ),
        (
            ["training.questions_per_update=8", "training.updates_per_rollout=6"],
            "it takes 4 updates to learn from all 32 questions of a step once: use 4 or a multiple of it.",
        ),
        (["training.questions_per_update=16"], "training.updates_per_rollout is 1"),
    ],
)
def test_mistakes_are_named(settings: list[str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        load_config(None, settings)
    assert message in str(caught.value)


def test_settings_that_may_not_do_what_was_meant_are_noted() -> None:
    assert not config_notes(load_config("quickstart", ["algorithm=dapo"]))
    for settings, words in (
        (["algorithm=dapo"], "training.skip_unfinished_episodes=false"),
        (["algorithm=rloo", "training.updates_per_rollout=4"], "only the first of the 4 updates"),
        (["algorithm.kl_weight=0.1", "algorithm.kl_estimator=k1"], "expected gradient 0"),
    ):
        [note] = config_notes(load_config(None, settings))
        assert words in note


def test_a_section_that_is_neither_name_nor_mapping(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="algorithm is 3, but it must be a section"):
        from_yaml(tmp_path, "algorithm: 3")
    with pytest.raises(UserError, match=r"algorithm.preset is gpro"):
        from_yaml(tmp_path, "algorithm: gpro")
