"""The phases of a run, item by item, on the device and on the host. Each phase frees what the others need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from grpo_zero.plan import adapters, sizes
from grpo_zero.plan.job import Job

GIB = 2**30
MAX_PADDING = 2
"""Places of attention's rectangle for each token of a micro-batch's budget, at most (``train/batch.py``)."""
PROCESS_BYTES = {"cpu": int(0.75 * GIB), "mps": int(0.75 * GIB), "cuda": int(2.0 * GIB)}
"""Host memory of Python, torch and its libraries with their buffers; on a GPU an estimate."""
GAPS_BYTES = {"cpu": int(0.5 * GIB), "mps": int(0.5 * GIB), "cuda": 0}
"""What malloc holds beside what is in use: seen on a CPU where recomputation leaves little in use; a caching allocator on a GPU
has its gaps in the share that a plan leaves free."""
CONTEXT_BYTES = {"cpu": 0, "mps": 0, "cuda": int(0.75 * GIB)}
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
    offload, trained = choice.memory_efficient_adamw, job.trained_sizes
    block = (spec, stream, item, mode)
    if job.lora:
        kept = adapters.kept_bytes(*block, job.lora, job.device)
        layer = adapters.layer_work_bytes(*block, job.lora, job.device)
    else:
        kept, layer = sizes.kept_bytes(*block, job.device), sizes.layer_work_bytes(*block, job.device)
    kept += sizes.layout_bytes(spec, stream, item)
    step = 0 if offload else sizes.step_work_bytes(trained, job.trained_item, job.moment_bits, job.device) - kept
    head = sizes.head_work_bytes(spec, stream, item, choice.head_chunk_tokens, job.device)
    work = max(head, layer, step)
    whole = job.trained_item * sum(trained.values())
    gradients = sizes.offloaded_gradient_bytes(trained, job.trained_item) if offload else whole
    device = _states(job, choice) | {"gradients": gradients}
    device |= {"kept for backward": kept, "working memory": work}
    return _phase(job, device, choice)


def sampling_phase(job: Job, choice: Choice) -> Phase:
    """Sampling's peak: every slot full, every prompt in use; no gradients."""
    spec, item, slots = job.spec, job.item, choice.num_slots
    prompts = min(slots, job.num_prompts)
    decode = (spec, slots, prompts, job.max_prompt_len, job.max_sampled_len, item)
    prefill = (adapters if job.lora else sizes).prefill_work_bytes(spec, prompts, job.max_prompt_len, item, job.device)
    work = max(sizes.decode_work_bytes(*decode), prefill)
    device = _states(job, choice) | {
        "completions' keys and values": slots * sizes.slot_bytes(spec, job.max_sampled_len, item),
        "prompts' keys and values": sizes.prompt_store_bytes(spec, prompts, job.max_prompt_len, item),
        "working memory": work if slots else 0,
    }
    return _phase(job, device, choice)


def checkpoint_phase(job: Job, choice: Choice) -> Phase:
    """A checkpoint's peak: what leaves the device or is merged stands in main memory until its file is written."""
    spec, item = job.spec, job.item
    device, copies = _states(job, choice), 0
    if job.lora:
        device["merging"] = adapters.merging_bytes(spec, job.lora, item)
        copies = min(sizes.SHARD_BYTES, adapters.merged_bytes(spec, job.lora, item))
    if job.device == "cuda":
        model = min(sizes.SHARD_BYTES, item * spec.num_parameters)
        moments = 0 if choice.memory_efficient_adamw else sizes.moment_bytes(job.trained_sizes, job.moment_bits)
        copies = max(model, moments)
    return _phase(job, device, choice, {"copies to write": copies})


PHASES = {"sampling": sampling_phase, "update": update_phase, "checkpoint": checkpoint_phase}


def planned_bytes(job: Job, choice: Choice) -> int:
    """The largest phase, as ``peak_gib`` counts it: a GPU's allocator does not count the context."""
    return max(phase(job, choice).device_bytes for phase in PHASES.values()) - CONTEXT_BYTES[job.device]


def fullest_stream(job: Job, micro_batch_tokens: int) -> sizes.Stream:
    """The micro-batch of this budget that takes most memory: completions padded as far as ``train/batch.py`` allows."""
    own = max(1, job.max_gen_len - 1)
    tokens = min(max(micro_batch_tokens, job.longest_row), job.num_rows * job.longest_row)
    padded = max(1, MAX_PADDING * micro_batch_tokens // job.max_gen_len)
    completions = min(job.num_rows, padded, max(1, tokens - job.max_prompt_len))
    prompts = min(completions, max(1, tokens // job.max_prompt_len))
    return sizes.Stream(tokens, prompts, job.max_prompt_len, completions, own)


def _states(job: Job, choice: Choice) -> dict[str, int]:
    """What stays on the device through all phases."""
    weights, trained = job.item * job.spec.num_parameters, job.trained_sizes
    found = {"weights": weights}
    reference = weights
    if job.lora:  # whose reference has the policy's frozen weights
        found["adapters"] = adapters.WIDE * sum(trained.values())
        reference = found["adapters"] if job.lora.adapter else 0
    if job.has_reference:
        found["KL reference"] = reference
    return found | {"moments": 0 if choice.memory_efficient_adamw else sizes.moment_bytes(trained, job.moment_bits)}


def _phase(
    job: Job, device: dict[str, int], choice: Choice, more_on_host: Mapping[str, int] = MappingProxyType({})
) -> Phase:
    trained, host = job.trained_sizes, {}
    host["rests of bf16 weights"] = sizes.rest_bytes(trained, job.trained_item)
    if choice.memory_efficient_adamw:
        host["moments"] = sizes.moment_bytes(trained, job.moment_bits)
        host["sums of gradients"] = 4 * sum(trained.values())
        host["staging"] = sizes.STAGING_BYTES
    host |= more_on_host
    fixed = {"Python and torch": PROCESS_BYTES[job.device]}
    if job.device != "cuda":
        on_host = {f"{name}, offloaded" if name in device else name: size for name, size in host.items()}
        return Phase(_some(device | on_host | fixed | {"gaps of the heap": GAPS_BYTES[job.device]}), {})
    return Phase(_some(device | {"CUDA context": CONTEXT_BYTES[job.device]}), _some(host | fixed))


def _some(items: dict[str, int]) -> dict[str, int]:
    return {name: size for name, size in items.items() if size}
