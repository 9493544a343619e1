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


def attend(scores: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(scores) values for one head: ``(T, S), (S, h_v) -> (T, h_v)``."""
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    return scores.softmax(dim=-1) @ values


def combine(heads: list[Tensor], out_weight: Tensor, out_bias: Tensor | None) -> Tensor:
    """Concatenate the heads' outputs ``H x (T, h_v)`` and project them back: ``(T, d)``."""
    output = torch.cat(heads, dim=-1) @ out_weight.T
    return output if out_bias is None else output + out_bias


def concatenated(
    x: Tensor,
    y: Tensor,
    weights: dict[str, Tensor],
    num_heads: int,
    scale: float,
    mask: Tensor | None = None,
) -> Tensor:
    """Concatenated heads of any size (Bhojanapalli et al. 2020, arXiv 2002.07028, section 4).

    ``head_i = softmax(scale (x Wq_i^T + bq_i)(y Wk_i^T + bk_i)^T)(y Wv_i^T + bv_i)``, with
    ``Wq_i, Wk_i (h_qk, d)`` and ``Wv_i (h_v, d)`` the i-th row blocks of the stacked weights.
    With ``h_qk = h_v = d/H`` and ``scale = h_qk^-0.5`` this is the ordinary transformer's.

    Args:
        weights: ``q_proj.weight``, ``q_proj.bias``, ... of k_proj, v_proj, out_proj, as in the
            modules' state dict; a bias may be missing.
    """
    q = _linear(x, weights, "q_proj").chunk(num_heads, dim=-1)  # H x (T, h_qk)
    k = _linear(y, weights, "k_proj").chunk(num_heads, dim=-1)  # H x (S, h_qk)
    v = _linear(y, weights, "v_proj").chunk(num_heads, dim=-1)  # H x (S, h_v)
    heads = [attend(scale * q[i] @ k[i].T, v[i], mask) for i in range(num_heads)]
    return combine(heads, weights["out_proj.weight"], weights.get("out_proj.bias"))


def collaborative_fork(
    x: Tensor, y: Tensor, weights: dict[str, Tensor], embed_dim: int, mask: Tensor | None = None
) -> Tensor:
    """Collaborative heads as the authors' translation code computes them.

    Cordonnier et al. 2020, arXiv 2006.16362, equation of the collaborative head, with the biases
    and the scale of the released fork of fairseq:
    ``head_i = softmax((d/H)^-0.5 (x Wq^T + bq) ((y Wk^T + bk) diag(m_i))^T)(y Wv_i^T + bv_i)``.
    The scale is ``(d/H)^-0.5`` whatever K is, and the mixing ``m_i`` multiplies the keys.
    """
    mixing = weights["mixing"]  # (H, K)
    num_heads = len(mixing)
    scale = (embed_dim / num_heads) ** -0.5
    q = scale * _linear(x, weights, "q_proj")  # (T, K)
    k = _linear(y, weights, "k_proj")  # (S, K)
    v = _linear(y, weights, "v_proj").chunk(num_heads, dim=-1)
    heads = [attend(q @ (k * mixing[i]).T, v[i], mask) for i in range(num_heads)]
    return combine(heads, weights["out_proj.weight"], weights.get("out_proj.bias"))


def collaborative_library(
    x: Tensor, y: Tensor, weights: dict[str, Tensor], mask: Tensor | None = None
) -> Tensor:
    """Collaborative heads as the authors' library for trained models computes them.

    ``head_i = softmax((K/H)^-0.5 (x Wq^T diag(m_i) Wk y^T + (y c_i)^T))(y Wv_i^T + bv_i)``: no bias
    in the query and key projections, but one content vector ``c_i`` a head, which scores the keys
    alone (what is left of a query bias once the softmax has cancelled the rest).
    """
    mixing, content = weights["mixing"], weights["content_bias"]  # (H, K), (H, d_y)
    num_heads, key_dim = mixing.shape
    scale = (key_dim / num_heads) ** -0.5
    q, k = x @ weights["q_proj.weight"].T, y @ weights["k_proj.weight"].T  # (T, K), (S, K)
    v = _linear(y, weights, "v_proj").chunk(num_heads, dim=-1)
    heads = []
    for i in range(num_heads):
        scores = scale * ((q * mixing[i]) @ k.T + (y @ content[i])[None, :])  # (T, S)
        heads.append(attend(scores, v[i], mask))
    return combine(heads, weights["out_proj.weight"], weights.get("out_proj.bias"))


def shared_key(
    x: Tensor,
    y: Tensor,
    weights: dict[str, Tensor],
    num_heads: int,
    scale: float,
    mask: Tensor | None = None,
) -> Tensor:
    """One key for all heads, whatever the query: ``head_i = softmax(s q_i k^T) v_g(i)``.

    ``q_i = (x Wq^T + bq) M_i`` with ``mixing`` (H, K, K), else ``q_i = x W_i^T + b_i``, the rows of
    ``q_proj``.  The number of value heads follows from the sizes of ``v_proj`` and ``out_proj``.
    """
    shared = _linear(x, weights, "q_proj")
    if "q_norm.weight" in weights:  # RMSNorm
        root = shared.square().mean(-1, keepdim=True).add(torch.finfo(shared.dtype).eps).sqrt()
        shared = shared / root * weights["q_norm.weight"]
    if "mixing" in weights:
        queries = [shared @ matrix for matrix in weights["mixing"]]
    else:
        queries = list(shared.chunk(num_heads, dim=-1))
    k, v = _linear(y, weights, "k_proj"), _linear(y, weights, "v_proj")
    size = weights["out_proj.weight"].size(1) // num_heads
    values = v.split(size, dim=-1)  # G x (S, h_v)
    heads = []
    for i, q in enumerate(queries):
        scores = scale * q @ k.T
        if "content_bias" in weights:
            scores = scores + scale * (y @ weights["content_bias"][i])
        heads.append(attend(scores, values[i * len(values) // num_heads], mask))
    return combine(heads, weights["out_proj.weight"], weights.get("out_proj.bias"))


def latent(
    x: Tensor,
    y: Tensor,
    weights: dict[str, Tensor],
    num_heads: int,
    scale: float,
    mask: Tensor | None = None,
) -> Tensor:
    """Keys and values from one latent (DeepSeek-V2, arXiv 2405.04434, equations 9 to 11).

    ``c = y C^T + bc``, ``head_i = softmax(scale (x Wq_i^T + bq_i)(c Uk_i^T)^T)(c Uv_i^T)``.
    """
    c = _linear(y, weights, "latent_proj")  # (S, r)
    q = _linear(x, weights, "q_proj").chunk(num_heads, dim=-1)  # H x (T, h_qk)
    k = _linear(c, weights, "k_proj").chunk(num_heads, dim=-1)  # H x (S, h_qk)
    v = _linear(c, weights, "v_proj").chunk(num_heads, dim=-1)  # H x (S, h_v)
    heads = [attend(scale * q[i] @ k[i].T, v[i], mask) for i in range(num_heads)]
    return combine(heads, weights["out_proj.weight"], weights.get("out_proj.bias"))


def _linear(x: Tensor, weights: dict[str, Tensor], name: str) -> Tensor:
    output = x @ weights[f"{name}.weight"].T
    bias = weights.get(f"{name}.bias")
    return output if bias is None else output + bias
