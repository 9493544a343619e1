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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from collab_common.errors import UserError
from fairseq_collab.attention import gates
from fairseq_collab.attention.gates import GatedAttention, gated_attentions
from fairseq_collab.criterions.shared import LogsMeans, check_weight
from fairseq_collab.models.config import option
from fairseq_collab.models.layers import SITES

#: In the log: the expected L0 norm, open gates, gates between 0 and 1.
EXPECTED, OPEN, BETWEEN = "gates_l0", "gates_open", "gates_between"
LOGGED = (EXPECTED, *(f"{EXPECTED}_{site}" for site in SITES), OPEN, BETWEEN)


@dataclass
class LabelSmoothedWithHeadGatesConfig(LabelSmoothedCrossEntropyCriterionConfig):
    """Options of label smoothing and of the penalty."""

    gate_penalty: float = option(0.01, "lambda, the cost of an open gate; tune it for each model")


def gated(model: nn.Module) -> list[GatedAttention]:
    """The attentions of ``model`` whose heads have gates; raises UserError without any."""
    found = gated_attentions(model)
    if not found:
        raise UserError(
            "the criterion needs a model whose heads have gates",
            todo="give --arch transformer_gated_heads, or a criterion without head gates",
        )
    return found


def check_backend(model: Any) -> None:
    """Raise UserError where ``DistributedDataParallel`` would see two gradients of a gate.

    It allows one gradient per update.  A skipped layer's gates have one from the penalty, and a
    recomputed layer's have another from the recomputation.
    """
    if not any(isinstance(module, DistributedDataParallel) for module in model.modules()):
        return
    cfg = model.cfg
    if cfg.checkpoint_activations or cfg.encoder.layerdrop or cfg.decoder.layerdrop:
        raise UserError(
            "--ddp-backend pytorch_ddp cannot train gates with --checkpoint-activations, "
            "--encoder-layerdrop or --decoder-layerdrop",
            todo="give --ddp-backend legacy_ddp",
        )


def log_alpha_of(attentions: Sequence[GatedAttention]) -> dict[str, Tensor]:
    """``log_alpha`` of all gates by attention type, with a gradient."""
    sites = dict.fromkeys(attention.site for attention in attentions)
    return {
        site: torch.cat([attention.log_alpha for attention in attentions if attention.site == site])
        for site in sites
    }


def state_of(log_alpha: Mapping[str, Tensor], evaluation: str) -> dict[str, Tensor]:
    """The log: the expected L0 norm by attention type and in total, and numbers of gates.

    Open gates are those of ``evaluation``; gates between have a mean other than 0 and 1.
    """
    expected = {site: gates.probability_open(some).sum() for site, some in log_alpha.items()}
    every = torch.cat(list(log_alpha.values()))
    means = gates.deterministic(every)
    return {
        **{f"{EXPECTED}_{site}": norm.detach() for site, norm in expected.items()},
        EXPECTED: torch.stack(list(expected.values())).sum().detach(),
        OPEN: (gates.deterministic(every, evaluation) > 0).sum(),
        BETWEEN: ((means > 0) & (means < 1)).sum(),
    }


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
        attentions = gated(model)
        check_backend(model)
        loss, sample_size, logging_output = super().forward(model, sample, reduce)
        log_alpha = log_alpha_of(attentions)
        norm = gates.probability_open(torch.cat(list(log_alpha.values()))).sum()
        state = state_of(log_alpha, attentions[0].gate_evaluation)
        logged = {**logging_output, **state, self.count: 1}
        return loss + sample_size * self.gate_penalty * norm, sample_size, logged
