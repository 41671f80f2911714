"""Decoding by ``decode.c``: one call a step, for a float32 model on a CPU. The fast twin of ``cache.py``."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grpo_zero.model.decoder import Decoder
from grpo_zero.model.layers import Linear, RMSNorm, rope_frequencies, rotary_tables
from grpo_zero.rollout.c_library import decode_library
from grpo_zero.rollout.cache import PromptStore
from grpo_zero.rollout.scheduler import Move

COLUMNS = 32
"""Tokens and head sizes are rounded up to a multiple, as in ``decode.c``."""


def can_compile(decoder: Decoder) -> bool:
    """Whether ``CompiledCache`` can decode this model here: float32 on a CPU, no adapters, and a C compiler."""
    is_plain = all(module.adapter is None for module in decoder.modules() if isinstance(module, Linear))
    is_float = decoder.device.type == "cpu" and decoder.embedding.weight.dtype == torch.float32
    return is_plain and is_float and decode_library() is not None


class CompiledCache:
    """Keys and values of the completions being sampled, and the step that reads and extends them.

    Args:
        decoder: its weights are read where they lie, and must stay there while the cache is used.
        num_slots: rows to make room for.
        max_new_tokens: room per row, tokens.
    """

    def __init__(self, decoder: Decoder, num_slots: int, max_new_tokens: int) -> None:
        library = decode_library()
        assert library is not None, "can_compile was not asked"
        self.library = library
        spec = decoder.spec
        self.spec, self.frequencies = spec, rope_frequencies(spec)
        self.room, self.padded_head = _padded(max_new_tokens), _padded(spec.head_size)
        places = (spec.num_layers, num_slots, spec.num_kv_heads)
        self.keys_LSKDT = torch.empty(*places, spec.head_size, self.room)
        self.values_LSKTD = torch.empty(*places, self.room, self.padded_head)
        self.prompts: dict[int, tuple[_Prompt, Tensor, Tensor]] = {}
        """Each prompt's record, and the keys ``[L, K, D, T]`` and values ``[L, K, T, D]`` it points to."""
        self.layers = (_Layer * spec.num_layers)(*(_layer(block) for block in decoder.layers))
        self.model = _Model(
            spec.num_layers,
            spec.width,
            spec.ffn_width,
            spec.num_heads,
            spec.num_kv_heads,
            spec.head_size,
            spec.vocab_size,
            spec.norm_eps,
            _address(decoder.embedding.weight),
            _address(decoder.norm.weight),
            _address(decoder.head_weight_VE),
            self.layers,
        )
        self.cache = _Cache(num_slots, self.room, _address(self.keys_LSKDT), _address(self.values_LSKTD))
        self.scratch = torch.empty(0)
        self.logits_row = _padded(spec.vocab_size) + 16

    def add_prompt(self, prompt_index: int, store: PromptStore, position: int) -> None:
        """Keep one prefilled prompt for the completions of ``prompt_index``."""
        spec, length = self.spec, store.lengths[position]
        room = _padded(length)
        keys = torch.empty(spec.num_layers, spec.num_kv_heads, spec.head_size, room)
        values = torch.empty(spec.num_layers, spec.num_kv_heads, room, self.padded_head)
        for layer in range(spec.num_layers):
            keys[layer, :, :, :length] = store.keys_LP[layer][position].transpose(1, 2)
            values[layer, :, :length, : spec.head_size] = store.values_LP[layer][position]
        self.prompts[prompt_index] = _Prompt(length, room, _address(keys), _address(values)), keys, values

    def move(self, moves: Sequence[Move]) -> None:
        """Copy rows of completions that changed slots."""
        for move in moves:
            self.keys_LSKDT[:, move.target] = self.keys_LSKDT[:, move.source]
            self.values_LSKTD[:, move.target] = self.values_LSKTD[:, move.source]

    def seat(self, prompt_of_slot: Sequence[int]) -> None:
        """Say which prompt each running slot answers; call again whenever that changes. Prompts without a slot are dropped."""
        self.prompts = {index: self.prompts[index] for index in sorted(set(prompt_of_slot))}
        records = [self.prompts[index][0] for index in prompt_of_slot]
        self.prompts_S = (ctypes.POINTER(_Prompt) * len(records))(*(ctypes.pointer(record) for record in records))
        self.longest_room = max(record.room for record in records)

    def logits(self, decoder: Decoder, tokens_S: Tensor, positions_S: Tensor, lengths_S: np.ndarray) -> Tensor:
        """Logits ``[S, V]`` of each running slot's next token, after ``tokens_S``, one new token a slot, joined the cache.

        Args:
            positions_S: of the tokens, each in its own sequence.
            lengths_S: own tokens each slot holds already.
        """
        num_rows = len(tokens_S)
        logits_SV = torch.empty(num_rows, self.logits_row)[:, : self.spec.vocab_size]
        cos_S1D, sin_S1D = rotary_tables(positions_S, self.frequencies, torch.float32)
        lengths_S = np.ascontiguousarray(lengths_S, dtype=np.int64)
        step = _Step(
            num_rows,
            tokens_S.data_ptr(),
            lengths_S.ctypes.data,
            self.prompts_S,
            _address(cos_S1D),
            _address(sin_S1D),
            logits_SV.data_ptr(),
            self.logits_row,
            None,
            self.longest_room,
            torch.get_num_threads(),
        )
        arguments = ctypes.byref(self.model), ctypes.byref(self.cache), ctypes.byref(step)
        num_floats = self.library.scratch_floats(*arguments)
        if num_floats > len(self.scratch):
            self.scratch = torch.empty(num_floats)
        step.scratch = _address(self.scratch)
        self.library.decode_step(*arguments)
        return logits_SV


