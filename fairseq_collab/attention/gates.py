"""Separate keys with a gate per head, closed by a penalty (Voita et al. 2019, arXiv 1905.09418).

    output = [g_1 head_1, ..., g_H head_H] Wo^T + bo

In training each gate is drawn from the hard-concrete distribution (section 6.1 of the paper), once
per head and forward pass, for all sentences of the batch:

    u ~ U(0, 1),    s = sigmoid((log u - log(1 - u) + log_alpha) / temperature)
    g = clip(s (right - left) + left, 0, 1)

It is continuous, but 0 and 1 have probabilities above zero.  With
``z(x) = log((x - left) / (right - x))``,

    P(g <= x) = sigmoid(temperature z(x) - log_alpha)    for 0 <= x < 1
    P(g = 0)  = sigmoid(temperature z(0) - log_alpha)
    P(g = 1)  = sigmoid(log_alpha - temperature z(1))

The penalty, the expected L0 norm, is the sum of ``P(g != 0)`` over heads.  In evaluation a gate is
its likelier end (section 6.1): 1 where ``log_alpha >= 0``, else 0.  (``P(g = 1) >= P(g = 0)`` is
equivalent: left and right have equal distances from 1/2.)

Shapes: ``log_alpha``, gates and probabilities ``(H,)``; values ``(B, H, S, h_v)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_collab.attention.building import check_sizes
from fairseq_collab.attention.separate import SeparateAttention, SeparateSignature
from fairseq_collab.attention.signature import SIGNATURE_VERSION, labelled_field

#: The constants of the paper's released code.  (Its figure 6 fits a temperature of 0.5.)
TEMPERATURE, LEFT, RIGHT, EPSILON = 0.33, -0.1, 1.1, 1e-6
#: ``log_alpha`` at the start, an open gate: 1 in evaluation; in training ``P(g = 1)`` is 0.96 and
#: ``P(g = 0)`` 0.01.  (The released code starts near 0, which damages a converged model.)
OPEN = 4.0


def sample(log_alpha: Tensor) -> Tensor:
    """Draw the gates of one training batch, with a gradient for ``log_alpha``."""
    u = torch.empty_like(log_alpha).uniform_(EPSILON, 1 - EPSILON)
    s = torch.sigmoid((torch.logit(u) + log_alpha) / TEMPERATURE)
    return (s * (RIGHT - LEFT) + LEFT).clamp(0, 1)


def rounded(log_alpha: Tensor) -> Tensor:
    """Return the gates of evaluation: 0 or 1."""
    return (log_alpha >= 0).to(log_alpha.dtype)


def probability_open(log_alpha: Tensor) -> Tensor:
    """Compute ``P(g != 0)``; the sum over heads is their expected L0 norm."""
    z = math.log(-LEFT / RIGHT)  # z(0)
    return torch.sigmoid(log_alpha - TEMPERATURE * z)


@dataclass(frozen=True)
class GatedSignature(SeparateSignature):
    kind = 4

    gate_speed: int = labelled_field("gate speed")


class GatedAttention(SeparateAttention):
    """Separate keys with a gate per head, see :class:`SeparateAttention`.

    The gate multiplies the head's values: ``A_i (g_i V_i) = g_i (A_i V_i)``.  So it also holds for
    the fused kernel, for decoding step by step and for returned attention weights.

    Args:
        gate_speed: ``log_alpha`` is ``gate_speed`` times the parameter ``theta (H,)``.  Adam's
            steps do not depend on the gradient's scale, so they move ``log_alpha`` this many times
            as fast.  In the paper it is 1.

    Raises:
        ValueError: as for :class:`SeparateAttention`; or the speed is below 1.
    """

    signature_type = GatedSignature

    def __init__(self, embed_dim: int, num_heads: int, *, gate_speed: int = 1, **options: Any):
        check_sizes(gate_speed=gate_speed)
        self.gate_speed = gate_speed
        super().__init__(embed_dim, num_heads, **options)
        self.theta = nn.Parameter(torch.full((num_heads,), OPEN) / gate_speed)

    @property
    def log_alpha(self) -> Tensor:
        """``(H,)``, at least in single precision: ``log u`` is inaccurate in half precision."""
        precision = torch.promote_types(self.theta.dtype, torch.float32)
        return self.gate_speed * self.theta.to(precision)

    def gates(self) -> Tensor:
        """Return ``(H,)``: a new sample in every forward pass of training, else constant."""
        return sample(self.log_alpha) if self.training else rounded(self.log_alpha)

    def project_value(self, y: Tensor) -> Tensor:
        value = super().project_value(y)  # (B, H, S, h_v)
        return value * self.gates()[:, None, None].to(value.dtype)

    def signature_of(self, saved: Tensor) -> Tensor:
        """Complete a ``saved`` signature of separate keys without gates: add this speed.

        Its fields of heads, which come first, stay.  A signature of another kind is returned
        unchanged: loading rejects it.
        """
        if saved[:2].tolist() != [SIGNATURE_VERSION, SeparateSignature.kind]:
            return saved
        signature = self.describe().to_tensor()
        signature[2 : len(saved)] = saved[2:]
        return signature


def gated_attentions(model: nn.Module) -> list[GatedAttention]:
    """List the attentions of a model whose heads have gates, in its order."""
    return [module for module in model.modules() if isinstance(module, GatedAttention)]
