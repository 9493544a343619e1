"""When one of our attentions is one of fairseq's, and with which weights.

fairseq's heads are all of one size h and score

    score_i(x, y) = h^-0.5 (x Wq_i^T + bq_i)(y Wk_i^T + bk_i)^T,      Wq_i, Wk_i (h, d)

Every attention here is bilinear in x and y, too, and can be written so as soon as none of its heads
needs more than h dimensions:

* Collaborative heads (arXiv 2006.16362): ``score_i = s (x Wq^T + bq) diag(m_i) (y Wk^T + bk)^T``.
  Only the dimensions count that ``m_i`` does not switch off: all K, or head i's own block.  Mixing
  and scale go into ``Wq_i``, each head gets a copy of the keys it looks at, and what is left of h
  is filled with zeros.
* A content score ``s y c_i`` is one more dimension, with a query that is constant.  Where no
  dimension is left it can still be a query bias: if ``c_i = b Wk_i`` has a solution b.
* Smaller heads (arXiv 2002.07028) are filled up with zeros, queries, keys and values alike.
* Each head gets a copy of the keys and values that it shares with others (arXiv 1911.02150,
  2305.13245), or what its maps make of a latent (arXiv 2405.04434).

So at h = d/H collaborative heads qualify for K <= d/H.  An engine whose heads may have any size can
take every attention: :func:`smallest_size`.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_collab.attention import CollaborativeAttention, ConcatenatedAttention, HeadAttention
from fairseq_collab.attention.gates import GatedAttention
from fairseq_collab.attention.grouped_query import GroupedQueryAttention
from fairseq_collab.attention.latent import LatentAttention

#: A content vector counts as a combination of keys if what is left of it is below this share: a few
#: roundings of single precision, in which weights are stored.
RESIDUAL = 1e-6


class NotExactError(ValueError):
    """These heads are no heads of the wanted size; the message says why."""


class Head(NamedTuple):
    """What one head scores by: ``(x q^T + q_bias)(y k^T + k_bias)^T + y content``, scale included.

    Shapes: ``q (n, d)``, ``q_bias (n)``, ``k (n, d_y)``, ``k_bias (n)``, ``content (d_y)``.
    """

    q: Tensor
    q_bias: Tensor
    k: Tensor
    k_bias: Tensor
    content: Tensor


@torch.no_grad()
def plain_weights(
    attention: HeadAttention, size: int, heads_elsewhere: int = 1
) -> dict[str, Tensor]:
    """Weights with which fairseq's attention with heads of ``size`` h computes the same.

    Args:
        heads_elsewhere: an attention without heads gets so many of zeros, since fairseq's has some.

    Returns:
        ``q_proj``, ``k_proj``, ``v_proj`` ``.weight (H h, d)`` and ``.bias (H h)``, ``out_proj``
        ``.weight (d, H h)`` and ``.bias (d)``, in the precision of ``attention``.

    Raises:
        NotExactError: there are none.
    """
    exact, dtype = in_double(attention), attention.out_proj.weight.dtype
    if not attention.num_heads:
        return _zeros(attention, heads_elsewhere * size)
    heads = [fit(head, size) for head in scoring_heads(exact)]
    scale = size**0.5  # fairseq multiplies by h^-0.5
    weights = {
        "q_proj.weight": scale * torch.cat([head.q for head in heads]),
        "q_proj.bias": scale * torch.cat([head.q_bias for head in heads]),
        "k_proj.weight": torch.cat([head.k for head in heads]),
        "k_proj.bias": torch.cat([head.k_bias for head in heads]),
        **values(exact, size),
    }
    return {name: weight.to(dtype) for name, weight in weights.items()}


def _zeros(attention: HeadAttention, width: int) -> dict[str, Tensor]:
    """Projections to ``width`` numbers, H h, that are all zero, and ``out_proj``'s own bias."""
    bias = attention.out_proj.bias.detach()
    weights = {"out_proj.weight": bias.new_zeros(len(bias), width), "out_proj.bias": bias}
    for name in ("q_proj", "k_proj", "v_proj"):
        inputs: int = getattr(attention, name).in_features
        weights[f"{name}.weight"] = bias.new_zeros(width, inputs)
        weights[f"{name}.bias"] = bias.new_zeros(width)
    return weights


@torch.no_grad()
def smallest_size(attention: HeadAttention) -> int:
    """The smallest ``size`` that :func:`plain_weights` takes: of queries, keys and values alike."""
    if not attention.num_heads:
        return 1
    heads = scoring_heads(in_double(attention))
    needed = (len(head.q) + (content_as_bias(head) is None) for head in heads)
    return max(attention.v_head_size, *needed)


