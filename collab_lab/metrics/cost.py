"""Costs of a model: parameters, KV cache, and multiply-adds, counted on the built model.

The KV cache is counted in bytes per token of one sentence, summed over decoder layers.  Numbers
have 16 bits, as in half precision, or the bits of a rounded cache, including scales and offsets.
The *share* of a cache is relative to the standard cache: keys and values as wide as the model, in
16-bit numbers.  Decoder self-attention caches every target token (once per beam).  Cross-attention
caches every source token (once per sentence here, once per beam in fairseq's transformer), and so
does decoder self-attention that also reads the source (fairseq's ``--cross-self-attention``).

torch counts the multiply-adds of one forward pass over one sentence (pair): every matrix product,
including the output projection (all words of an adaptive softmax).  Embeddings, softmax,
normalisation and element-wise products do not count.  Ni et al. 2023 (arXiv 2305.14380), table 1,
count in the same way at 30 source and 30 target tokens, and call the numbers FLOPs.
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
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from collab_common.errors import UserError, check_whole
from collab_common.progress import say
from collab_lab.trained.attentions import attentions, by_type
from collab_lab.trained.checkpoint import Trained, what_was_cut
from collab_lab.trained.checks import check_transformer
from collab_lab.trained.from_options import build_from_options
from fairseq_collab.attention import HeadAttention
from fairseq_collab.models.layers import is_copy

#: Bits of a cached number that is not rounded: of float16.
UNROUNDED = 16
#: Tokens on each side at which multiply-adds are stated, as in the paper above.
LENGTH = 30
#: Tokens on each side, and beams, at which the bytes of a search are stated.
LONG, SEARCH_BEAM = 1000, 5
_SOME_WORD = 4  # the first symbol after fairseq's four special ones


@dataclass(frozen=True)
class Cost:
    """The number of parameters (shared ones count once), and the cached bytes per token."""

    parameters: int
    attention_parameters: int
    key_bytes_per_target_token: int
    value_bytes_per_target_token: int
    key_bytes_per_source_token: int
    value_bytes_per_source_token: int


def cost(model: Any) -> Cost:
    """Count the parameters and cached bytes of a translation or language model, fairseq's or ours.

    A line names attentions of a plug-in whose cache counts as a standard one.

    Args:
        model: what ``open_model`` returns, or its module.

    Raises:
        UserError: ``model`` is neither.
    """
    model = _module_of(model)
    say_if_unknown(model)
    cached = {
        f"{part}_bytes_per_{token}_token": sum(cached_bytes(module)[index] for module in modules)
        for token, modules in caching(model).items()
        for index, part in enumerate(("key", "value"))
    }
    kinds = (HeadAttention, MultiheadAttention)
    ours = [module for module in model.modules() if isinstance(module, kinds)]
    ours += [attention.module for attention in attentions(model)]  # of plug-ins, too
    return Cost(
        parameters=sum(p.numel() for p in used_parameters(model)),
        attention_parameters=sum(p.numel() for p in {p for one in ours for p in one.parameters()}),
        **cached,
    )


def say_if_unknown(model: nn.Module) -> None:
    """Say which attentions of a plug-in count as if they cached standard keys and values."""
    modules = [module for found in caching(model).values() for module in found]
    unknown = sorted({type(module).__name__ for module in modules if not is_known(module)})
    if unknown:
        say(
            f"warning: what a {' and a '.join(unknown)} caches is unknown: the KV cache is counted "
            "as keys and values of the model's width"
        )


def is_known(module: Any) -> bool:
    """Whether an attention says what it caches, or has fairseq's keys and values."""
    if isinstance(module, MultiheadAttention):
        widths = {project.out_features for project in (module.k_proj, module.v_proj)}
        return widths == {module.embed_dim}
    return isinstance(module, HeadAttention)


def _module_of(model: Any) -> nn.Module:
    """The module of a model; UserError for what is none."""
    module = model.model if isinstance(model, Trained) else model
    if not isinstance(module, nn.Module):
        raise UserError(f"must be what open_model returns, not {model!r:.60}", "`model`")
    return module


def totals(model: Any, *, rounded: bool = True) -> dict[str, int]:
    """The cache and the parameters of a whole model.

    The cache is in bits: those of one source token plus those of one target token, over all layers.
    A number that is not rounded has 16 bits.

    Args:
        rounded: count a rounded number with its bits, including scales and offsets; otherwise
            count all numbers with 16 bits.
    """
    modules = [module for found in caching(model).values() for module in found]
    return {
        "cache": sum(sum(cached_bits(module, UNROUNDED, rounded)) for module in modules),
        "parameters": sum(parameter.numel() for parameter in used_parameters(model)),
    }


