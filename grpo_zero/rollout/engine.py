"""The sampling engine: many completions at once on the training weights, each prompt computed once.

Equal to ``rollout/naive.py`` token for token.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch
from torch import Tensor

from grpo_zero.allocator import empty_caches, give_back_freed_memory
from grpo_zero.model.decoder import Decoder
from grpo_zero.observe.phases import phase
from grpo_zero.out_of_memory import with_less
from grpo_zero.rollout.cache import bytes_per_slot
from grpo_zero.rollout.compiled import can_compile
from grpo_zero.rollout.dynamic import generate_dynamic
from grpo_zero.rollout.products import decode_products
from grpo_zero.rollout.request import Progress, Request
from grpo_zero.rollout.sampler import SamplingParams
from grpo_zero.rollout.static import generate_static
from grpo_zero.types import Completion

CPU_CACHE_BYTES = 4 * 2**30
"""Room for keys and values on a CPU when the number of slots is not given."""
GPU_CACHE_SHARE = 0.6
"""Share of the free GPU memory for keys and values when the number of slots is not given."""

STRATEGIES = {"dynamic": generate_dynamic, "static": generate_static}


class Engine:
    """Samples completions with a decoder's current weights.

    Args:
        decoder: the policy; used in eval mode, its mode is restored after each call.
        stop_ids: any of them ends a completion.
        has_token_V: bool ``[V]``; ids without a token are never sampled. None = all have one.
        num_slots: completions sampled at once; None = as many as memory allows. Halved for good where memory runs out.
        kernels: of a CPU. ``auto`` runs a step as compiled C where that is possible (``compiled.py``), else ``measured``, which
            multiplies by the kernels that are fastest here (``products.py``); ``plain`` always by the usual one.
        decode: ``dynamic`` or ``static`` shapes: the files of these names.
        reuses_memory: whether sampling works in what others freed (``allocator.py``).
    """

    def __init__(
        self,
        decoder: Decoder,
        stop_ids: frozenset[int],
        has_token_V: Tensor | None,
        num_slots: int | None = None,
        kernels: str = "auto",
        decode: str = "dynamic",
        reuses_memory: bool = True,
    ) -> None:
        self.decoder = decoder
        self.stop_ids = stop_ids
        self.has_token_V = has_token_V
        self.num_slots = num_slots
        self.kernels = kernels
        self.decode = decode
        self.reuses_memory = reuses_memory
        self.num_shortages = 0
        """Times that memory ran out, and sampling began again with fewer slots."""

    @property
    def is_compiled(self) -> bool:
        """Whether a step of decoding is compiled C."""
        return self.kernels == "auto" and self.decode == "dynamic" and can_compile(self.decoder)

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
            ``completions_PG``: a list of G completions for each prompt, in order. What they say does not depend on the slots.

        Raises:
            UserError: the model's numbers are not finite.
            OutOfMemory: not even one slot fits.
        """
        if not prompts:
            return []
        if not self.reuses_memory:
            give_back_freed_memory()
        was_training = self.decoder.training
        self.decoder.eval()
        try:
            request = Request(
                prompts,
                num_samples,
                self._slots_for(len(prompts) * num_samples, params),
                params,
                self.stop_ids,
                self.has_token_V,
                seed_key,
                policy_step,
                progress,
                is_compiled=self.is_compiled,
            )
            return self._answer(request)
        finally:
            self.decoder.train(was_training)

    def _answer(self, request: Request) -> list[list[Completion]]:
        def work() -> list[list[Completion]]:
            with phase("decode"), torch.inference_mode(), self._products(request):
                return STRATEGIES[self.decode](self.decoder, request)

        def make_smaller() -> bool:
            nonlocal request
            empty_caches()
            if request.num_slots == 1:
                return False
            self.num_slots = request.num_slots // 2
            self.num_shortages += 1
            request = replace(request, num_slots=self.num_slots)
            return True

        return with_less(work, make_smaller, "sampling")

    def _products(self, request: Request) -> AbstractContextManager[None]:
        is_plain = self.kernels == "plain" or request.is_compiled
        return nullcontext() if is_plain else decode_products(self.decoder, request.num_slots)

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
