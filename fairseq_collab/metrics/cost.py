"""What a model costs: parameters, cache while it decodes, and multiply-adds.

Counts come from the built model, not from formulas.  Cache figures are for one token of one
sentence, summed over decoder layers, in single precision: a target token is cached by decoder
self-attention (once a beam), a source token by cross-attention (once a sentence here; once a beam
in fairseq's transformer).

Multiply-adds are counted by torch while the model runs one sentence (pair): every matrix product of
the full forward pass of a training step or of scoring a translation, each source and target token
once, output projection included (of an adaptive softmax all words, as to choose the next one: to
score a given word takes less); embeddings, softmax, normalisation and products by element (the
mixing of collaborative heads, dropout) have no matrix product and count for nothing.  That is the
convention of Ni et al. 2023 (arXiv 2305.14380), table 1, where such counts at 30 source and 30
target tokens are called FLOPs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq.checkpoint_utils import load_checkpoint_to_cpu
from fairseq.modules import MultiheadAttention
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from fairseq_collab.attention import HeadAttention
from fairseq_collab.kernels.onednn import restore_linear
from fairseq_collab.models.layers import is_copy
from fairseq_collab.trained.attentions import by_site
from fairseq_collab.trained.opener import check_transformer
from fairseq_collab.trained.untrained import untrained

BYTES_PER_FLOAT = 4
#: Source and target length that costs are stated at, as in the paper above.
LENGTH = 30
_SOME_WORD = 4  # the first symbol after fairseq's four special ones


@dataclass(frozen=True)
class Cost:
    """Parameters (each shared one once) and cached bytes a token (single precision)."""

    parameters: int
    attention_parameters: int
    key_bytes_per_target_token: int
    value_bytes_per_target_token: int
    key_bytes_per_source_token: int
    value_bytes_per_source_token: int


def cost(model: Any) -> Cost:
    """Count a fairseq transformer, stock or ours: a translation model or a language model."""
    sites = by_site(model)
    floats = {
        f"{part}_bytes_per_{token}_token": [cached_floats(one.module)[place] for one in site]
        for token, site in (("target", sites["decoder"]), ("source", sites["cross"]))
        for place, part in enumerate(("key", "value"))
    }
    kinds = (HeadAttention, MultiheadAttention)
    ours = [module for module in model.modules() if isinstance(module, kinds)]
    return Cost(
        parameters=sum(p.numel() for p in used_parameters(model)),
        attention_parameters=sum(p.numel() for module in ours for p in module.parameters()),
        **{name: BYTES_PER_FLOAT * sum(each) for name, each in floats.items()},
    )


def used_parameters(model: nn.Module) -> Iterator[nn.Parameter]:
    """All parameters but the copies that fairseq 0.12.2's encoder layers keep of their weights."""
    return (parameter for name, parameter in model.named_parameters() if not is_copy(name))


def cached_floats(attention: Any) -> tuple[int, int]:
    """Numbers that one token's keys and values take in the cache of ``attention``."""
    if isinstance(attention, HeadAttention):
        return attention.cached_floats_per_token()
    return attention.embed_dim, attention.embed_dim


def load_architecture(path: Path, **overrides: Any) -> nn.Module:
    """The model of a checkpoint, with other options where ``overrides`` says so, without weights.

    Raises:
        UserError: the file is not a checkpoint of an encoder-decoder transformer or a language
            model, or its architecture is a plug-in's that is not loaded.
    """
    state = load_checkpoint_to_cpu(str(path), arg_overrides=overrides)
    model = untrained(state["cfg"].model, state["cfg"], state["model"], path)
    check_transformer(model, path)
    return model


def multiply_adds(model: Any, source_length: int = LENGTH, target_length: int = LENGTH) -> int:
    """Multiply-adds of a transformer, stock or ours, on one sentence pair.

    Of a language model those of a block of ``target_length`` tokens: it has no source.
    """
    model = copy.deepcopy(model).cpu().eval()
    restore_linear(model)  # torch has no count of oneDNN's products
    for module in model.modules():
        if isinstance(module, TransformerEncoderLayerBase):
            module.can_use_fastpath = False  # a fused kernel, which the counter cannot see into
    source = torch.full((1, source_length), _SOME_WORD)
    target = torch.full((1, target_length), _SOME_WORD)
    sides = (source, torch.tensor([source_length])) if hasattr(model, "encoder") else ()
    # Plain products in place of fused kernels, which the counter cannot see into either.
    plain = sdpa_kernel(SDPBackend.MATH)
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), plain, counter:
        output = model(*sides, target)
        if getattr(model.decoder, "adaptive_softmax", None) is not None:  # else part of the output
            model.get_normalized_probs(output, log_probs=True)
    return counter.get_total_flops() // 2  # a multiply-add is two operations
