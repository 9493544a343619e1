"""Separate keys: heads of any number and size (Bhojanapalli et al. 2020, arXiv 2002.07028).

    head_i = softmax(scale (x Wq_i^T + bq_i)(y Wk_i^T + bk_i)^T)(y Wv_i^T + bv_i)

Shapes: ``Wq_i (h_qk, d)``, ``Wk_i (h_qk, d_y)``, ``Wv_i (h_v, d_y)``, ``Wo (d, H h_v)``; d_y is the
size of the input ``y`` of keys and values (d unless given).  The heads' weights are stacked in
``q_proj``, ``k_proj``, ``v_proj``; neither ``H h_qk`` nor ``H h_v`` need be ``d``.  With
``h_qk = h_v = d/H`` this is fairseq's own attention, parameter for parameter.

``H = 0`` is a layer whose heads are all removed (Voita et al. 2019, section 6): it attends to
nothing, and its output is ``bo``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fairseq_collab.attention.base import HeadAttention
from fairseq_collab.attention.building import (
    INITS,
    SCALES,
    check_choice,
    check_sizes,
    head_size,
    init_output,
    init_projection,
    make_linear,
    scaling,
    split_heads,
)
from fairseq_collab.attention.signature import Signature, choice_field, labelled_field


@dataclass(frozen=True)
class SeparateSignature(Signature):
    kind = 1

    num_heads: int = labelled_field("heads")
    qk_head_size: int = labelled_field("query/key head size")
    v_head_size: int = labelled_field("value head size")
    scale: str = choice_field("scale", SCALES)


class SeparateAttention(HeadAttention):
    """``H`` heads, each with separate projections.

    Args:
        num_heads: ``H``, any number from 0 up.
        qk_head_size: ``h_qk``, size of a head's query and key; ``d/H`` unless given.
        v_head_size: ``h_v``, size of a head's value; ``d/H`` unless given.
        kdim: size of the input of keys and values, if not ``d``.
        scale: ``key`` for ``h_qk^-0.5``, ``embed`` for ``(d/H)^-0.5``.
        key_init: initial queries and keys, ``constant`` or ``fork``: see :data:`INITS`.
        value_init: initial values, ``constant`` or ``fork``.

    Raises:
        ValueError: a size is not positive, ``H`` is negative, ``d/H`` is asked for but is not
            whole, or an unknown choice.
    """

    signature_type = SeparateSignature

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        qk_head_size: int | None = None,
        v_head_size: int | None = None,
        kdim: int | None = None,
        scale: str = "key",
        key_init: str = "constant",
        value_init: str = "constant",
        **options: Any,
    ):
        super().__init__(embed_dim, **options)
        check_sizes(0, num_heads=num_heads)
        self.num_heads = num_heads
        qk_head_size = head_size(qk_head_size, embed_dim, num_heads)
        v_head_size = head_size(v_head_size, embed_dim, num_heads)
        check_choice("key init", key_init, INITS)
        check_choice("value init", value_init, INITS)
        self.qk_head_size, self.v_head_size = qk_head_size, v_head_size
        self.scale = scale
        self.scaling = scaling(scale, embed_dim, num_heads, self.qk_head_size)
        # In fairseq's order: a seed gives fairseq's weights.
        kdim = kdim or embed_dim
        self.k_proj = make_linear(kdim, num_heads * qk_head_size)
        self.v_proj = make_linear(kdim, num_heads * v_head_size)
        self.q_proj = make_linear(embed_dim, num_heads * qk_head_size)
        self.out_proj = make_linear(num_heads * v_head_size, embed_dim)

        if num_heads:
            same_dims = kdim == embed_dim
            reduced = num_heads * qk_head_size != embed_dim
            init_projection(self.k_proj, same_dims and not (reduced and key_init == "fork"))
            init_projection(self.v_proj, same_dims and not (reduced and value_init == "fork"))
            init_projection(self.q_proj, same_dims and not (reduced and key_init == "fork"))
            init_output(self.out_proj)

    def project_query(self, x: Tensor) -> Tensor:
        return split_heads(self.q_proj(x) * self.scaling, self.num_heads)  # (B, H, T, h_qk)

    def project_key(self, y: Tensor) -> Tensor:
        return split_heads(self.k_proj(y), self.num_heads)  # (B, H, S, h_qk)

    def project_value(self, y: Tensor) -> Tensor:
        return split_heads(self.v_proj(y), self.num_heads)  # (B, H, S, h_v)

    def cached_floats_per_token(self) -> tuple[int, int]:
        return self.num_heads * self.qk_head_size, self.num_heads * self.v_head_size
