"""Concatenated heads with gates, to be closed by a penalty (Voita et al. 2019, arXiv 1905.09418).

    output = [g_1 head_1, ..., g_H head_H] Wo^T + bo

In training each gate is drawn from the hard-concrete distribution (section 6.1 of the paper),

    u ~ U(0, 1),    s = sigmoid((log u - log(1 - u) + log_alpha) / temperature)
    g = clip(s (right - left) + left, 0, 1)

once a head and forward pass, for all sentences of the batch.  It is continuous, and yet 0 and 1
have probabilities above zero.  With ``z(x) = log((x - left) / (right - x))``,

    P(g <= x) = sigmoid(temperature z(x) - log_alpha)    for 0 <= x < 1
    P(g = 0)  = sigmoid(temperature z(0) - log_alpha)
    P(g = 1)  = sigmoid(log_alpha - temperature z(1))

The penalty, the expected L0 norm, is the sum of ``P(g != 0)`` over heads.  The mean of ``g`` has no
closed form.  In evaluation there is neither chance nor temperature:

    mean       clip(sigmoid(log_alpha) (right - left) + left, 0, 1), as in the paper's released code
    rounded    the likelier end, as in the paper (section 6.1): 1 where log_alpha >= 0, and else 0.
               P(g = 1) >= P(g = 0) says the same, since left and right lie as far from 1/2

Shapes: ``log_alpha``, gates and probabilities ``(H,)``; values ``(B, H, S, h_v)``.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_collab.attention.checks import check_choice, check_positive
from fairseq_collab.attention.concatenated import ConcatenatedAttention, ConcatenatedSignature
from fairseq_collab.attention.memory import Maps
from fairseq_collab.attention.signature import labelled

#: The constants of the paper's released code.  (Its figure 6 fits a temperature of 0.5.)
TEMPERATURE, LEFT, RIGHT, EPSILON = 0.33, -0.1, 1.1, 1e-6
#: How gates begin: all but surely open, or by chance around one half as in the released code.
GATE_INITS = ("open", "random")
#: ``log_alpha`` of an open gate: 1 in evaluation; in training ``P(g = 1)`` 0.96, ``P(g = 0)`` 0.01.
OPEN = 4.0
#: Gates in evaluation.
EVALUATIONS = ("rounded", "mean")


def sample(log_alpha: Tensor) -> Tensor:
    """Gates of one training batch, with a gradient for ``log_alpha``."""
    u = torch.empty_like(log_alpha).uniform_(EPSILON, 1 - EPSILON)
    return _stretched(torch.sigmoid((torch.logit(u) + log_alpha) / TEMPERATURE))


def deterministic(log_alpha: Tensor, evaluation: str = "mean") -> Tensor:
    """Gates in evaluation; ``mean`` is 0 up to ``log_alpha = -log 11``, and 1 from ``log 11`` up.

    Args:
        evaluation: one of :data:`EVALUATIONS`.
    """
    if evaluation == "rounded":
        return (log_alpha >= 0).to(log_alpha.dtype)
    return _stretched(torch.sigmoid(log_alpha))


def _stretched(s: Tensor) -> Tensor:
    return (s * (RIGHT - LEFT) + LEFT).clamp(0, 1)


def probability_open(log_alpha: Tensor) -> Tensor:
    """``P(g != 0)``; the sum over heads is their expected L0 norm."""
    z = math.log(-LEFT / RIGHT)  # z(0)
    return torch.sigmoid(log_alpha - TEMPERATURE * z)


@dataclass(frozen=True)
class GatedSignature(ConcatenatedSignature):
    kind = 4

    gate_speed: int = labelled("gate speed")


class GatedAttention(ConcatenatedAttention):
    """Concatenated heads, each behind a gate.

    The gate multiplies the head's values.  For the output that is the same,
    ``A_i (g_i V_i) = g_i (A_i V_i)``, and it holds for every way in which a head is computed: by a
    fused kernel, step by step, or with its weights shown.

    Args:
        gate_init: one of :data:`GATE_INITS`.
        gate_speed: ``log_alpha`` is so many times the parameter ``theta (H,)``.  An optimiser such
            as Adam, whose steps are as long as the learning rate whatever the gradient, then moves
            ``log_alpha`` so many times as fast.  The paper has 1.
        gate_evaluation: one of :data:`EVALUATIONS`.  No weight depends on it, and no signature.
        site: where the attention stands in its model; only its users need it.

    Raises:
        ValueError: see :class:`ConcatenatedAttention`; or an unknown choice, or a speed below 1.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        gate_init: str = "open",
        gate_speed: int = 1,
        gate_evaluation: str = "rounded",
        site: str = "",
        **options: Any,
    ):
        check_choice("gate init", gate_init, GATE_INITS)
        check_choice("gate evaluation", gate_evaluation, EVALUATIONS)
        check_positive(gate_speed=gate_speed)
        self.gate_speed, self.gate_evaluation, self.site = gate_speed, gate_evaluation, site
        super().__init__(embed_dim, num_heads, **options)
        log_alpha = torch.full((num_heads,), OPEN)
        if gate_init == "random":
            # Xavier for the shape (1, H, 1, 1) of the released code: both fans are H.
            nn.init.uniform_(log_alpha, -math.sqrt(3 / num_heads), math.sqrt(3 / num_heads))
        self.theta = nn.Parameter(log_alpha / gate_speed)

    @property
    def log_alpha(self) -> Tensor:
        """``(H,)``, in single precision at least: in half, ``log u`` would be far off."""
        precision = torch.promote_types(self.theta.dtype, torch.float32)
        return self.gate_speed * self.theta.to(precision)

    def gates(self) -> Tensor:
        """``(H,)``: drawn for every forward pass in training, constant in evaluation."""
        if self.training:
            return sample(self.log_alpha)
        return deterministic(self.log_alpha, self.gate_evaluation)

    def project_value(self, y: Tensor) -> Tensor:
        value = super().project_value(y)  # (B, H, S, h_v)
        return value * self.gates()[:, None, None].to(value.dtype)

    def source_maps(self) -> Maps:
        keys, values, bias = super().source_maps()
        gates = self.gates().to(values.dtype)[:, None]
        return Maps(keys, values * gates[:, None], None if bias is None else bias * gates)

    def describe(self) -> GatedSignature:
        return GatedSignature(**asdict(super().describe()), gate_speed=self.gate_speed)

    def ungated(self, gates: Tensor) -> ConcatenatedAttention:
        """The same heads without gates: ``gates (H,)`` are multiplied into columns of ``out_proj``.

        With the gates of evaluation it computes, in evaluation, what this one does.
        """
        plain = ConcatenatedAttention(
            self.embed_dim,
            self.num_heads,
            qk_head_size=self.qk_head_size,
            v_head_size=self.v_head_size,
            kdim=self.k_proj.in_features,
            vdim=self.v_proj.in_features,
            scale=self.scale,
            self_attention=self.self_attention,
            encoder_decoder_attention=self.encoder_decoder_attention,
        ).to(self.out_proj.weight)
        own = plain.state_dict().keys()
        weights = {name: weight for name, weight in self.state_dict().items() if name in own}
        columns = gates.to(self.out_proj.weight).repeat_interleave(self.v_head_size)  # (H h_v,)
        weights["out_proj.weight"] = self.out_proj.weight.detach() * columns
        weights["signature"] = plain.signature
        plain.load_state_dict(weights)
        plain.dropout_module = self.dropout_module
        return plain.train(self.training)


def gated_attentions(model: nn.Module) -> list[GatedAttention]:
    """All attentions of a model whose heads have gates, in its order."""
    return [module for module in model.modules() if isinstance(module, GatedAttention)]
