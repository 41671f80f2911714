"""The policy to stay near: the starting weights, frozen. Loaded only when ``algorithm.kl_weight`` is not 0."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from grpo_zero.config import Config
from grpo_zero.model.decoder import Decoder
from grpo_zero.train.batch import TrainRow, pack, split_micro_batches
from grpo_zero.train.evaluate import Judged
from grpo_zero.train.policy import Policy, load_policy
from grpo_zero.train.update import batch_logprobs


class KLReference:
    """A frozen decoder that tells what it would have said.

    Args:
        decoder: its weights are never changed.
        policy: the policy in training, for the ids that have no token.
    """

    def __init__(self, decoder: Decoder, policy: Policy, config: Config) -> None:
        self.decoder = decoder.eval().requires_grad_(False)
        self.has_token_V, self.training = policy.has_token_V, config.training

    def logprobs(self, judged_PG: Sequence[Sequence[Judged]]) -> list[list[list[float]]]:
        """Log-probs (nats) of every completion's tokens, at the sampling temperature: ``[P][G][tokens]``."""
        training = self.training
        rows = [
            TrainRow(p, answer.item.prompt_ids, answer.completion.token_ids, 0.0)
            for p, group in enumerate(judged_PG)
            for answer in group
        ]
        flat: list[float] = []
        with torch.no_grad():
            for micro_rows in split_micro_batches(rows, training.micro_batch_tokens, training.micro_batch_size):
                batch = pack(micro_rows, self.decoder.device)
                logprobs_C, _ = batch_logprobs(
                    self.decoder, batch, training.temperature, self.has_token_V, training.head_chunk_tokens
                )
                flat += logprobs_C.tolist()
        values = iter(flat)
        return [[[next(values) for _ in answer.completion.token_ids] for answer in group] for group in judged_PG]


def load_kl_reference(policy: Policy, config: Config) -> KLReference | None:
    """The starting policy of the run, also of a resumed one; None when nothing holds the policy to it."""
    if not config.algorithm.kl_weight:
        return None
    start = load_policy(config.model, init_seed=config.training.random_seed)
    return KLReference(start.decoder, policy, config)
