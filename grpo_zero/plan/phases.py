"""The two phases of a step, item by item, on the device and on the host. Each phase frees what the other needs."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_zero.plan import sizes
from grpo_zero.plan.job import Job

GIB = 2**30
MAX_PADDING = 2
"""Places of attention's rectangle for each token of a micro-batch's budget, at most (``train/batch.py``)."""
PROCESS_BYTES = {"cpu": int(0.75 * GIB), "cuda": int(2.0 * GIB)}
"""Host memory of Python, torch and its libraries with their buffers; on a GPU an estimate."""
GAPS_BYTES = {"cpu": int(0.5 * GIB), "cuda": 0}
"""What malloc holds beside what is in use: seen on a CPU where recomputation leaves little in use; a caching allocator on a GPU
has its gaps in the share that a plan leaves free."""
CONTEXT_BYTES = {"cpu": 0, "cuda": int(0.75 * GIB)}
"""Device memory outside of PyTorch's allocator: CUDA's context, kernels and workspaces; an estimate."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a plan chooses, under the names of the settings."""

    recompute_activations: str
    memory_efficient_adamw: bool
    num_slots: int
    micro_batch_tokens: int
    head_chunk_tokens: int


@dataclass(frozen=True, slots=True)
class Phase:
    """Bytes by what they are for."""

    device: dict[str, int]
    host: dict[str, int]
    """On a CPU empty: its memory is the device's."""

    @property
    def device_bytes(self) -> int:
        return sum(self.device.values())

    @property
    def host_bytes(self) -> int:
        return sum(self.host.values())


def update_phase(job: Job, choice: Choice) -> Phase:
    """The update's peak: all gradients there, a micro-batch's activations kept, the head or a block at work."""
    spec, item, mode = job.spec, job.item, choice.recompute_activations
    stream = fullest_stream(job, choice.micro_batch_tokens)
    offload = choice.memory_efficient_adamw
    kept = sizes.kept_bytes(spec, stream, item, mode) + sizes.layout_bytes(spec, stream, item)
    step = 0 if offload else sizes.step_work_bytes(spec, item, job.moment_bits, job.device) - kept
    head = sizes.head_work_bytes(spec, stream, item, choice.head_chunk_tokens)
    work = max(head, sizes.layer_work_bytes(spec, stream, item, mode), step)
    moments = sizes.moment_bytes(spec, job.moment_bits)
    gradients = sizes.offloaded_gradient_bytes(spec, item) if offload else item * spec.num_parameters
    device = _weights(job) | {"gradients": gradients, "moments": 0 if offload else moments}
    device |= {"kept for backward": kept, "working memory": work}
    return _phase(job, device, choice)


def sampling_phase(job: Job, choice: Choice) -> Phase:
    """Sampling's peak: every slot full, every prompt in use; no gradients."""
    spec, item, slots = job.spec, job.item, choice.num_slots
    offload = choice.memory_efficient_adamw
    prompts = min(slots, job.num_prompts)
    decode = (spec, slots, prompts, job.max_prompt_len, job.max_sampled_len, item)
    prefill = sizes.prefill_work_bytes(spec, prompts, job.max_prompt_len, item, job.device)
    work = max(sizes.decode_work_bytes(*decode), prefill)
    device = _weights(job) | {"moments": 0 if offload else sizes.moment_bytes(spec, job.moment_bits)}
    device |= {
        "completions' keys and values": slots * sizes.slot_bytes(spec, job.max_sampled_len, item),
        "prompts' keys and values": sizes.prompt_store_bytes(spec, prompts, job.max_prompt_len, item),
        "working memory": work if slots else 0,
    }
    return _phase(job, device, choice)


def planned_bytes(job: Job, choice: Choice) -> int:
    """The larger phase, as ``peak_gib`` counts it: a GPU's allocator does not count the context."""
    larger = max(sampling_phase(job, choice).device_bytes, update_phase(job, choice).device_bytes)
    return larger - CONTEXT_BYTES[job.device]


def fullest_stream(job: Job, micro_batch_tokens: int) -> sizes.Stream:
    """The micro-batch of this budget that takes most memory: completions padded as far as ``train/batch.py`` allows."""
    own = max(1, job.max_gen_len - 1)
    tokens = min(max(micro_batch_tokens, job.longest_row), job.num_rows * job.longest_row)
    padded = max(1, MAX_PADDING * micro_batch_tokens // job.max_gen_len)
    completions = min(job.num_rows, padded, max(1, tokens - job.max_prompt_len))
    prompts = min(completions, max(1, tokens // job.max_prompt_len))
    return sizes.Stream(tokens, prompts, job.max_prompt_len, completions, own)


def _weights(job: Job) -> dict[str, int]:
    weights = job.item * job.spec.num_parameters
    return {"weights": weights} | ({"KL reference": weights} if job.has_reference else {})


def _phase(job: Job, device: dict[str, int], choice: Choice) -> Phase:
    spec, host = job.spec, {}
    host["rests of bf16 weights"] = sizes.rest_bytes(spec, job.item)
    if choice.memory_efficient_adamw:
        host["moments"] = sizes.moment_bytes(spec, job.moment_bits)
        host["sums of gradients"] = 4 * spec.num_parameters
        host["staging"] = sizes.STAGING_BYTES
    fixed = {"Python and torch": PROCESS_BYTES[job.device]}
    if job.device == "cpu":
        on_host = {f"{name}, offloaded" if name in device else name: size for name, size in host.items()}
        return Phase(_some(device | on_host | fixed | {"gaps of the heap": GAPS_BYTES["cpu"]}), {})
    return Phase(_some(device | {"CUDA context": CONTEXT_BYTES[job.device]}), _some(host | fixed))


def _some(items: dict[str, int]) -> dict[str, int]:
    return {name: size for name, size in items.items() if size}
