"""Choose how a run uses its memory: compute again as little as possible, then move as little as possible to the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from grpo_zero.errors import UserError
from grpo_zero.plan.job import Job
from grpo_zero.plan.phases import (
    GIB,
    PHASES,
    Choice,
    Phase,
    checkpoint_phase,
    planned_bytes,
    sampling_phase,
    update_phase,
)

SAFETY_SHARE = 0.1
"""Share of the memory that is left free: the allocator's gaps, and what the arithmetic does not know."""
MODES = ("none", "selective", "full")
FULL_SPEED_TOKENS = 4096
"""A micro-batch below costs speed, and bf16 gradients rounding: no mode is kept at that price while another has room."""
MOST_TOKENS = 32768
HEAD_CHUNKS = (256, 128, 64, 32, 16)


@dataclass(frozen=True, slots=True)
class Plan:
    """A choice, and what it comes to."""

    job: Job
    choice: Choice
    phases: dict[str, Phase]
    """By the names of ``plan/phases.py``."""
    memory: int
    """Bytes that were to be planned with, the safety margin included."""

    @property
    def device_bytes(self) -> int:
        """The largest phase."""
        return max(phase.device_bytes for phase in self.phases.values())

    @property
    def host_bytes(self) -> int:
        """The same of main memory, where the device has its own."""
        return max(phase.host_bytes for phase in self.phases.values())

    @property
    def planned_gib(self) -> float:
        """What ``peak_gib`` of a run is to be compared with."""
        return planned_bytes(self.job, self.choice) / GIB

    @property
    def line(self) -> str:
        """The plan in one line."""
        choice = self.choice
        phases = ", ".join(f"{name} {phase.device_bytes / GIB:.2f}" for name, phase in self.phases.items())
        kind = "GPU memory" if self.job.device == "cuda" else "memory"
        return (
            f"plan: {self.device_bytes / GIB:.2f} of {self.memory / GIB:.2f} GiB {kind} "
            f"({phases})"
            + (f", {self.host_bytes / GIB:.2f} GiB on the host" if self.host_bytes else "")
            + f"; recompute {choice.recompute_activations}, offload {'yes' if choice.memory_efficient_adamw else 'no'}, "
            f"{choice.num_slots} slots, micro-batches of {choice.micro_batch_tokens} tokens, "
            f"head chunks of {choice.head_chunk_tokens}"
        )


def plan(job: Job, memory: int, host_memory: int | None = None) -> Plan:
    """The first choice that fits, in the order of ``_orders``, with as many tokens and slots as fit.

    Args:
        memory: bytes of the device, of which ``SAFETY_SHARE`` stays free.
        host_memory: bytes of main memory beside a GPU, held to the same share; None is no limit.

    Raises:
        UserError: nothing fits; the sentence says what would.
    """
    found = _find(job, memory, host_memory)
    if found is None:
        raise UserError(_does_not_fit(job, memory, host_memory))
    return found


def _find(job: Job, memory: int, host_memory: int | None) -> Plan | None:
    room = int((1 - SAFETY_SHARE) * memory)
    host_room = None if host_memory is None else int((1 - SAFETY_SHARE) * host_memory)
    for choice in _orders(job):
        if max(phase(job, choice).device_bytes for phase in (update_phase, checkpoint_phase)) > room:
            continue
        fewest = min(1, job.num_sampled)

        def fits(slots: int, choice: Choice = choice) -> bool:
            return sampling_phase(job, replace(choice, num_slots=slots)).device_bytes <= room

        if not fits(fewest):
            continue
        choice = replace(choice, num_slots=max(1, _largest(fits, fewest, job.num_sampled)))
        found = _plan_of(job, choice, memory)
        if host_room is None or found.host_bytes <= host_room:
            return found
    return None


def _plan_of(job: Job, choice: Choice, memory: int) -> Plan:
    counted = choice if job.num_sampled else replace(choice, num_slots=0)
    return Plan(job, choice, {name: phase(job, counted) for name, phase in PHASES.items()}, memory)


def _orders(job: Job) -> Iterator[Choice]:
    """Choices from the best to the smallest, all with one slot.

    States on the device before offload, which a CPU has no use for; budgets of full speed before small ones; nothing computed
    again before the MLP's first product, before whole blocks; large budgets before small ones; large head chunks before small.
    """
    largest = min(MOST_TOKENS, job.num_rows * job.longest_row)
    powers = [2**power for power in range(MOST_TOKENS.bit_length() - 1, 8, -1)]
    budgets = [tokens for tokens in powers if job.longest_row < tokens < 2 * largest] + [job.longest_row]
    fast = [tokens for tokens in budgets if tokens >= FULL_SPEED_TOKENS] or budgets[:1]
    for offload in (False, True) if job.device == "cuda" else (False,):
        for some in (fast, budgets[len(fast) :]):
            for mode in MODES:
                for tokens in some:
                    for chunk in HEAD_CHUNKS:
                        yield Choice(mode, offload, 1, tokens, chunk)


def _largest(fits: Callable[[int], bool], low: int, high: int) -> int:
    """The largest number from ``low``, which fits, to ``high``."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _does_not_fit(job: Job, memory: int, host_memory: int | None) -> str:
    """One sentence: what was asked, and the largest that fits."""
    smallest = [_plan_of(job, choice, 0) for choice in _orders(job)]
    needed = min(smallest, key=lambda p: p.device_bytes)

    def fits_with(max_gen_len: int) -> bool:
        sampled = min(job.max_sampled_len, max_gen_len)
        return _find(replace(job, max_gen_len=max_gen_len, max_sampled_len=sampled), memory, host_memory) is not None

    if fits_with(1):
        longest = _largest(fits_with, 1, job.max_gen_len)
        advice = f"the longest training.max_gen_len that fits is {longest}"
    else:
        weights = _most_weights(job, memory, needed)
        advice = f"no max_gen_len does, and no model of this shape with more than about {weights / 1e9:.1f} G weights"
    gib = needed.device_bytes / (1 - SAFETY_SHARE) / GIB
    host = f" and {needed.host_bytes / (1 - SAFETY_SHARE) / GIB:.1f} GiB of main memory" if needed.host_bytes else ""
    eight = ""
    if job.moment_bits == 32:
        would = _find(replace(job, moment_bits=8), memory, host_memory) is not None
        eight = f"; training.moment_bits=8 {'would fit' if would else 'would not fit either'}"
    what = "adapters beside " if job.lora else ""
    return (
        f"Training {what}{job.spec.num_parameters / 1e9:.2f} G weights on completions of {job.max_gen_len} tokens does not fit "
        f"in {memory / GIB:.1f} GiB ({SAFETY_SHARE:.0%} left free): {advice}, and as given it takes {gib:.1f} GiB{host}{eight}."
    )


def _most_weights(job: Job, memory: int, needed: Plan) -> float:
    """Weights that would fit if all but the fixed part grew with them."""
    fixed = sum(
        needed.phases["update"].device.get(name, 0) for name in ("CUDA context", "Python and torch", "gaps of the heap")
    )
    room = max(0.0, (1 - SAFETY_SHARE) * memory - fixed)
    return job.spec.num_parameters * room / (needed.device_bytes - fixed)