def searched_bytes(model: Any, length: int = LONG, beam: int = SEARCH_BEAM) -> tuple[int, int]:
    """Bytes of a sentence's KV cache at the end of a beam search: the least, and the most.

    At each step our translation models cache one slot per beam, and keep only slots that some
    current beam descends from.  The least assumes that all beams share everything but the last
    step, the most that no slot is dropped.  The actual number depends on the text, and
    ``fairseq-collab bench --lengths`` measures it.  Other models keep all slots, and fairseq's
    transformer also keeps the source once per beam.

    Args:
        model: what ``open_model`` returns, or its module.
        length: tokens of the source, and of the translation.
        beam: number of hypotheses.
    """
    module = _module_of(model)
    target, source = (
        sum(sum(cached_bytes(one)) for one in caching(module)[token])
        for token in ("target", "source")
    )
    every = length * beam * target
    if not any(isinstance(one, HeadAttention) for one in module.modules()):
        return (every + length * beam * source,) * 2
    live = (length - 1 + beam) * target if hasattr(module, "encoder") else every
    return live + length * source, every + length * source


def standard_cache(model: Any) -> int:
    """Bits per source token plus bits per target token of a standard cache in the same layers."""
    modules = [module for found in caching(model).values() for module in found]
    return sum(2 * UNROUNDED * int(module.embed_dim) for module in modules)


def standard_costs(model: Any) -> dict[str, int]:
    """The costs that count as 100%: those of a standard cache, and the model's parameters."""
    return {**totals(model), "cache": standard_cache(model)}


def cache_share(model: Any) -> float:
    """The bytes of a model's KV cache, as a share of those of the standard cache."""
    return totals(model)["cache"] / standard_cache(model)


def used_parameters(model: nn.Module) -> Iterator[nn.Parameter]:
    """All parameters except the unused copies that fairseq 0.12.2 keeps in encoder layers."""
    return (parameter for name, parameter in model.named_parameters() if not is_copy(name))


def caching(model: nn.Module) -> dict[str, list[Any]]:
    """The attentions that cache ``target`` tokens, and those that cache ``source`` tokens."""
    types = {type_: [a.module for a in found] for type_, found in by_type(model).items()}
    both = [module for module in types["decoder"] if reads_source(module)]
    return {"target": types["decoder"], "source": types["cross"] + both}


def reads_source(module: Any) -> bool:
    """Whether decoder self-attention also reads the source in the same softmax."""
    return not getattr(module, "self_attention", True)


def cached_numbers(attention: Any) -> tuple[int, int]:
    """How many numbers the cache keeps of one token's keys and values; a latent counts as keys."""
    if isinstance(attention, HeadAttention):
        return attention.cached_floats_per_token()
    return attention.embed_dim, attention.embed_dim


def cached_bits(attention: Any, unrounded: int, rounded: bool = True) -> tuple[int, int]:
    """Bits of one token's keys and values in the cache; ``unrounded`` bits per unrounded number."""
    if rounded and isinstance(attention, HeadAttention):
        return attention.cached_bits_per_token(unrounded)
    keys, values = cached_numbers(attention)
    return unrounded * keys, unrounded * values


def cached_bytes(attention: Any) -> tuple[int, int]:
    """Bytes of one token's keys and values in the cache of ``attention``."""
    keys, values = cached_bits(attention, UNROUNDED)
    return keys // 8, values // 8


def load_architecture(path: Path) -> tuple[nn.Module, str | None]:
    """Build the untrained model of a checkpoint, and return it with :attr:`.shrunk`'s text."""
    state = load_checkpoint_to_cpu(str(path))
    model = build_from_options(state["cfg"].model, state["cfg"], state["model"], path)
    check_transformer(model, path)
    return model, what_was_cut(state)


def multiply_adds(model: Any, length: int = LENGTH) -> int:
    """Count the multiply-adds of a model on one sentence pair, or of a language model on one block.

    Args:
        model: what ``open_model`` returns, or its module.
        length: tokens of the source and of the target, or of the block.

    Raises:
        UserError: ``model`` is neither, or the length is below 1.
    """
    check_whole(length=length)
    if length < 1:
        raise UserError(f"must be above 0, not {length}", "`length`")
    # A copy, whose linear maps are torch's own: torch does not count oneDNN's products.
    model = copy.deepcopy(_module_of(model)).cpu().eval()
    tokens = torch.full((1, length), _SOME_WORD)
    source = (tokens, torch.tensor([length])) if hasattr(model, "encoder") else ()
    plain = sdpa_kernel(SDPBackend.MATH)  # no fused kernel here, either
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), plain, counter:
        output = model(*source, tokens)
        if getattr(model.decoder, "adaptive_softmax", None) is not None:  # else part of the output
            model.get_normalized_probs(output, log_probs=True)
    return counter.get_total_flops() // 2  # a multiply-add is two operations
