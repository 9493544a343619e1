"""Label smoothing with a penalty on open gates of heads (Voita et al. 2019, arXiv 1905.09418).

``label_smoothed_cross_entropy_with_head_gates``:

    L = Lxent + lambda Lc,    Lc = sum over gated heads of P(g != 0)

``Lxent`` is the mean loss of a target token.  What a sum over heads is worth depends on what is
done with the attentions:

    paper       ``Lc`` is the sum over all gated heads of all attentions
    released    ``Lc`` is the mean over gated attentions of each one's sum, as in the paper's
                released code: with A of them, lambda there is A lambda of the paper

fairseq sums ``Lxent`` over the batch and divides by the sample size afterwards, so that ``Lc`` is
multiplied by the sample size.  The penalty is part of the gradient in training only: validation,
its loss and decoding know nothing of it, and ``loss`` in the log is fairseq's own everywhere.
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
from fairseq.dataclass import FairseqDataclass
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from collab_common.errors import UserError
from fairseq_collab.attention import gates
from fairseq_collab.attention.gates import GatedAttention, gated_attentions
from fairseq_collab.criterions.shared import LogsMeans, check_normalisation, check_weight
from fairseq_collab.models.config import option
from fairseq_collab.models.layers import SITES

#: In the log.
EXPECTED, OPEN, BETWEEN = "gates_l0", "gates_open", "gates_between"
LOGGED = (EXPECTED, *(f"{EXPECTED}_{site}" for site in SITES), OPEN, BETWEEN)


@dataclass
class HeadGatesOptions(FairseqDataclass):
    """Options of the penalty."""

    gate_penalty: float = option(0.01, "lambda: what an open gate costs; each model needs its own")
    gate_normalisation: str = option(
        "paper",
        "paper (a sum over all heads with gates beside the mean loss of a token) or released (a "
        "mean over attentions of their sums over heads, as the paper's released code)",
    )


def gated(model: nn.Module) -> list[GatedAttention]:
    """The attentions of ``model`` whose heads have gates; raises UserError if there is none."""
    found = gated_attentions(model)
    if not found:
        raise UserError(
            "the criterion needs a model whose heads have gates",
            todo="give --arch transformer_gated_heads, or a criterion without head gates",
        )
    return found


def check_backend(model: Any) -> None:
    """Refuse torch's way of training on several devices where gates get their gradients in parts.

    It wants each gradient once an update.  The penalty has one for the gates of a layer that was
    left out, too, and one beside that of a layer that is computed a second time for its gradient.

    Raises:
        UserError: names a way that works.
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
    """``log_alpha`` of all gates of each site that has some, with a gradient."""
    sites = dict.fromkeys(attention.site for attention in attentions)
    return {
        site: torch.cat([attention.log_alpha for attention in attentions if attention.site == site])
        for site in sites
    }


def state_of(log_alpha: Mapping[str, Tensor], evaluation: str) -> dict[str, Tensor]:
    """What is logged: the expected L0 norm, by site and in all, and gates.

    A gate is open if it is in ``evaluation``, and between if its mean is neither 0 nor 1.
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


@dataclass
class LabelSmoothedWithHeadGatesConfig(HeadGatesOptions, LabelSmoothedCrossEntropyCriterionConfig):
    """Options of label smoothing and of the penalty."""


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
        gate_normalisation: str,
        ignore_prefix_size: int = 0,
        report_accuracy: bool = False,
    ):
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        check_weight("--gate-penalty", gate_penalty)
        check_normalisation("--gate-normalisation", gate_normalisation)
        self.gate_penalty, self.gate_normalisation = gate_penalty, gate_normalisation

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, Any, dict[str, Any]]:
        """fairseq's criterion contract; in training, with the penalty added to the loss."""
        if not model.training:
            return super().forward(model, sample, reduce)
        attentions = gated(model)
        check_backend(model)
        loss, sample_size, logging_output = super().forward(model, sample, reduce)
        log_alpha = log_alpha_of(attentions)
        norm = gates.probability_open(torch.cat(list(log_alpha.values()))).sum()
        if self.gate_normalisation == "released":
            norm = norm / len(attentions)
        state = state_of(log_alpha, attentions[0].gate_evaluation)
        logged = {**logging_output, **state, self.count: 1}
        return loss + sample_size * self.gate_penalty * norm, sample_size, logged
