"""Does a checkpoint hold exactly the tensors that its config asks for?"""

from __future__ import annotations

import torch

from grpo_zero.checkpoint.raw import TensorReader
from grpo_zero.errors import UserError
from grpo_zero.model.families import hf_shapes, untied
from grpo_zero.model.spec import ModelSpec

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"

_IGNORED_ENDINGS = (".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias")
"""Buffers that old versions of transformers saved; they are computed, not learned."""


def check_tensors(reader: TensorReader, spec: ModelSpec, origin: str) -> ModelSpec:
    """The spec the weights really have. Raises ``UserError`` for a missing, odd or extra tensor.

    That is ``spec`` but for one case (faults K04, P04): a config that ties the vocabulary head,
    over a head of its own in the file. Equal to the embedding, it is a second copy and the head
    stays tied; different, the file is right and the head is untied.
    """
    if spec.tied_head and HEAD in reader.names and not _head_is_a_copy(reader):
        spec = untied(spec)
    expected = hf_shapes(spec)
    missing = sorted(expected.keys() - reader.names)
    if missing:
        raise UserError(
            f"{origin} lacks {_some(missing)}; expected every tensor of a {spec.family} model with "
            f"{spec.num_layers} layers: download the model again, or correct its config.json."
        )
    for name, shape in expected.items():
        found = reader.shape(name)
        if found != shape:
            raise UserError(
                f"{name} in {origin} has shape {list(found)}; expected {list(shape)} by its "
                f"config: the weights and config.json are of different models, download both again."
            )
    extra = sorted(name for name in reader.names - expected.keys() - {HEAD} if not name.endswith(_IGNORED_ENDINGS))
    if extra:
        raise UserError(
            f"{origin} holds {_some(extra)}, which a {spec.family} model by its config does not "
            f"have: merge an adapter first, or correct config.json."
        )
    return spec


def _head_is_a_copy(reader: TensorReader) -> bool:
    if reader.shape(HEAD) != reader.shape(EMBEDDING):
        return False  # reported as a wrong shape later
    return torch.equal(reader.tensor(HEAD), reader.tensor(EMBEDDING))


def _some(names: list[str]) -> str:
    """The first names and how many more there are."""
    rest = f" and {len(names) - 3} more tensors" if len(names) > 3 else ""
    return ("the tensor " if len(names) == 1 else "") + ", ".join(names[:3]) + rest
