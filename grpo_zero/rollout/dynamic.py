"""Decoding with shapes that follow what runs: every step a slice of the slots, not one row too many. For a CPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from grpo_zero.model.decoder import Decoder
from grpo_zero.rollout.cache import SlotCache
from grpo_zero.rollout.compiled import CompiledCache
from grpo_zero.rollout.prefill import prefill
from grpo_zero.rollout.request import Answers, Request
from grpo_zero.rollout.sampler import sample
from grpo_zero.rollout.scheduler import Scheduler
from grpo_zero.rollout.slots import Slots
from grpo_zero.types import Completion


def generate_dynamic(decoder: Decoder, request: Request) -> list[list[Completion]]:
    """``completions_PG``. The host learns after every token which rows have ended, and fills their slots at once."""
    prompts, params, num_slots = request.prompts, request.params, request.num_slots
    scheduler = Scheduler(len(prompts), request.num_samples, num_slots)
    cache = make_cache(decoder, request)
    slots = Slots(num_slots, params.max_new_tokens, request.stop_ids, decoder.spec.vocab_size, decoder.device)
    first_logits: dict[int, Tensor] = {}
    answers = Answers(request)

    def finish(ended: Sequence[int]) -> None:
        for slot in ended:
            row = scheduler.running[slot]
            answers.add(row.prompt_index, row.sample_index, *slots.read(slot))
        moves = scheduler.retire(ended)
        cache.move(moves)
        slots.move(moves)

    while not scheduler.is_done:
        first_free = len(scheduler.running)
        admitted = scheduler.admit()
        if admitted:
            rows = slice(first_free, first_free + len(admitted))
            fresh = sorted({row.prompt_index for row in admitted} - cache.prompts.keys())
            first_logits |= prefill(decoder, fresh, prompts, cache.add_prompt)
            noise = [request.noise_T(row.prompt_index, row.sample_index) for row in admitted]
            slots.admit(first_free, [len(prompts[row.prompt_index]) for row in admitted], np.stack(noise))
            logits_SV = torch.stack([first_logits[row.prompt_index] for row in admitted])
            last_waiting = scheduler.waiting[0].prompt_index if scheduler.waiting else len(prompts)
            first_logits = {p: x for p, x in first_logits.items() if p >= last_waiting}
        else:
            rows = slice(0, first_free)
            logits_SV = cache.logits(decoder, *slots.last(first_free), slots.num_new_S[rows] - 1)
        ended = slots.record(rows, *sample(logits_SV, slots.uniforms(rows), params, request.has_token_V))
        del logits_SV
        finish(ended)
        if (admitted or ended) and scheduler.running:
            cache.seat([row.prompt_index for row in scheduler.running])
        answers.report()
    return answers.completions_PG()


def make_cache(decoder: Decoder, request: Request) -> SlotCache | CompiledCache:
    """Room for the keys and values of ``request.num_slots`` completions, and the way to decode with them."""
    num_slots, max_new_tokens = request.num_slots, request.params.max_new_tokens
    if request.is_compiled:
        return CompiledCache(decoder, num_slots, max_new_tokens)
    return SlotCache(decoder.spec, num_slots, max_new_tokens, decoder.embedding.weight.dtype, decoder.device)
