"""From the weights of trained heads to those of collaborative heads, and to a model with new heads.

Of an attention with concatenated heads the softmax sees (Cordonnier et al. 2020, arXiv 2006.16362;
what is the same for all keys cancels, and with it the key bias)

    s (x Wq_i^T + bq_i)(y Wk_i^T)^T  =  s' ( x A'_i y^T  +  y c_i ),
    A'_i = (s/s') Wq_i^T Wk_i,        c_i = (s/s') Wk_i^T bq_i

with the scale ``s`` of the trained heads and ``s' = (d/H)^-0.5`` of the result
(``--attention-scale embed``): the factor between them goes into mixing and content biases, so
that scale and biases are exact.  Only ``A'_i ~ (s/s') Wq~^T diag(m_i) Wk~`` is an approximation.

Shapes: ``Wq_i (h, d)``, ``Wk_i (h, d_y)``, ``bq_i (h)``, ``c_i (d_y)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from fairseq_collab.attention.scores import scaling
from fairseq_collab.convert.factorise import Factors, Problem, mean_correction
from fairseq_collab.convert.heads import Heads
from fairseq_collab.convert.source import target_arch
from fairseq_collab.convert.target import Target
from fairseq_collab.prune.surgery import options_for, rebuilt, weights_of
from fairseq_collab.trained.attentions import Attention
from fairseq_collab.trained.opener import Trained

#: Parts of an attention that stay as they are.
_KEPT = ("v_proj.weight", "v_proj.bias", "out_proj.weight", "out_proj.bias")


def collaborative_weights(
    module: Any, factors: Factors, content: Tensor | None = None
) -> dict[str, Tensor]:
    """State dict, but for the signature, of the ``CollaborativeAttention`` in place of ``module``.

    Args:
        content: biases ``(H, d_y)``; those of the trained heads unless given.
    """
    heads = Heads.of(module)
    ratio = module.scaling / scaling("embed", module.embed_dim, module.num_heads, heads.wq.size(1))
    content = heads.content() if content is None else content
    query, key, mixing = normalised(factors)
    weights = {
        "q_proj.weight": query,
        "k_proj.weight": key,
        "mixing": ratio * mixing,
        "content_bias": ratio * content,
    }
    like = module.q_proj.weight
    result = {name: weight.to(like.dtype) for name, weight in weights.items()}
    own = module.state_dict()
    return result | {name: own[name] for name in _KEPT if name in own}


def content_biases(
    heads: Heads, problem: Problem, factors: Factors, query_mean: Tensor | None
) -> Tensor:
    """``(H, d_y)``: the heads' own, and what the factors lose of the scores of the mean query
    ``(d)``, if one is given."""
    own = heads.content()
    return own if query_mean is None else own + mean_correction(problem, factors, query_mean)


def normalised(factors: Factors) -> tuple[Tensor, Tensor, Tensor]:
    """The same maps with ``max_i |m_ik| = 1``, and each query row as long as its key row.

    As in concatenated heads, whose mixing is ones: further training starts from a known size.
    Weights that were copied stay as they are.
    """
    if not factors.error:
        return factors.query, factors.key, factors.mixing
    tiny = torch.finfo(factors.mixing.dtype).tiny
    largest = factors.mixing.abs().amax(0).clamp_min(tiny)  # (K)
    query = torch.linalg.vector_norm(factors.query, dim=1).clamp_min(tiny)  # (K)
    key = torch.linalg.vector_norm(factors.key, dim=1) * largest  # (K)
    root = (key.clamp_min(tiny) / query).sqrt()  # (K)
    return (
        factors.query * root.unsqueeze(1),
        factors.key * (largest / root).unsqueeze(1),
        factors.mixing / largest,
    )


def with_heads(
    trained: Trained,
    target: Target,
    weights: Mapping[Attention, dict[str, Tensor]],
    sizes: Mapping[Attention, int],
) -> Trained:
    """The checkpoint with heads of ``target`` in place of the attentions in ``weights``.

    All others keep the heads that they have.

    Args:
        weights: state dicts of the new attentions, without signatures.
        sizes: of these attentions.
    """
    gone = tuple(f"{place.name}." for place in weights)
    state = {name: it for name, it in weights_of(trained).items() if not name.startswith(gone)}
    for place, own in weights.items():
        state |= {f"{place.name}.{name}": weight for name, weight in own.items()}
    # The options of the source's own attention; fairseq has none of these.
    not_kept = {option.name for option in fields(target.variant.options)} - {*target.inherited}
    arch, shape = target_arch(trained, target), shape_options(trained, target, sizes)
    return rebuilt(trained, options_for(trained, arch, shape, not_kept), state)


def shape_options(
    trained: Trained, target: Target, sizes: Mapping[Attention, int]
) -> dict[str, Any]:
    """Layers, heads, and what ``target`` asks for: sizes, scale, bias."""
    options = dict(target.options)
    found, common = trained.attentions, set(sizes.values())
    everywhere = len(common) == 1 and len(sizes) == sum(map(len, found.values()))
    if everywhere:
        options[target.size] = common.pop()
    for site, places in found.items():
        if not places:
            continue
        if not everywhere:
            each = [sizes.get(place, target.kept(place.module)) for place in places]
            options[f"{target.size}_in_{site}"] = ",".join(map(str, each))
        side = "encoder" if site == "encoder" else "decoder"
        options[f"{side}_attention_heads"] = places[0].module.num_heads
        # The loaded model has the layers that were kept, and no others.
        options |= {f"{side}_layers": len(places), f"{side}_layers_to_keep": None}
    return options
