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

So at h = d/H collaborative heads qualify for K <= d/H.  An engine whose heads may have any size can
take every attention: :func:`smallest_size`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_collab.attention import CollaborativeAttention, ConcatenatedAttention, HeadAttention
from fairseq_collab.attention.gates import GatedAttention
from fairseq_collab.attention.grouped_query import GroupedQueryAttention

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


def plain_weights(attention: HeadAttention, size: int) -> dict[str, Tensor]:
    """Weights with which fairseq's attention with heads of ``size`` h computes the same.

    Returns:
        ``q_proj``, ``k_proj``, ``v_proj`` ``.weight (H h, d)`` and ``.bias (H h)``, ``out_proj``
        ``.weight (d, H h)`` and ``.bias (d)``, in the precision of ``attention``.

    Raises:
        NotExactError: there are none.
    """
    heads = [fit(head, size) for head in scoring_heads(known(attention))]
    scale = size**0.5  # fairseq multiplies by h^-0.5
    weights = {
        "q_proj.weight": scale * torch.cat([head.q for head in heads]),
        "q_proj.bias": scale * torch.cat([head.q_bias for head in heads]),
        "k_proj.weight": torch.cat([head.k for head in heads]),
        "k_proj.bias": torch.cat([head.k_bias for head in heads]),
        **values(known(attention), size),
    }
    dtype = attention.out_proj.weight.dtype
    return {name: weight.to(dtype) for name, weight in weights.items()}


def smallest_size(attention: HeadAttention) -> int:
    """The smallest ``size`` that :func:`plain_weights` takes: of queries, keys and values alike."""
    heads = scoring_heads(known(attention))
    return max(attention.v_head_size, *(needed_size(head) for head in heads))


def known(attention: HeadAttention) -> CollaborativeAttention | ConcatenatedAttention:
    """``attention`` itself, with gates in ``out_proj`` as in evaluation, and keys repeated."""
    if isinstance(attention, GatedAttention):
        return attention.ungated(attention.gates().detach())
    if isinstance(attention, GroupedQueryAttention):
        return attention.concatenated()
    if not isinstance(attention, CollaborativeAttention | ConcatenatedAttention):
        raise NotExactError(f"{type(attention).__name__} is neither collaborative nor concatenated")
    return attention


def scoring_heads(attention: CollaborativeAttention | ConcatenatedAttention) -> list[Head]:
    """How each head of ``attention`` scores, in double precision."""
    return [_scoring_head(attention, i) for i in range(attention.num_heads)]


def _scoring_head(attention: CollaborativeAttention | ConcatenatedAttention, i: int) -> Head:
    """Head i: its rows of the projections, and what its queries are multiplied with."""
    q, k = attention.q_proj, attention.k_proj
    content = _double(k.weight).new_zeros(k.weight.size(1))
    if isinstance(attention, CollaborativeAttention):
        mixing = _double(attention.mixing[i])  # (K)
        rows = mixing.nonzero().squeeze(1)  # (n)
        factor = attention.scaling * mixing[rows]
        if attention.bias == "content":
            content = attention.scaling * _double(attention.content_bias[i])
    else:
        rows = torch.arange(attention.qk_head_size) + i * attention.qk_head_size
        factor = content.new_full((len(rows),), attention.scaling)
    return Head(
        q=factor[:, None] * _double(q.weight)[rows],
        q_bias=factor * _double(q.bias)[rows],
        k=_double(k.weight)[rows],
        k_bias=_double(k.bias)[rows],
        content=content,
    )


def fit(head: Head, size: int) -> Head:
    """The same head with exactly ``size`` dimensions and no content score.

    Raises:
        NotExactError: it needs more.
    """
    q, q_bias, k, k_bias, content = head
    needed = len(q)
    if needed > size:
        what = f"a head scores by {needed} dimensions; ordinary heads here have {size}"
        raise NotExactError(what)
    if content.any() and needed < size:
        # One more dimension, with the content vector as key and a query that is always one.
        q, q_bias = _filled(q, 1), torch.cat([q_bias, q_bias.new_ones(1)])
        k, k_bias = torch.cat([k, content[None]]), _filled(k_bias, 1)
    elif content.any():
        bias = content_as_bias(head)
        if bias is None:
            raise NotExactError(
                f"a head scores by {needed} dimensions and by content, which is one more; ordinary "
                f"heads here have {size}"
            )
        q_bias = q_bias + bias
    filled = (_filled(x, size - len(q)) for x in (q, q_bias, k, k_bias))
    return Head._make((*filled, torch.zeros_like(content)))


def needed_size(head: Head) -> int:
    """How many dimensions a head scores by, its content score included."""
    return len(head.q) if content_as_bias(head) is not None else len(head.q) + 1


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
    heads, own = attention.num_heads, attention.v_head_size
    if own > size:
        raise NotExactError(f"values have size {own}; ordinary heads here have {size}")
    missing = size - own
    weight = _double(attention.v_proj.weight).unflatten(0, (heads, own))  # (H, h_v, d)
    bias = _double(attention.v_proj.bias).unflatten(0, (heads, own))  # (H, h_v)
    out = _double(attention.out_proj.weight).T.unflatten(0, (heads, own))  # (H, h_v, d)

    def filled(x: Tensor) -> Tensor:
        return _filled(x.transpose(0, 1), missing).transpose(0, 1).flatten(0, 1)

    return {
        "v_proj.weight": filled(weight),
        "v_proj.bias": filled(bias),
        "out_proj.weight": filled(out).T,
        "out_proj.bias": _double(attention.out_proj.bias),
    }


def _double(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.float64)


def _filled(x: Tensor, missing: int) -> Tensor:
    """``missing`` rows of zeros after the rows of ``x``."""
    return torch.cat([x, x.new_zeros(missing, *x.shape[1:])])
