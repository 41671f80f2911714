"""The metric catalogue: each metric's unit, definition and healthy range, as data.

Files, console, TensorBoard and ``docs/metrics.md`` all read it, so a number has one meaning.
A metric that is recorded but missing here is an error (``require_known``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from grpo_zero.errors import nearest


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a step record."""

    name: str
    """Its key; ``reward/<part>`` stands for one key per part of the task's reward."""
    unit: str
    """What 1.0 means: ``share`` is 0 to 1."""
    definition: str
    """One sentence: over what it is taken, and how."""
    healthy: str
    """How it should look, and when to worry."""
    worry_above: float | None = None
    """The console flags greater values."""
    worry_below: float | None = None
    """The console flags smaller values."""
    trl: str = ""
    """Its name in TRL, where there is one."""
    verl: str = ""
    """Its name in verl, where there is one."""
    zero: str = ""
    """Its tag in the TensorBoard of the original GRPO-Zero, where there is one; also written there, so that its charts go on."""

    @property
    def is_repeatable(self) -> bool:
        """Whether an equal run has an equal value: not what was measured of time and memory."""
        return self.unit not in ("seconds", "tokens per second", "GiB", "times") and self.name != "sample_share"

    def is_worrying(self, value: float) -> bool:
        """Whether ``value`` is outside the healthy range, or no number at all."""
        if value != value:
            return self.worry_above is not None or self.worry_below is not None
        too_high = self.worry_above is not None and value > self.worry_above
        too_low = self.worry_below is not None and value < self.worry_below
        return too_high or too_low


FLOAT32_LOGPROB_GAP = 0.001
"""Healthy ``logprob_gap`` of float32 weights, nats: a thousand times their rounding, long before the catalogue's limit, which
has to let bfloat16 pass."""

_REWARD = (
    Metric(
        "step",
        "steps",
        "Number of steps done, counting this one; a step is one rollout with its updates.",
        "Rises by one.",
    ),
    Metric(
        "reward",
        "reward",
        "Mean reward the task gave over all completions of the step.",
        "Rises, noisily; compare means over 10 steps.",
        trl="reward",
        verl="critic/rewards/mean",
        zero="mean_reward",
    ),
    Metric(
        "reward_std",
        "reward",
        "Standard deviation (population) of the reward over all completions of the step.",
        "Above 0; it falls as the policy becomes sure, and at 0 nothing is learned.",
        zero="std_reward",
    ),
    Metric(
        "reward/<part>",
        "reward",
        "Mean of one part of the reward over all completions, such as reward/format and "
        "reward/answer; the parts sum to reward.",
        "Format saturates early; if answer stays flat after that, the task is too hard or the reward is being gamed.",
        trl="rewards/{f}/mean",
    ),
    Metric(
        "note/<part>",
        "share",
        "Mean over all completions of what the task reports and does not pay, such as note/strict and note/lenient: answers "
        "that are right by each of GSM8K's rules.",
        "Strict meets lenient as the form is learned; a wide gap is a matter of form, not of reasoning.",
    ),
    Metric(
        "penalty/<part>",
        "reward",
        "Mean of what the algorithm adds to the task's reward before answers are compared: penalty/overlong (soft overlong "
        "punishment) and penalty/kl (minus kl_weight times the KL to the starting policy), where they are switched on.",
        "Small beside reward; if it is not, answers are compared by it rather than by the task.",
    ),
    Metric(
        "success",
        "share",
        "Share of the step's completions whose answer is correct.",
        "Rises; it is measured on training problems, so trust eval/success.",
        zero="success_rate/train",
    ),
    Metric(
        "zero_variance_share",
        "share",
        "Share of questions whose answers all got the same reward from the task, which teaches nothing of it.",
        "At or above zero_variance_expected; worry above 0.5.",
        worry_above=0.5,
        trl="frac_reward_zero_std",
    ),
    Metric(
        "zero_variance_all_right_share",
        "share",
        "Share of questions whose answers are all correct and got the same reward.",
        "Rises as the policy outgrows its problems; then use harder ones.",
    ),
    Metric(
        "zero_variance_all_wrong_share",
        "share",
        "Share of questions whose answers are all incorrect and got the same reward.",
        "Falls; if it stays near 1, use easier problems or more answers per question.",
    ),
    Metric(
        "zero_variance_expected",
        "share",
        "p^G + (1-p)^G: the share of questions with G answers all correct or all incorrect, if each answer were correct with the "
        "same probability p = success.",
        "Below zero_variance_share, since questions differ in difficulty; a wide gap means many that are too easy or too hard.",
    ),
)

