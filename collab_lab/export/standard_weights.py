"""Weights with which fairseq's attention computes exactly what one of ours does, if they exist.

fairseq's heads have one size h and score

    score_i(x, y) = h^-0.5 (x Wq_i^T + bq_i)(y Wk_i^T + bk_i)^T,      Wq_i, Wk_i (h, d)

Every attention of this project is also bilinear in x and y, and has this form if no head needs more
than h dimensions:

* Shared keys (arXiv 2006.16362): ``score_i = s (x Wq^T + bq) M_i (y Wk^T + bk)^T``, ``M_i`` is
  ``diag(m_i)``, a matrix, or contained in own queries.  Only dimensions of the key with a mixing
  other than 0 count: all K after training, or the block of head i at its start.  Mixing and
  scale move into ``Wq_i``, each head gets a copy of its keys, and zeros fill up h.
* Smaller heads (arXiv 2002.07028) are filled up with zeros.
* Each head gets a copy of shared keys and values (arXiv 1911.02150, 2305.13245), or the product of
  its maps and the latent's (arXiv 2405.04434).

So at h = d/H shared keys qualify for K <= d/H.  An engine with heads of any size can take every
attention (:func:`smallest_size`), and where its heads may share keys and values, shared ones are
stored once (``may_share``): mixing is then in the queries, as in decoding
(:meth:`.HeadAttention.project_query`).

Shapes: ``A (H, d + 1, e)``, ``B (G, d_y + 1, e)``, ``V (G, d_y + 1, h_v)``: the heads' maps of
queries with their scale, keys and values; biases are their last rows.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from collab_lab.trained.attentions import LinearMaps, is_one_of, linear_maps
from fairseq_collab.attention import CollaborativeAttention, HeadAttention, SeparateAttention
from fairseq_collab.attention.grouped_query import GroupedQueryAttention
from fairseq_collab.attention.latent import LatentAttention
from fairseq_collab.attention.scores import for_each_head

#: Attentions that can be converted.
KNOWN = (CollaborativeAttention, SeparateAttention, GroupedQueryAttention, LatentAttention)


class NotExactError(ValueError):
    """The heads do not fit the requested size; the message gives the reason."""


def maps_of(attention: HeadAttention, heads: int) -> LinearMaps:
    """The maps ``A``, ``B`` and ``V``, with additional heads up to this number.

    The additional heads have values of 0.  They repeat the attention of the model's own heads if
    that keeps the mean attention over heads; otherwise they attend evenly.

    Raises:
        NotExactError: an unknown class of attention.
    """
    if not is_one_of(attention, KNOWN):
        raise NotExactError(f"export does not support attentions of {type(attention).__name__}")
    own = attention.num_heads
    if not own:
        like, d, d_y = attention.out_proj.weight.double(), attention.embed_dim, attention.kdim
        return LinearMaps(*(like.new_zeros(heads, size + 1, 0) for size in (d, d_y, d_y)))
    maps = linear_maps(attention)
    if own == heads:
        return maps
    queries, keys, values = (repeated(x, own) for x in maps)
    zeros = (0, 0, 0, 0, 0, heads - own)
    if heads % own:
        return LinearMaps(*(pad(x, zeros) for x in (queries, keys, values)))
    times = heads // own
    return LinearMaps(queries.repeat(times, 1, 1), keys.repeat(times, 1, 1), pad(values, zeros))


@torch.no_grad()
def plain_weights(
    attention: HeadAttention, size: int, heads: int | None = None, may_share: bool = False
) -> dict[str, Tensor]:
    """The weights of fairseq's attention with heads of ``size`` h.

    Args:
        size: size h of the standard heads.
        heads: number H of heads, see :func:`maps_of`; default: the attention's own number.
        may_share: whether to store shared keys and values once, as ``G`` heads.

    Returns:
        ``q_proj``, ``k_proj``, ``v_proj`` ``.weight (H h, d)`` and ``.bias (H h)``, ``out_proj``
        ``.weight (d, H h)`` and ``.bias (d)``, in the precision of ``attention``.

    Raises:
        NotExactError: a head needs more than h dimensions.
    """
    maps = maps_of(attention, heads or attention.num_heads or 1)
    queries, keys, values = maps
    groups = len(queries)
    if may_share and has_shared_kv(attention):
        groups = key_value_heads(attention)
        keys = repeated(keys, groups)
    else:
        scoring = scoring_heads(maps)
        needed = max(a.size(1) for a, _ in scoring)
        if needed > size:
            needs = f"its queries and keys need {needed} dimensions per head"
            raise NotExactError(f"{needs}, but exported heads have {size}")
        if values.size(2) > size:
            needs = f"its values need {values.size(2)} dimensions per head"
            raise NotExactError(f"{needs}, but exported heads have {size}")
        sides = zip(*scoring, strict=True)
        queries, keys = (torch.stack([widened(x, size) for x in side]) for side in sides)
    return _state(attention, LinearMaps(queries, keys, repeated(values, groups)), size)


def _state(attention: HeadAttention, maps: LinearMaps, size: int) -> dict[str, Tensor]:
    """The state dict of these maps, filled up to ``size``, for scores scaled by h^-0.5."""
    out, bias = attention.out_proj.weight, attention.out_proj.bias
    weights = {"out_proj.bias": bias.detach().clone()}
    scaled = (maps.queries * size**0.5, maps.keys, maps.values)
    for name, projection_maps in zip(("q_proj", "k_proj", "v_proj"), scaled, strict=True):
        rows = widened(projection_maps, size).transpose(1, 2).flatten(0, 1)  # (G h, d_y + 1)
        weights |= {f"{name}.weight": rows[:, :-1], f"{name}.bias": rows[:, -1]}
    heads, own = len(maps.queries), attention.num_heads or len(maps.queries)
    columns = widened(out.unflatten(1, (own, maps.values.size(2))), size)  # (d, own, h)
    weights["out_proj.weight"] = pad(columns, (0, 0, 0, heads - own)).flatten(1)
    return {name: weight.to(out.dtype) for name, weight in weights.items()}


# ---- heads that share ----------------------------------------------------------------------------


def has_shared_kv(attention: HeadAttention) -> bool:
    """Whether there are fewer key and value heads than query heads."""
    return bool(attention.num_heads) and key_value_heads(attention) < attention.num_heads


@torch.no_grad()
def key_value_heads(attention: HeadAttention) -> int:
    """The number G of key and value heads."""
    y = attention.out_proj.weight.new_zeros(1, 1, attention.kdim)
    return max(attention.project_key(y).size(1), attention.project_value(y).size(1))


@torch.no_grad()
def smallest_size(attention: HeadAttention) -> int:
    """The smallest ``size`` that :func:`plain_weights` accepts with ``may_share``."""
    maps = maps_of(attention, attention.num_heads)
    if has_shared_kv(attention):
        return max(maps.keys.size(2), attention.v_head_size)
    if not attention.num_heads:
        return 1
    return max(attention.v_head_size, *(a.size(1) for a, _ in scoring_heads(maps)))


# ---- single heads --------------------------------------------------------------------------------


def scoring_heads(maps: LinearMaps) -> list[tuple[Tensor, Tensor]]:
    """``A (d + 1, n)`` and ``B (d_y + 1, n)`` of each head, with only the n dimensions it uses."""
    heads = []
    for a, b in zip(maps.queries, repeated(maps.keys, len(maps.queries)), strict=True):
        used = a.any(0) & b.any(0)
        heads.append((a[:, used], b[:, used]))
    return heads


def repeated(shared: Tensor, heads: int) -> Tensor:
    """Repeat shared maps for each head: ``(G, d_y + 1, e) -> (H, d_y + 1, e)``."""
    return for_each_head(shared.unsqueeze(0), heads)[0]


def widened(x: Tensor, size: int) -> Tensor:
    """Fill up with zeros: ``(..., n) -> (..., size)``."""
    return pad(x, (0, size - x.size(-1)))