def _padded(length: int) -> int:
    return -(-length // COLUMNS) * COLUMNS


def _address(tensor: Tensor | None) -> int | None:
    """Where the numbers lie; the caller keeps the tensor."""
    if tensor is None:
        return None
    assert tensor.dtype == torch.float32
    assert tensor.is_contiguous()
    return tensor.data_ptr()


def _layer(block: Any) -> _Layer:
    attention, mlp = block.attention, block.mlp
    norms: list[RMSNorm | None] = [attention.q_norm, attention.k_norm]
    return _Layer(
        _address(block.attention_norm.weight),
        *_matrix(attention.qkv),
        *(None if norm is None else _address(norm.weight) for norm in norms),
        *_matrix(attention.output),
        _address(block.mlp_norm.weight),
        *_matrix(mlp.gate_up),
        *_matrix(mlp.down),
    )


def _matrix(linear: Linear) -> tuple[int | None, int | None]:
    return _address(linear.weight), _address(linear.bias)


def _pointers(names: str) -> list[tuple[str, type]]:
    return [(name, ctypes.c_void_p) for name in names.split()]


def _sizes(names: str) -> list[tuple[str, type]]:
    return [(name, ctypes.c_int64) for name in names.split()]


class _Layer(ctypes.Structure):
    _fields_ = _pointers(
        "attention_norm_E qkv qkv_bias q_norm_D k_norm_D output output_bias "
        "mlp_norm_E gate_up gate_up_bias down down_bias"
    )


class _Model(ctypes.Structure):
    _fields_ = [
        *_sizes("num_layers width ffn_width num_heads num_kv_heads head_size vocab_size"),
        ("norm_eps", ctypes.c_double),
        *_pointers("embedding_VE norm_E head_VE"),
        ("layers_L", ctypes.POINTER(_Layer)),
    ]


class _Prompt(ctypes.Structure):
    _fields_ = [*_sizes("length room"), *_pointers("keys values")]


class _Cache(ctypes.Structure):
    _fields_ = [*_sizes("num_slots room"), *_pointers("keys values")]


class _Step(ctypes.Structure):
    _fields_ = [
        *_sizes("num_rows"),
        *_pointers("tokens_S lengths_S"),
        ("prompts_S", ctypes.POINTER(ctypes.POINTER(_Prompt))),
        *_pointers("cos_SD sin_SD logits_SV"),
        *_sizes("logits_row"),
        *_pointers("scratch"),
        *_sizes("longest_prompt_room num_threads"),
    ]