_COMPLETIONS = (
    Metric(
        "failed_share",
        "share",
        "Share of the completions whose verification raised, ran out of time or returned no number; absent when none did. They "
        "get no reward and teach nothing.",
        "Absent; a run stops above 0.5.",
        worry_above=0.0,
    ),
    Metric(
        "length",
        "tokens",
        "Mean completion length over all completions of the step, the stop token included.",
        "Moves slowly; a steady climb without more success is the length bias.",
        trl="completions/mean_length",
        verl="response_length/mean",
        zero="mean_response_len",
    ),
    Metric(
        "length_right",
        "tokens",
        "Mean length of the completions whose answer is correct; absent when there are none.",
        "Compare with length_wrong.",
    ),
    Metric(
        "length_wrong",
        "tokens",
        "Mean length of the completions whose answer is incorrect; absent when there are none.",
        "Growing away from length_right is the length bias.",
    ),
    Metric(
        "truncated_share",
        "share",
        "Share of completions that max_gen_len cut.",
        "Near 0; worry above 0.1 and raise training.max_gen_len; above 0.3 where cut answers are in the loss, which then costs "
        "them.",
        worry_above=0.1,
        trl="completions/clipped_ratio",
        verl="response_length/clip_ratio",
    ),
    Metric(
        "num_finished",
        "completions",
        "Completions of the step that max_gen_len did not cut.",
        "Near training.batch_size.",
        zero="num_finished_episodes",
    ),
    Metric(
        "num_tokens",
        "tokens",
        "Completion tokens sampled in the step.",
        "Follows length.",
        trl="num_tokens",
    ),
    Metric(
        "sampling_rounds",
        "rounds",
        "Rounds of sampling that dynamic sampling took in the step.",
        "1, rising as more groups are all right or all wrong.",
    ),
    Metric(
        "kept_share",
        "share",
        "Groups with right and wrong answers that dynamic sampling found, of num_questions_per_batch.",
        "1; below it the rounds were used up and the step trained on what there was.",
        worry_below=1.0,
    ),
)

_UPDATE = (
    Metric(
        "num_updates",
        "updates",
        "Optimizer steps of the step: updates with something to learn from.",
        "updates_per_rollout; fewer when groups are dead or dynamic sampling found few.",
    ),
    Metric(
        "skipped_updates",
        "updates",
        "Updates not taken because their loss or gradient norm was not finite: weights and moments stayed as they were.",
        "0; a run stops after max_skipped_steps steps in a row with one.",
        worry_above=0.0,
    ),
    Metric(
        "entropy",
        "nats per token",
        "Mean entropy of the policy's next-token distribution over forwarded_tokens.",
        "Falls, then holds; falling to 0 while reward is flat is collapse.",
        trl="entropy",
        zero="entropy",
        verl="actor/entropy",
    ),
    Metric(
        "grad_norm",
        "norm",
        "L2 norm of the whole gradient before clipping, the mean over the step's updates.",
        "Steady; exactly 0 means that every group was dead, and spikes precede divergence.",
        trl="grad_norm",
        zero="grad_norm",
        verl="actor/grad_norm",
    ),
    Metric(
        "learning_rate",
        "per update",
        "Learning rate of the step's updates.",
        "Follows the schedule.",
        trl="learning_rate",
        zero="learning_rate",
    ),
    Metric(
        "loss",
        "nats per token",
        "GRPO: minus the configured objective, weighted and summed over the whole update, the mean over the step's updates; "
        "supervised training: the mean cross-entropy over response tokens.",
        "GRPO: uninformative, since advantages sum to about 0 whatever is learned; supervised: falls.",
        trl="loss",
        zero="loss",
    ),
    Metric(
        "forwarded_tokens",
        "tokens",
        "Completion tokens that went through the training forward, over all updates of the step: those with an advantage, or "
        "all with a KL in the loss.",
        "num_tokens less the dead groups and the completions left out of the loss, times the passes over them.",
    ),
    Metric(
        "logprob_gap",
        "nats per token",
        "Mean over forwarded_tokens of the absolute difference between a token's log-prob when "
        "it was sampled and in the training forward, before the step's first update.",
        "About 1e-6 in float32 and below 0.02 in bfloat16; worry above 0.05, in float32 above 0.001: sampler and trainer "
        "disagree. With lora.dropout the dropout is in it too.",
        worry_above=0.05,
        trl="sampling/sampling_logp_difference/mean",
    ),
    Metric(
        "clip_fraction_low",
        "share",
        "Share of forwarded_tokens with a negative advantage whose ratio is below 1 - clip_low or above dual_clip.",
        "Exactly 0 with one update per rollout; below about 0.2 with more.",
        trl="clip_ratio/low_mean",
    ),
    Metric(
        "clip_fraction_high",
        "share",
        "Share of forwarded_tokens with a positive advantage whose ratio is above 1 + clip_high; in CISPO, of either sign.",
        "Exactly 0 with one update per rollout; below about 0.2 with more.",
        trl="clip_ratio/high_mean",
    ),
    Metric(
        "kl_old",
        "nats per token",
        "KL from the policy that sampled to the one being updated: the k3 estimate, mean over forwarded_tokens of all updates.",
        "Exactly 0 with one update per rollout; worry above 0.01: fewer updates, or a lower learning rate.",
        worry_above=0.01,
        verl="actor/ppo_kl",
    ),
    Metric(
        "kl_reference",
        "nats per token",
        "KL from the policy to the starting one: the k3 estimate, mean over forwarded_tokens; absent when kl_weight is 0.",
        "0 at the first step, then rises and holds.",
        trl="kl",
        verl="actor/kl_loss",
    ),
)

