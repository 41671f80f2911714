"""The sampling engine: many completions at once on the training weights, each prompt computed once.

Equal to ``rollout/naive.py`` token for token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from torch import Tensor

from grpo_zero.model.attention import GroupLayout, packed_positions
from grpo_zero.model.decoder import Decoder
from grpo_zero.randomness import stream
from grpo_zero.rollout.cache import PromptStore, SlotCache, bytes_per_slot
from grpo_zero.rollout.products import decode_products
from grpo_zero.rollout.sampler import SamplingParams, sample
from grpo_zero.rollout.scheduler import Scheduler
from grpo_zero.rollout.slots import Slots
from grpo_zero.types import Completion, FinishReason

PREFILL_TOKENS = 8192
"""Prompts are prefilled in streams of about this many tokens."""
CPU_CACHE_BYTES = 4 * 2**30
"""Room for keys and values on a CPU when the number of slots is not given."""
GPU_CACHE_SHARE = 0.6
"""Share of the free GPU memory for keys and values when the number of slots is not given."""

Progress = Callable[[int, int], None]


class Engine:
    """Samples completions with a decoder's current weights.

    Args:
        decoder: the policy; used in eval mode, its mode is restored after each call.
        stop_ids: any of them ends a completion.
        has_token_V: bool ``[V]``; ids without a token are never sampled. None = all have one.
        num_slots: completions sampled at once; None = as many as memory allows.
        kernels: ``auto`` multiplies by the kernels that are fastest on this CPU (``rollout/products.py``), ``plain`` never.
    """

    def __init__(
        self,
        decoder: Decoder,
        stop_ids: frozenset[int],
        has_token_V: Tensor | None,
        num_slots: int | None = None,
        kernels: str = "auto",
    ) -> None:
        self.decoder = decoder
        self.stop_ids = stop_ids
        self.has_token_V = has_token_V
        self.num_slots = num_slots
        self.kernels = kernels

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        num_samples: int,
        params: SamplingParams,
        *,
        seed_key: tuple[int, str, int] = (0, "sample", 0),
        policy_step: int = 0,
        progress: Progress | None = None,
    ) -> list[list[Completion]]:
        """Answer each prompt ``num_samples`` times.

        Args:
            prompts: token ids, each at least one.
            num_samples: completions per prompt (G).
            params: temperature, truncation and length limit.
            seed_key: (seed, purpose, step); with the prompt's and the sample's index it names a completion's noise.
            policy_step: stored in the completions.
            progress: called with (finished, total) now and then.

        Returns:
            ``completions_PG``: a list of G completions for each prompt, in order.
        """
        if not prompts:
            return []
        was_training = self.decoder.training
        self.decoder.eval()
        try:
            num_slots = self._slots_for(len(prompts) * num_samples, params)
            with torch.inference_mode(), self._products(num_slots):
                return self._run(prompts, num_samples, params, num_slots, seed_key, policy_step, progress)
        finally:
            self.decoder.train(was_training)

    def _run(
        self,
        prompts: Sequence[Sequence[int]],
        num_samples: int,
        params: SamplingParams,
        num_slots: int,
        seed_key: tuple[int, str, int],
        policy_step: int,
        progress: Progress | None,
    ) -> list[list[Completion]]:
        decoder, device, max_new = self.decoder, self.decoder.device, params.max_new_tokens
        total = len(prompts) * num_samples
        scheduler = Scheduler(len(prompts), num_samples, num_slots)
        cache = SlotCache(decoder.spec, num_slots, max_new, decoder.embedding.weight.dtype, device)
        slots = Slots(num_slots, max_new, self.stop_ids, decoder.spec.vocab_size, device)
        first_logits: dict[int, Tensor] = {}
        out: list[list[Completion | None]] = [[None] * num_samples for _ in prompts]
        num_finished = 0

        def finish(ended: Sequence[int]) -> None:
            for slot in ended:
                row = scheduler.running[slot]
                token_ids, logprobs = slots.read(slot)
                reason: FinishReason = "stop" if token_ids[-1] in self.stop_ids else "length"
                out[row.prompt_index][row.sample_index] = Completion(
                    row.prompt_index, row.sample_index, token_ids, logprobs, reason, policy_step
                )
            moves = scheduler.retire(ended)
            cache.move(moves)
            slots.move(moves)

        while not scheduler.is_done:
            first_free = len(scheduler.running)
            admitted = scheduler.admit()
            if admitted:
                rows = slice(first_free, first_free + len(admitted))
                fresh = sorted({row.prompt_index for row in admitted} - cache.prompts.keys())
                first_logits |= self._prefill(fresh, prompts, cache)
                noise = [stream(*seed_key, row.prompt_index, row.sample_index).random(max_new) for row in admitted]
                slots.admit(first_free, [len(prompts[row.prompt_index]) for row in admitted], np.stack(noise))
                logits_SV = torch.stack([first_logits[row.prompt_index] for row in admitted])
                last_waiting = scheduler.waiting[0].prompt_index if scheduler.waiting else len(prompts)
                first_logits = {p: x for p, x in first_logits.items() if p >= last_waiting}
            else:
                rows = slice(0, first_free)
                cache.begin_step(slots.num_new_S[rows] - 1)
                logits_SV = decoder.logits(decoder(*slots.last(first_free), cache))
            ended = slots.record(rows, *sample(logits_SV, slots.uniforms(rows), params, self.has_token_V))
            del logits_SV
            finish(ended)
            if (admitted or ended) and scheduler.running:
                cache.seat([row.prompt_index for row in scheduler.running])
            num_finished += len(ended)
            if ended and progress is not None:
                progress(num_finished, total)
        return [[completion for completion in row if completion is not None] for row in out]

    def _products(self, num_slots: int) -> AbstractContextManager[None]:
        return decode_products(self.decoder, num_slots) if self.kernels == "auto" else nullcontext()

    def _slots_for(self, total: int, params: SamplingParams) -> int:
        if self.num_slots is not None:
            return min(self.num_slots, total)
        room = CPU_CACHE_BYTES
        if self.decoder.device.type == "cuda":
            # Blocks that PyTorch keeps cached are free too, though the driver does not know it.
            torch.cuda.empty_cache()
            room = int(GPU_CACHE_SHARE * torch.cuda.mem_get_info(self.decoder.device)[0])
        dtype = self.decoder.embedding.weight.dtype
        return max(1, min(total, room // bytes_per_slot(self.decoder.spec, params.max_new_tokens, dtype)))

    def _prefill(self, fresh: list[int], prompts: Sequence[Sequence[int]], cache: SlotCache) -> dict[int, Tensor]:
        """Compute prompts once, keep their keys and values, and return the logits of each one's last token."""
        logits: dict[int, Tensor] = {}
        device = self.decoder.device
        for batch in _by_tokens(fresh, prompts, PREFILL_TOKENS):
            lengths = [len(prompts[p]) for p in batch]
            store = PromptStore(lengths, device)
            tokens_T = torch.tensor([token for p in batch for token in prompts[p]], device=device)
            positions = packed_positions([GroupLayout(length, ()) for length in lengths])
            hidden_TE = self.decoder(tokens_T, torch.from_numpy(positions).to(device), store)
            last = torch.tensor(np.cumsum(lengths) - 1, device=device)
            for position, (p, row) in enumerate(zip(batch, self.decoder.logits(hidden_TE[last]), strict=True)):
                cache.add_prompt(p, store, position)
                logits[p] = row
        return logits


def _by_tokens(indices: list[int], prompts: Sequence[Sequence[int]], limit: int) -> list[list[int]]:
    batches: list[list[int]] = []
    room = 0
    for index in indices:
        if not batches or len(prompts[index]) > room:
            batches.append([])
            room = limit
        batches[-1].append(index)
        room -= len(prompts[index])
    return batches
