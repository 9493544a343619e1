"""Each paper's equation, written naively: the oracle that tests compare the fast code with.

One sentence, one head after the other, no caches, no batching.  Nothing here is fast and nothing in
the package calls it.

    x  (T, d)    the T queries' inputs          y  (S, d_y)   the S keys' inputs
    H            number of heads                K             shared key dimension (the paper's D~k)
    h_qk, h_v    query/key and value head size  mask (T, S)   True where a query may not look

Weights follow torch's ``Linear``: ``weight (out, in)``, ``y = x weight^T + bias``.
"""

from __future__ import annotations

import torch
from torch import Tensor

Weights = dict[str, Tensor]


def attend(scores: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(scores) values for one head: ``(T, S), (S, h_v) -> (T, h_v)``."""
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    return scores.softmax(dim=-1) @ values


def combine(heads: list[Tensor], out_weight: Tensor, out_bias: Tensor | None) -> Tensor:
    """Concatenate the heads' outputs ``H x (T, h_v)`` and project them back: ``(T, d)``."""
    output = torch.cat(heads, dim=-1) @ out_weight.T
    return output if out_bias is None else output + out_bias


def heads(
    x: Tensor, y: Tensor, weights: Weights, num_heads: int, scale: float, mask: Tensor | None = None
) -> Tensor:
    """Heads of any size (Bhojanapalli et al. 2020, arXiv 2002.07028, section 4), also grouped.

    ``head_i = softmax(scale (x Wq_i^T + bq_i)(y Wk_g^T + bk_g)^T)(y Wv_g^T + bv_g)``, with
    ``Wq_i, Wk_g (h_qk, d)`` and ``Wv_g (h_v, d)`` the row blocks of the stacked weights.  ``g`` is
    ``i``, or with ``G < H`` heads of keys and values ``i G // H`` (Ainslie et al. 2023, arXiv
    2305.13245).  With ``h_qk = h_v = d/H`` and ``scale = h_qk^-0.5`` these are standard heads.

    Args:
        weights: ``q_proj.weight``, ``q_proj.bias``, ... of k_proj, v_proj, out_proj, as in the
            modules' state dict; a bias may be missing.
    """
    q = _linear(x, weights, "q_proj").chunk(num_heads, dim=-1)  # H x (T, h_qk)
    k = _linear(y, weights, "k_proj").split(q[0].size(1), dim=-1)  # G x (S, h_qk)
    v = _linear(y, weights, "v_proj").chunk(len(k), dim=-1)  # G x (S, h_v)
    groups = [i * len(k) // num_heads for i in range(num_heads)]
    outputs = [attend(scale * q[i] @ k[g].T, v[g], mask) for i, g in enumerate(groups)]
    return combine(outputs, weights["out_proj.weight"], weights.get("out_proj.bias"))


def shared_key(
    x: Tensor, y: Tensor, weights: Weights, num_heads: int, scale: float, mask: Tensor | None = None
) -> Tensor:
    """One key for all heads: ``head_i = softmax(s q_i k^T) v_g(i)``.

    Diagonal mixing (``mixing`` (H, K); Cordonnier et al. 2020, arXiv 2006.16362) has
    ``q_i = (x Wq^T + bq) diag(m_i)``; full mixing (H, K, K) has ``q_i = (x Wq^T + bq) M_i``;
    without mixing ``q_i = x W_i^T + b_i``, the rows of ``q_proj``.  The authors' fork has
    ``s = (d/H)^-0.5`` at every K; their library ``s = (K/H)^-0.5``.  The number of value heads
    follows from the sizes of ``v_proj`` and ``out_proj``.
    """
    shared = _linear(x, weights, "q_proj")
    if "mixing" in weights:
        queries = [shared * m if m.dim() == 1 else shared @ m for m in weights["mixing"]]
    else:
        queries = list(shared.chunk(num_heads, dim=-1))
    k, v = _linear(y, weights, "k_proj"), _linear(y, weights, "v_proj")
    size = weights["out_proj.weight"].size(1) // num_heads
    values = v.split(size, dim=-1)  # G x (S, h_v)
    outputs = []
    for i, q in enumerate(queries):
        outputs.append(attend(scale * q @ k.T, values[i * len(values) // num_heads], mask))
    return combine(outputs, weights["out_proj.weight"], weights.get("out_proj.bias"))


def latent(
    x: Tensor, y: Tensor, weights: Weights, num_heads: int, scale: float, mask: Tensor | None = None
) -> Tensor:
    """Keys and values from one latent (DeepSeek-V2, arXiv 2405.04434, equations 9 to 11).

    ``c = y C^T + bc``, ``head_i = softmax(scale (x Wq_i^T + bq_i)(c Uk_i^T)^T)(c Uv_i^T)``; or
    ``c`` over its root mean square, times a weight.
    """
    c = _linear(y, weights, "latent_proj")
    if "latent_norm.weight" in weights:
        c = weights["latent_norm.weight"] * c / (c.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    return heads(x, c, weights, num_heads, scale, mask)


def _linear(x: Tensor, weights: dict[str, Tensor], name: str) -> Tensor:
    output = x @ weights[f"{name}.weight"].T
    bias = weights.get(f"{name}.bias")
    return output if bias is None else output + bias