_SPEED = (
    Metric(
        "tokens_per_s_sample",
        "tokens per second",
        "Completion tokens of the step divided by sample_s.",
        "Steady; it falls when completions get longer.",
    ),
    Metric(
        "tokens_per_s_update",
        "tokens per second",
        "forwarded_tokens divided by update_s.",
        "Steady.",
        verl="perf/throughput",
    ),
    Metric(
        "sample_s",
        "seconds",
        "Time to sample the step's completions.",
        "Follows length.",
        verl="timing_s/gen",
    ),
    Metric(
        "prefill_s",
        "seconds",
        "Part of sample_s: the prompts' forward, each prompt once.",
        "A small part of sample_s; more with long prompts and short completions.",
    ),
    Metric(
        "verify_s",
        "seconds",
        "Time to decode the completions' text and judge it.",
        "Far below sample_s; else the task's verifier is slow.",
    ),
    Metric(
        "reference_s",
        "seconds",
        "Time for the log-probs under the starting policy; absent without a KL to it.",
        "A third of update_s or less: one forward without a backward.",
    ),
    Metric(
        "optimizer_s",
        "seconds",
        "Part of update_s: clipping and the optimizer's steps.",
        "A small part of update_s on a GPU; more where few tokens are forwarded or its state is on the host.",
    ),
    Metric(
        "update_s",
        "seconds",
        "Time for forward, backward and optimizer of the step's updates.",
        "Falls as zero_variance_share rises, since dead groups are not forwarded.",
        verl="timing_s/update_actor",
    ),
    Metric(
        "step_s",
        "seconds",
        "Time of the whole step, without evaluation and checkpoints.",
        "About sample_s + verify_s + reference_s + update_s.",
        zero="duration",
        trl="step_time",
        verl="timing_s/step",
    ),
    Metric(
        "sample_share",
        "share",
        "sample_s divided by step_s.",
        "0.5 to 0.9; a low share with few tokens per second in training means small forwards.",
    ),
    Metric(
        "peak_gib",
        "GiB",
        "Highest memory use so far: allocated on the GPU where there is one, else of the process.",
        "Flat after the first few steps; a steady climb is a leak.",
    ),
    Metric(
        "peak_host_gib",
        "GiB",
        "Highest resident memory of the process so far.",
        "Flat after the first few steps.",
    ),
    Metric(
        "out_of_memory",
        "times",
        "Times in the step that memory ran out and what was under way was done again with fewer slots or smaller micro-batches; "
        "absent when it did not.",
        "Absent; the smaller sizes stay for the rest of the run.",
        worry_above=0.0,
    ),
)

