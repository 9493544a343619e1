"""The linear maps of an attention's heads, in double precision, whatever the kind of heads.

    score_i = [x 1] A_i B_i^T y^T + (equal for all keys),      value_i = [y 1] V_i
    output = sum_i softmax(score_i) value_i Wo_i^T + bo

A bias of the keys adds one number to all scores of a query, which the softmax ignores: ``B_i`` has
no row for it.  The scale of the scores is part of ``A_i``.

Shapes: ``A (H, d + 1, e)``, ``B (H, d_y, e)``, ``V (H, d_y + 1, h_v)``, ``Wo (H, d, h_v)``,
``bo (d)``.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_collab.analysis.scores import matrix_of, projections
from fairseq_collab.attention.scores import for_each_head


class HeadMaps(NamedTuple):
    """Maps of all heads; a head is an index of the first dimension."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    out: Tensor
    out_bias: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, module: Any) -> HeadMaps:
        """Those of fairseq's attention or of any of ours."""
        exact = copy.deepcopy(module).double().eval()
        heads, kdim = exact.num_heads, exact.k_proj.in_features
        query, key, value = projections(exact)
        like = exact.k_proj.weight
        maps = [
            for_each_head(matrix_of(project, size, like).unsqueeze(0), heads)[0]
            for project, size in (
                (query, exact.embed_dim),
                (key, kdim),
                (value, exact.v_proj.in_features),
            )
        ]
        out = exact.out_proj.weight.unflatten(1, (heads, -1)).transpose(0, 1)  # (H, d, h_v)
        bias = out.new_zeros(out.size(1)) if exact.out_proj.bias is None else exact.out_proj.bias
        return cls(maps[0], maps[1][:, :-1], maps[2], out.detach(), bias.detach())

    def in_groups(self, part: Tensor, groups: int) -> Tensor:
        """Means of neighbouring heads, as in Ainslie et al. 2023: ``(H, ...) -> (G, ...)``."""
        return part.unflatten(0, (groups, -1)).mean(1)


def stacked(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Maps ``(G, n + 1, e)`` as one projection: weight ``(G e, n)`` and bias ``(G e)``."""
    rows = maps.transpose(1, 2).flatten(0, 1)  # (G e, n + 1)
    return rows[:, :-1].contiguous(), rows[:, -1].contiguous()
