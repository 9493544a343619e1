"""From the weights of trained heads to a model with collaborative heads.

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
from typing import Any

import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from fairseq_collab.attention.scores import scaling
from fairseq_collab.checkpoints.reparametrize.factorise import (
    Factors,
    Problem,
    mean_correction,
    within_keys,
)
from fairseq_collab.checkpoints.reparametrize.source import Place, Source
from fairseq_collab.models.layers import SITES, is_copy

#: Parts of an attention that stay as they are.
_KEPT = ("v_proj.weight", "v_proj.bias", "out_proj.weight", "out_proj.bias")


def head_weights(module: Any) -> tuple[Tensor, Tensor, Tensor]:
    """``Wq (H, h, d)``, ``Wk (H, h, d_y)``, ``bq (H, h)`` of fairseq's attention or of ours."""
    heads = module.num_heads
    wq, wk = (
        projection.weight.detach().double().unflatten(0, (heads, -1))
        for projection in (module.q_proj, module.k_proj)
    )
    bias = module.q_proj.bias
    if bias is None:
        return wq, wk, wq.new_zeros(wq.shape[:2])
    return wq, wk, bias.detach().double().unflatten(0, (heads, -1))


def collaborative_weights(
    module: Any,
    problem: Problem,
    factors: Factors,
    query_mean: Tensor | None = None,
    exportable: bool = False,
) -> dict[str, Tensor]:
    """State dict, but for the signature, of the ``CollaborativeAttention`` in place of ``module``.

    Args:
        query_mean: ``(d)``, of the queries' inputs; then the content biases also take up what the
            factors lose of its scores.
        exportable: only content biases that ordinary heads can have at ``K = d/H``; the others are
            approximated.
    """
    wq, wk, bq = head_weights(module)
    ratio = module.scaling / scaling("embed", module.embed_dim, module.num_heads, wq.size(1))
    content = torch.einsum("hk,hke->he", bq, wk)  # (H, d_y)
    if query_mean is not None:
        content = content + mean_correction(problem, factors, query_mean)
    if exportable:
        content = within_keys(problem, factors, content)
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
    key = torch.linalg.vector_norm(factors.key, dim=1).clamp_min(tiny) * largest  # (K)
    root = (key / query).sqrt()  # (K)
    return (
        factors.query * root.unsqueeze(1),
        factors.key * (largest / root).unsqueeze(1),
        factors.mixing / largest,
    )


def target_config(source: Source, key_dims: Mapping[Place, int]) -> DictConfig:
    """The configuration of the result: that of ``source``, with another model.

    Args:
        key_dims: shared key dimensions of the attentions that become collaborative; all others
            keep ordinary heads.
    """
    cfg = OmegaConf.create(source.state["cfg"], flags={"allow_objects": True})
    given = cfg.model if isinstance(cfg.model, Mapping) else vars(cfg.model)
    options = MODEL_DATACLASS_REGISTRY[source.arch]()
    known = OmegaConf.structured(options)
    kept = {name: given[name] for name in known if name in given and not _is_ours(name)}
    model = OmegaConf.merge(known, kept, shape_options(source, key_dims))
    values = OmegaConf.to_container(model, enum_to_str=True)
    assert isinstance(values, dict)
    cfg.model = {"_name": source.arch, **{str(k): v for k, v in values.items() if k != "_name"}}
    return cfg


def _is_ours(name: str) -> bool:
    """Options of the source's own attention; fairseq's transformer has none of these names."""
    return name.startswith("key_dim") or name in ("attention_scale", "value_init", "mixing_init")


def shape_options(source: Source, key_dims: Mapping[Place, int]) -> dict[str, Any]:
    """Layers, heads, key dimensions, scale and bias of the result."""
    options: dict[str, Any] = {"attention_scale": "embed", "attention_bias": "content"}
    for site in SITES:
        places = [place for place in source.attentions if place.site == site]
        if not places:
            continue
        dims = [key_dims.get(place, 0) for place in places]
        options[f"key_dim_in_{site}"] = ",".join(map(str, dims))
        side = "encoder" if site == "encoder" else "decoder"
        options[f"{side}_attention_heads"] = source.attentions[places[0]].num_heads
        # The loaded model has the layers that were kept, and no others.
        options |= {f"{side}_layers": len(places), f"{side}_layers_to_keep": None}
    common = set(key_dims.values())
    if len(common) == 1 and len(key_dims) == len(source.attentions):
        options = {k: v for k, v in options.items() if not k.startswith("key_dim_in_")}
        options["key_dim"] = common.pop()
    return options


def target_model(
    source: Source, cfg: DictConfig, weights: Mapping[Place, dict[str, Tensor]]
) -> Any:
    """The model of ``cfg`` with the weights of ``source``, but for the attentions in ``weights``.

    Args:
        weights: of :func:`collaborative_weights`.
    """
    model = source.task.build_model(cfg.model).to(next(source.model.parameters()).dtype)
    state = dict(source.model.state_dict())
    for place in source.attentions:
        names = [name for name in state if name.startswith(f"{place.name}.")]
        if place in weights:
            for name in names:
                del state[name]
            state |= {f"{place.name}.{name}": weight for name, weight in weights[place].items()}
        state.pop(f"{place.name}.signature", None)
    own = model.state_dict()
    # Signatures are those of the result; fairseq's copies of its own weights have no place in it.
    state |= {name: own[name] for name in own if name.endswith("signature")}
    state = {name: weight for name, weight in state.items() if not is_copy(name)}
    model.load_state_dict(state, strict=True)
    return model.eval()