_EVALUATION = (
    Metric(
        "eval/success",
        "share",
        "Share of sampled answers to the held-out problems that are correct.",
        "The number to judge a run by; differences within the interval are noise.",
        zero="success_rate/eval",
    ),
    Metric(
        "eval/success_low",
        "share",
        "Lower end of the 95 % interval of eval/success.",
        "Half width about 9 points at 128 problems and 50 %.",
    ),
    Metric(
        "eval/success_high",
        "share",
        "Upper end of the 95 % interval of eval/success.",
        "Half width about 9 points at 128 problems and 50 %.",
    ),
    Metric(
        "eval/greedy_success",
        "share",
        "Share of the held-out problems whose greedy answer is correct.",
        "Mostly above eval/success; the two meet as entropy falls.",
    ),
    Metric(
        "eval/greedy_success_low",
        "share",
        "Lower end of the 95 % interval of eval/greedy_success.",
        "As eval/success_low.",
    ),
    Metric(
        "eval/greedy_success_high",
        "share",
        "Upper end of the 95 % interval of eval/greedy_success.",
        "As eval/success_high.",
    ),
    Metric(
        "eval/reward",
        "reward",
        "Mean reward over the sampled answers to the held-out problems.",
        "Rises with reward; reward rising alone is overfitting.",
        trl="eval_reward",
    ),
    Metric(
        "eval/reward/<part>",
        "reward",
        "Mean of one part of the reward over the sampled answers to the held-out problems.",
        "As reward/<part>.",
        trl="eval_rewards/{f}/mean",
    ),
    Metric(
        "eval/note/<part>",
        "share",
        "Mean of what the task reports and does not pay, over the sampled answers to the held-out problems.",
        "As note/<part>.",
    ),
    Metric(
        "eval/length",
        "tokens",
        "Mean length of the sampled answers to the held-out problems.",
        "As length.",
        trl="eval_completions/mean_length",
    ),
    Metric(
        "eval/truncated_share",
        "share",
        "Share of the sampled answers to the held-out problems that the length limit cut.",
        "Near 0; worry above 0.1, since a cut answer counts as incorrect.",
        worry_above=0.1,
        trl="eval_completions/clipped_ratio",
    ),
    Metric(
        "eval/num_problems",
        "problems",
        "Number of held-out problems evaluated.",
        "The same in every evaluation of a run.",
    ),
    Metric(
        "eval/eval_s",
        "seconds",
        "Time of the evaluation, greedy answers included.",
        "Small beside eval_interval times step_s.",
        trl="eval_runtime",
    ),
)

_ELSEWHERE = (
    Metric(
        "trl/<name>",
        "as TRL's",
        "What TRL logs under that name and we have no name for, in runs of TRL's trainer that `grpo_zero.bridges.trl` recorded.",
        "As TRL's documentation says.",
    ),
)

GROUPS: Mapping[str, tuple[Metric, ...]] = {
    "Reward": _REWARD,
    "Completions": _COMPLETIONS,
    "Update": _UPDATE,
    "Speed and memory": _SPEED,
    "Evaluation": _EVALUATION,
    "Other trainers": _ELSEWHERE,
}

CATALOGUE: Mapping[str, Metric] = {m.name: m for group in GROUPS.values() for m in group}

_PART = "<part>"


def find_metric(name: str) -> Metric | None:
    """The catalogue's entry for a recorded name: ``reward/format`` is a ``reward/<part>``."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    if name.startswith("trl/"):  # TRL's names have slashes of their own
        return CATALOGUE["trl/<name>"]
    prefix, slash, part = name.rpartition("/")
    return CATALOGUE.get(f"{prefix}/{_PART}") if slash and part else None


def require_known(names: Iterable[str]) -> None:
    """Raises ``ValueError`` for a metric that the catalogue does not define."""
    for name in names:
        if find_metric(name) is None:
            raise ValueError(
                f"The metric {name!r} is not in grpo_zero/observe/catalogue.py: define it there "
                f"before recording it.{nearest(name, CATALOGUE)}"
            )


def worries(metrics: Mapping[str, float]) -> list[str]:
    """The names of the metrics outside their healthy range, in the order given."""
    found = ((name, find_metric(name)) for name in metrics)
    return [name for name, metric in found if metric and metric.is_worrying(metrics[name])]


def markdown_table() -> str:
    """The content of ``docs/metrics.md``: one table a group, then the names elsewhere."""
    lines = [
        "# Metrics",
        "",
        "Every number in `metrics.jsonl`, TensorBoard and the dashboard. Made from "
        "`grpo_zero/observe/catalogue.py`; edit that file, not this one.",
    ]
    for title, metrics in GROUPS.items():
        lines += ["", f"## {title}", ""]
        lines += ["| metric | unit | definition | healthy |", "|---|---|---|---|"]
        lines += [f"| `{m.name}` | {m.unit} | {m.definition} | {m.healthy} |" for m in metrics]
    lines += [
        "",
        "## Names elsewhere",
        "",
        "TensorBoard's event file has the original GRPO-Zero's tags too, so that its charts go on. Its `format_reward` is "
        "10 times `reward/format`, and its `text_0` and so on are a step's first answers. Where "
        "`skip_unfinished_episodes` is true, its means were over finished answers; ours are always over all.",
        "",
        "| here | TRL | verl | original GRPO-Zero |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| `{m.name}` | {_code(m.trl)} | {_code(m.verl)} | {_code(m.zero)} |"
        for m in CATALOGUE.values()
        if m.trl or m.verl or m.zero
    ]
    return "\n".join(lines) + "\n"


def _code(name: str) -> str:
    return f"`{name}`" if name else "-"