def in_double(attention: HeadAttention) -> CollaborativeAttention | ConcatenatedAttention:
    """A copy in double precision.

    Gates are in ``out_proj`` as in evaluation; shared heads and latents are keys and values of each
    head.
    """
    attention = copy.deepcopy(attention).double()
    if isinstance(attention, GatedAttention):
        attention = attention.ungated(attention.gates())
    elif isinstance(attention, GroupedQueryAttention | LatentAttention):
        attention = attention.concatenated()
    if not isinstance(attention, CollaborativeAttention | ConcatenatedAttention):
        raise NotExactError(f"{type(attention).__name__} is neither collaborative nor concatenated")
    return attention


def scoring_heads(attention: CollaborativeAttention | ConcatenatedAttention) -> list[Head]:
    """How each head scores: its rows of the projections, and what its queries are multiplied with.

    A head without a content score has zeros for it.
    """
    q, k = attention.q_proj, attention.k_proj
    content = k.weight.new_zeros(attention.num_heads, k.weight.size(1))  # (H, d_y)
    if isinstance(attention, CollaborativeAttention):
        rows = [mixing.nonzero().squeeze(1) for mixing in attention.mixing]  # (n) each
        mixing = attention.scaled_mixing()  # (H, K)
        factors = [mixing[i, own] for i, own in enumerate(rows)]
        if attention.bias == "content":
            content = attention.scales() * attention.content_bias
    else:
        rows = [*torch.arange(len(q.weight)).split(attention.qk_head_size)]
        factors = [q.weight.new_full((len(own),), attention.scaling) for own in rows]
    return [
        Head(f[:, None] * q.weight[own], f * q.bias[own], k.weight[own], k.bias[own], c)
        for own, f, c in zip(rows, factors, content, strict=True)
    ]


def fit(head: Head, size: int) -> Head:
    """The same head with exactly ``size`` dimensions and no content score.

    Raises:
        NotExactError: it needs more.
    """
    q, q_bias, k, k_bias, content = head
    needs, here = f"a head scores by {len(q)} dimensions", f"ordinary heads here have {size}"
    if len(q) > size:
        raise NotExactError(f"{needs}; {here}")
    if content.any() and len(q) < size:
        # One more dimension, with the content vector as key and a query that is always one.
        q, q_bias = filled(q, 1), torch.cat([q_bias, q_bias.new_ones(1)])
        k, k_bias = torch.cat([k, content[None]]), filled(k_bias, 1)
    elif content.any():
        bias = content_as_bias(head)
        if bias is None:
            raise NotExactError(f"{needs} and by content, which is one more; {here}")
        q_bias = q_bias + bias
    missing = size - len(q)
    q, q_bias, k, k_bias = (filled(x, missing) for x in (q, q_bias, k, k_bias))
    return Head(q, q_bias, k, k_bias, torch.zeros_like(content))


def content_as_bias(head: Head) -> Tensor | None:
    """Query bias ``b (n)`` that scores as the content does, ``b k = content``; None without one.

    (The key's own bias adds a constant to all scores of a query, which the softmax ignores.)
    """
    size = torch.linalg.vector_norm(head.content)
    bias = torch.linalg.lstsq(head.k.T, head.content[:, None]).solution.squeeze(1)  # (n)
    rest = torch.linalg.vector_norm(bias @ head.k - head.content)
    return bias if rest <= RESIDUAL * size else None


def values(
    attention: CollaborativeAttention | ConcatenatedAttention, size: int
) -> dict[str, Tensor]:
    """Values and output projection, with heads filled up to ``size``."""
    own, v, out = attention.v_head_size, attention.v_proj, attention.out_proj
    if own > size:
        raise NotExactError(f"values have size {own}; ordinary heads here have {size}")

    def stacked(x: Tensor) -> Tensor:  # (G h_v, ...) -> (H h, ...)
        heads = [filled(head, size - own) for head in x.split(own)]
        each = attention.num_heads // len(heads)
        return torch.cat([head for head in heads for _ in range(each)])

    return {
        "v_proj.weight": stacked(v.weight),
        "v_proj.bias": stacked(v.bias),
        "out_proj.weight": stacked(out.weight.T).T,
        "out_proj.bias": out.bias,
    }


def filled(x: Tensor, missing: int) -> Tensor:
    """``missing`` rows of zeros after the rows of ``x``."""
    return torch.cat([x, x.new_zeros(missing, *x.shape[1:])])
