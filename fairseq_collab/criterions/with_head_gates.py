"""Label smoothing with a penalty on open gates of heads (Voita et al. 2019, arXiv 1905.09418).

``label_smoothed_cross_entropy_with_head_gates``:

    L = Lxent + lambda Lc,    Lc = sum over gated heads of P(g != 0)

``Lxent`` is the mean loss of a target token.  The paper's released code averages ``Lc`` over the A
gated attentions: its lambda is A times ours.

fairseq sums ``Lxent`` over the batch and divides by the sample size afterwards, so that ``Lc`` is
multiplied by the sample size.  The penalty is part of the gradient in training only.  ``loss`` in
the log is fairseq's own.
"""

# No "from __future__ import annotations": fairseq reads the fields' types.
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from torch import Tensor

from collab_common.errors import UserError
from fairseq_collab.attention import gates
from fairseq_collab.attention.gates import gated_attentions
from fairseq_collab.criterions.shared import LogsMeans, check_weight
from fairseq_collab.models.config import option

#: In the log: the expected L0 norm, and the number of gates that are open in evaluation.
LOGGED = ("gates_l0", "gates_open")


@dataclass
class LabelSmoothedWithHeadGatesConfig(LabelSmoothedCrossEntropyCriterionConfig):
    """Options of label smoothing and of the penalty."""

    gate_penalty: float = option(0.01, "lambda, the cost of an open gate; tune it for each model")


@register_criterion(
    "label_smoothed_cross_entropy_with_head_gates", dataclass=LabelSmoothedWithHeadGatesConfig
)
class LabelSmoothedCrossEntropyWithHeadGates(LogsMeans, LabelSmoothedCrossEntropyCriterion):
    """``--criterion label_smoothed_cross_entropy_with_head_gates``."""

    logged, count, digits = LOGGED, "gates_batches", 2

    def __init__(
        self,
        task: Any,
        sentence_avg: bool,
        label_smoothing: float,
        gate_penalty: float,
        ignore_prefix_size: int = 0,
        report_accuracy: bool = False,
    ):
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        check_weight("--gate-penalty", gate_penalty)
        self.gate_penalty = gate_penalty

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, Any, dict[str, Any]]:
        """fairseq's criterion contract; in training the loss includes the penalty."""
        if not model.training:
            return super().forward(model, sample, reduce)
        attentions = gated_attentions(model)
        if not attentions:
            raise UserError(
                "the criterion needs a model whose heads have gates",
                todo="give --arch transformer_gated_heads, or a criterion without head gates",
            )
        loss, sample_size, logging_output = super().forward(model, sample, reduce)
        log_alpha = torch.cat([attention.log_alpha for attention in attentions])
        norm = gates.probability_open(log_alpha).sum()
        evaluated = gates.deterministic(log_alpha, attentions[0].gate_evaluation)
        state = {"gates_l0": norm.detach(), "gates_open": (evaluated > 0).sum()}
        logged = {**logging_output, **state, self.count: 1}
        return loss + sample_size * self.gate_penalty * norm, sample_size, logged
