"""The policy to stay near: the starting weights, frozen. There only when ``algorithm.kl_weight`` is not 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from grpo_zero.config import Config
from grpo_zero.errors import UserError
from grpo_zero.model.decoder import Decoder
from grpo_zero.model.lora import without_adapters
from grpo_zero.train.adapters import adapt
from grpo_zero.train.batch import TrainRow
from grpo_zero.train.budget import Budget
from grpo_zero.train.evaluate import Judged
from grpo_zero.train.policy import Policy, load_policy
from grpo_zero.train.update import row_logprobs


class KLReference:
    """A frozen decoder that tells what it would have said.

    Args:
        decoder: its weights are never changed.
        policy: the policy in training, for the ids that have no token.
    """

    def __init__(self, decoder: Decoder, policy: Policy, config: Config) -> None:
        self.decoder = decoder.eval().requires_grad_(False)
        self.has_token_V, self.training = policy.has_token_V, config.training

    def logprobs(self, judged_PG: Sequence[Sequence[Judged]], budget: Budget | None = None) -> list[list[list[float]]]:
        """Log-probs (nats) of every completion's tokens, at the sampling temperature: ``[P][G][tokens]``.

        ``budget``: of the run, for its micro-batches; None is the configured one.
        """
        rows = [
            TrainRow(p, answer.item.prompt_ids, answer.completion.token_ids, 0.0)
            for p, group in enumerate(judged_PG)
            for answer in group
        ]
        logprobs_B = iter(
            (budget or Budget(self.training)).attempt(
                lambda training: row_logprobs(self.decoder, rows, training, self.has_token_V),
                rows,
                "the forward of algorithm.kl_weight's reference",
            )
        )
        return [list(islice(logprobs_B, len(group))) for group in judged_PG]


def load_kl_reference(policy: Policy, config: Config) -> KLReference | None:
    """The starting policy of the run, also of a resumed one; None when nothing holds the policy to it.

    With LoRA it is the policy's own frozen weights, with the adapter that the run started from, if any: no second copy.

    Raises:
        UserError: the starting model is not there any more.
    """
    if not config.algorithm.kl_weight:
        return None
    if config.lora.rank:
        base = without_adapters(policy.decoder)
        if config.lora.adapter:
            adapt(replace(policy, decoder=base), config)
        return KLReference(base, policy, config)
    try:
        start = load_policy(config.model, init_seed=config.training.random_seed)
    except UserError as error:
        weight = config.algorithm.kl_weight
        raise UserError(
            f"algorithm.kl_weight is {weight}, so the run needs the model it started from: {error}"
        ) from error
    return KLReference(start.decoder, policy, config)
