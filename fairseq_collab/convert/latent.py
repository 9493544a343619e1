"""The target ``latent``: keys and values of all heads from ``r`` numbers a token (DeepSeek-V2).

    c = y C^T,      Wk_i ~ Uk_i C,      Wv_i ~ Uv_i C

Keys and values are approximated together: :mod:`.low_rank` with the heads' rows of both, each of
the two kinds weighed by its own cost, so that both are as important.  Both are in the metric of the
values' inputs: what keys of a sentence have in common matters to no score, but takes up room here.

Of biases the keys' cancels in the softmax, and those of the values, which attention weights of sum
one hand on as they are, go into the output's; so does what values lose of the mean input.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fairseq_collab.convert.heads import Weighed
from fairseq_collab.convert.low_rank import (
    Projections,
    balance,
    down_and_up,
    shared_directions,
)
from fairseq_collab.convert.target import Converted, Target
from fairseq_collab.models.variants import LATENT

#: Parts of an attention that stay as they are.
_KEPT = ("q_proj.weight", "q_proj.bias", "out_proj.weight")


def latents(keys: Projections, values: Projections, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """``C (r, d_y)``, ``Uk (H, h_qk, r)`` and ``Uv (H, h_v, r)``.

    With ``r = d_y`` the latent is the input itself, and the heads' weights stay as they are.
    """
    inputs = keys.weights.size(2)
    if size == inputs:
        return torch.eye(inputs).to(keys.weights), keys.weights, values.weights
    both = (Projections(keys.weights, keys.importance, values.metric), values)
    rows = torch.cat([part.rows() / _length(part.rows()) for part in both])
    directions = shared_directions(rows, size)
    down, key_up = down_and_up(directions, keys.weights, values.metric)
    _, value_up = down_and_up(directions, values.weights, values.metric)
    up = torch.cat([key_up.flatten(0, 1), value_up.flatten(0, 1)])  # (H h_qk + H h_v, r)
    scale = balance(down, up.T)
    return down * scale.unsqueeze(1), key_up / scale, value_up / scale


def _length(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows).clamp_min(torch.finfo(rows.dtype).tiny)


class Latent(Target):
    """Latent heads.  One that is left as it is has its inputs as latents, and caches ``d``."""

    variant = LATENT
    heads = "latent heads"
    size, what = "latent_dim", "latent dimension"
    inherited = ("head_size", "qk_head_size", "v_head_size", "key_dim", "attention_scale")

    @staticmethod
    def largest(module: Any) -> int:
        return int(module.k_proj.in_features)

    @staticmethod
    def converts(module: Any) -> bool:
        return True

    def convert(self, module: Any, part: Weighed, size: int) -> Converted:
        """Errors are those of :meth:`.Weighed.errors`."""
        heads = part.heads
        down, key_up, value_up = latents(part.keys, part.values, size)
        keys, values = key_up @ down, value_up @ down
        bo = heads.bo + heads.outputs(heads.bv)
        if part.input_mean is not None:
            bo = bo + heads.outputs((heads.wv - values) @ part.input_mean)
        own = heads.state(module.q_proj.weight)
        made = {
            "latent_proj.weight": down,
            "latent_proj.bias": down.new_zeros(size),
            "k_proj.weight": key_up.flatten(0, 1),
            "v_proj.weight": value_up.flatten(0, 1),
            "out_proj.bias": bo,
        }
        weights = {name: own[name] for name in _KEPT}
        weights |= {name: weight.to(module.q_proj.weight.dtype) for name, weight in made.items()}
        return weights, part.errors(keys, values)
