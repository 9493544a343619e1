"""Collaborative heads: one query and one key projection shared by all heads, mixed by each head.

    head_i = softmax(s_i (x Wq^T) diag(m_i) (y Wk^T)^T)(y Wv_i^T + bv_i)

Cordonnier, Loukas, Jaggi 2020, "Multi-head attention: collaborate instead of concatenate",
arXiv 2006.16362.  Concatenated heads are the special case ``K = d`` where ``m_i`` is one on head
i's own ``d/H`` dimensions and zero elsewhere.

Shapes: ``Wq, Wk (K, d)`` for any ``K >= 1`` (the paper's D~k), mixing ``M (H, K)`` with rows
``m_i``, ``Wv_i (d/H, d)``, ``Wo (d, d)``.

The paper's heads have values of their own, ``d`` numbers a token in a cache.  With ``value_heads``
G < H, head i has those of group ``i G // H`` in their place, ``G d/H`` numbers, as in grouped-query
attention (Ainslie et al. 2023, arXiv 2305.13245, section 2.2).

The mixing multiplies the *query*.  So there is one key ``(B, 1, S, K)`` for all heads, and the
cache of a decoder holds ``K`` numbers a token; the same product with mixed keys would cache
``H K``.

The scale is one number for all heads, ``s_i = s``, or ``s_i = s exp(lambda_i)`` with lambda a
parameter (``learn_scale``) or a constant (``scale="variance"``, :func:`matched_log_scale`).  The
mixing may be stored as ``M / speed``: Adam's steps, whose size does not depend on the gradient's,
then move it so many times farther.

Per-head content scores ``y c_i`` (``bias="content"``) ride along as ``H`` more key dimensions, of
which head i's query picks the i-th: they are computed once a key, and cached with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairseq_collab.attention.checks import (
    check_choice,
    check_positive,
    check_shared_evenly,
    even_head_size,
)
from fairseq_collab.attention.heads import HeadAttention
from fairseq_collab.attention.init import INITS, init_output, init_projection, projected_variance
from fairseq_collab.attention.memory import Maps
from fairseq_collab.attention.projections import by_head, linear, split_heads
from fairseq_collab.attention.scores import SCALES, scaling
from fairseq_collab.attention.signature import Signature, chosen, labelled, later

#: Biases: in both projections (the authors' fork), per-head content vectors (their library), none.
BIASES = ("projection", "content", "none")
#: Initial mixing: see :func:`init_mixing`.
MIXING_INITS = ("xavier", "block", "normal", "ones", "block_noise", "orthogonal")
#: Rules of the scale: those of all heads, and scores that start as widely as fairseq's own.
COLLABORATIVE_SCALES = (*SCALES, "variance")
#: Standard deviation of ``block_noise``.
NOISE = 0.1


@dataclass(frozen=True)
class CollaborativeSignature(Signature):
    kind = 2

    heads: int
    key_dim: int = labelled("key dimension")
    v_head_size: int = labelled("value head size")
    scale: str = chosen("scale", COLLABORATIVE_SCALES)
    bias: str = chosen("bias", BIASES)
    value_heads: int = later("value heads", before="heads")
    mixing_speed: int = later("mixing speed", before=1)


class CollaborativeAttention(HeadAttention):
    """``H`` heads that share one query and one key projection of size ``K``.

    Parameter ``log_scale (H,)`` is ``lambda``; a constant of that name, or None, where the scale is
    not learnt.

    Args:
        num_heads: ``H``; must divide ``d``, since values are per head and of size ``d/H``.
        key_dim: ``K``, the shared key dimension.
        value_heads: ``G``, which divides ``H``; ``H`` unless given.
        kdim, vdim: sizes of the inputs of keys and values, if not ``d``.
        mixing_init: ``block`` (starts as concatenated heads of size ``K/H``), ``xavier`` (the
            authors' fork), ``normal`` (their library), ``ones``, ``block_noise``, ``orthogonal``:
            see :func:`init_mixing`.
        mixing_noise: standard deviation of ``block_noise``.
        mixing_speed: the mixing is so many times the parameter ``mixing``.
        scale: ``embed`` for ``(d/H)^-0.5`` at every K (the authors' fork), ``key`` for
            ``(K/H)^-0.5`` (their library), ``variance``: see :func:`matched_log_scale`.
        learn_scale: a trained factor of the scale for each head, one at first.
        bias: ``projection``, ``content`` or ``none``.
        value_init: ``constant``, or ``fork`` for gain 1/sqrt(2) at ``K = d`` only, and else 1.

    Raises:
        ValueError: a size is not positive, ``d/H`` or ``H/G`` is not whole, ``block`` mixing with
            ``K < H``, a speed below 1, a negative noise, or an unknown choice.
    """

    log_scale: Tensor | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        key_dim: int,
        *,
        value_heads: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        mixing_init: str = "block",
        mixing_noise: float = NOISE,
        mixing_speed: int = 1,
        scale: str = "embed",
        learn_scale: bool = False,
        bias: str = "projection",
        value_init: str = "constant",
        dropout: float = 0.0,
        self_attention: bool = False,
        encoder_decoder_attention: bool = False,
    ):
        super().__init__(
            embed_dim,
            dropout=dropout,
            self_attention=self_attention,
            encoder_decoder_attention=encoder_decoder_attention,
        )
        value_heads = num_heads if value_heads is None else value_heads
        check_positive(num_heads=num_heads, key_dim=key_dim, value_heads=value_heads)
        check_positive(mixing_speed=mixing_speed)
        check_shared_evenly(num_heads, value_heads, "value heads")
        check_choice("attention scale", scale, COLLABORATIVE_SCALES)
        check_choice("attention bias", bias, BIASES)
        check_choice("value init", value_init, INITS)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_heads = value_heads
        self.v_head_size = even_head_size(embed_dim, num_heads)
        self.scale = scale
        rule = "embed" if scale == "variance" else scale
        self.scaling = scaling(rule, embed_dim, num_heads, key_dim / num_heads)
        self.mixing_speed = mixing_speed
        self.bias = bias
        kdim, vdim = kdim or embed_dim, vdim or embed_dim
        # In fairseq's order, so that one seed gives both the same weights.
        self.k_proj = linear(kdim, key_dim, bias == "projection")
        self.v_proj = linear(vdim, value_heads * self.v_head_size)
        self.q_proj = linear(embed_dim, key_dim, bias == "projection")
        self.out_proj = linear(embed_dim, embed_dim)
        self.mixing = nn.Parameter(torch.empty(num_heads, key_dim))
        if bias == "content":
            self.content_bias = nn.Parameter(torch.zeros(num_heads, kdim))

        same_dims = kdim == vdim == embed_dim
        reduced = key_dim != embed_dim
        init_projection(self.k_proj, same_dims and not reduced)
        init_projection(self.v_proj, same_dims and not (reduced and value_init == "fork"))
        init_projection(self.q_proj, same_dims and not reduced)
        init_output(self.out_proj)
        init_mixing(self.mixing, mixing_init, mixing_noise)
        log_scale = None
        if scale == "variance":
            sizes = (embed_dim, kdim, same_dims)
            log_scale = matched_log_scale(self.mixing.detach(), *sizes) - math.log(self.scaling)
        if learn_scale:
            start = torch.zeros(num_heads) if log_scale is None else log_scale
            self.log_scale = nn.Parameter(start)
        else:
            self.register_buffer("log_scale", log_scale)
        with torch.no_grad():
            self.mixing.div_(mixing_speed)
        self.register_signature()

    def scales(self) -> Tensor | float:
        """What the scores are multiplied with: ``s_i (H, 1)``, or one number for all heads."""
        if self.log_scale is None:
            return self.scaling
        return self.scaling * self.log_scale.exp().unsqueeze(1)

    def scaled_mixing(self) -> Tensor:
        """``s_i m_i (H, K)``, which queries are multiplied with."""
        return self.scales() * self.mixing_speed * self.mixing

    def project_query(self, x: Tensor) -> Tensor:
        q = self.q_proj(x).transpose(0, 1).unsqueeze(1)  # (B, 1, T, K)
        mixed = q * self.scaled_mixing().unsqueeze(1)  # (B, H, T, K)
        if self.bias != "content":
            return mixed
        heads = torch.eye(self.num_heads, dtype=q.dtype, device=q.device) * self.scales()
        picks = heads[None, :, None, :].expand(*mixed.shape[:3], -1)  # (B, H, T, H)
        return torch.cat([mixed, picks], dim=-1)  # (B, H, T, K + H)

    def project_key(self, y: Tensor) -> Tensor:
        k = self.k_proj(y)  # (S, B, K)
        if self.bias == "content":
            k = torch.cat([k, y @ self.content_bias.T], dim=-1)  # (S, B, K + H)
        return k.transpose(0, 1).unsqueeze(1)  # (B, 1, S, K), or K + H

    def project_value(self, y: Tensor) -> Tensor:
        return split_heads(self.v_proj(y), self.value_heads)  # (B, G, S, d/H)

    def source_maps(self) -> Maps:
        keys = self.k_proj.weight  # (K, d_y)
        if self.bias == "content":
            keys = torch.cat([keys, self.content_bias])  # (K + H, d_y)
        return Maps(keys.unsqueeze(0), *by_head(self.v_proj, self.value_heads))

    def describe(self) -> CollaborativeSignature:
        return CollaborativeSignature(
            self.num_heads,
            self.key_dim,
            self.v_head_size,
            self.scale,
            self.bias,
            self.value_heads,
            self.mixing_speed,
        )

    def cached_floats_per_token(self) -> tuple[int, int]:
        content = self.num_heads if self.bias == "content" else 0
        return self.key_dim + content, self.value_heads * self.v_head_size


def matched_log_scale(mixing: Tensor, embed_dim: int, kdim: int, same_dims: bool) -> Tensor:
    """``log s_i (H,)`` with which scores have at the start the variance of fairseq's own heads'.

    Inputs whose ``d`` numbers are independent with mean 0 and variance 1, as after layer
    normalisation, become queries and keys whose numbers have variances ``v_q`` and ``v_k``
    (:func:`.projected_variance`), so that before the softmax, biases aside,

        Var(score_i) = s_i^2 v_q v_k sum_k m_ik^2

    Of fairseq's heads (h = d/H, s = h^-0.5, h ones in m_i) that is ``v_q v_k`` at K = d, 1/4 in
    self-attention; it is solved for ``s_i`` (our own derivation).

    Args:
        mixing: ``M (H, K)`` at the start.
        kdim: size of the keys' inputs.
        same_dims: keys' and values' inputs have size ``d``, too.
    """

    def product(size: int) -> float:
        """``v_q v_k`` of projections to ``size``."""
        square = same_dims and size == embed_dim
        sides = (projected_variance(inputs, size, square) for inputs in (embed_dim, kdim))
        return math.prod(sides)

    lengths = torch.linalg.vector_norm(mixing, dim=1)  # (H,)
    return 0.5 * math.log(product(embed_dim) / product(mixing.size(1))) - lengths.log()


def init_mixing(mixing: Tensor, how: str, noise: float = NOISE) -> None:
    """Fill the mixing matrix ``M (H, K)`` in place.

    ``xavier``: uniform in +-sqrt(6/(H+K)), as in the authors' fork.  ``block``: ones where head i
    owns dimension k, else zeros; dimensions are dealt out in order and as evenly as ``K/H`` allows,
    so that training starts from concatenated heads (where K is no multiple of H, more evenly than
    in the authors' library; for ``K < H``, neighbouring heads own the same dimension).
    ``normal``: mean 0, standard deviation 0.2, as in the authors' library.  ``ones``: all heads
    alike in queries and keys.  ``block_noise``: as ``block``, and ``noise`` times a standard normal
    number added to each.  ``orthogonal``: for ``H <= K`` random orthogonal rows as long as those of
    ``block``, sqrt(K/H) (Saxe et al. 2014, arXiv 1312.6120); for ``H > K`` orthonormal columns.

    Raises:
        ValueError: unknown ``how``, or a negative ``noise``.
    """
    check_choice("mixing init", how, MIXING_INITS)
    if noise < 0:
        raise ValueError(f"mixing noise is {noise}; it must be 0 or more")
    num_heads, key_dim = mixing.shape
    if how == "xavier":
        nn.init.xavier_uniform_(mixing)
    elif how == "normal":
        nn.init.normal_(mixing, std=0.2)
    elif how == "ones":
        nn.init.ones_(mixing)
    elif how == "orthogonal":
        nn.init.orthogonal_(mixing, gain=math.sqrt(max(key_dim / num_heads, 1)))
    else:
        heads, dims = torch.arange(num_heads)[:, None], torch.arange(key_dim)
        owned = dims * num_heads // key_dim == heads  # (H, K)
        if key_dim < num_heads:  # a dimension has several heads, not a head several dimensions
            owned = heads * key_dim // num_heads == dims
        with torch.no_grad():
            mixing.copy_(owned)
            if how == "block_noise":
                mixing.add_(torch.randn_like(mixing), alpha=noise)
