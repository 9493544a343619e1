"""fairseq's losses with a term for heads; each adds its gradient in training only.

``label_smoothed_cross_entropy_with_head_gates`` (Voita et al. 2019, arXiv 1905.09418) has a penalty
on open gates:

    L = Lxent + lambda Lc,    Lc = sum over gated heads of P(g != 0)

``Lxent`` is the mean loss of a target token (of a sentence with ``--sentence-avg``).  The paper's
released code averages ``Lc`` over the A gated attentions: its lambda is A times ours.  fairseq sums
``Lxent`` over the batch and divides by the sample size afterwards, so that ``Lc`` is multiplied by
the sample size.

``label_smoothed_cross_entropy_with_head_groups`` for translation and
``adaptive_loss_with_head_groups`` for language models with adaptive softmax have the group
constraint (Ni et al. 2023, arXiv 2305.14380; :mod:`.constraint`).

``loss`` in the log is fairseq's own.
"""

# No "from __future__ import annotations": fairseq reads the fields' types.
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from fairseq import metrics
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.criterions.adaptive_loss import AdaptiveLoss, AdaptiveLossConfig
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.dataclass import FairseqDataclass
from torch import Tensor

from collab_common.errors import UserError
from fairseq_collab.attention import gates
from fairseq_collab.attention.gates import gated_attentions
from fairseq_collab.criterions.constraint import MEASURES, constrain, padding_of, watched
from fairseq_collab.models.options import option


def check_weight(option: str, value: float) -> None:
    """Raise UserError for a weight of a loss below 0, or NaN."""
    if not value >= 0:
        raise UserError(f"is {value}; it must be 0 or more", where=option)


class LogsMeans(FairseqCriterion):
    """A criterion that adds means over training batches to the log of the next criterion class."""

    #: Names in the log; outputs hold sums over batches.
    logged: ClassVar[tuple[str, ...]]
    #: The name under which outputs hold their number of training batches.
    count: ClassVar[str]
    #: Digits after the point.
    digits: ClassVar[int]

    @classmethod
    def reduce_metrics(cls, logging_outputs: Sequence[dict[str, Any]]) -> None:
        super().reduce_metrics(logging_outputs)
        batches = sum(log.get(cls.count, 0) for log in logging_outputs)
        if batches:
            for name in (name for name in cls.logged if name in logging_outputs[0]):
                total = sum(log[name] for log in logging_outputs)
                metrics.log_scalar(name, total / batches, batches, round=cls.digits)


# ---- gates ---------------------------------------------------------------------------------------

#: Names in the log: the expected L0 norm, and the number of gates that are open in evaluation.
GATES_LOGGED = ("gates_l0", "gates_open")


@dataclass
class LabelSmoothedWithHeadGatesConfig(LabelSmoothedCrossEntropyCriterionConfig):
    """Options of label smoothing and of the penalty."""

    gate_penalty: float = option(
        0.01,
        "penalty per open gate, added to the loss (lambda in the paper); a larger one closes more "
        "heads; tune it for each model",
    )


@register_criterion(
    "label_smoothed_cross_entropy_with_head_gates", dataclass=LabelSmoothedWithHeadGatesConfig
)
class LabelSmoothedCrossEntropyWithHeadGates(LogsMeans, LabelSmoothedCrossEntropyCriterion):
    """``--criterion label_smoothed_cross_entropy_with_head_gates``."""

    logged, count, digits = GATES_LOGGED, "gates_batches", 2

    gate_penalty: float

    @classmethod
    def build_criterion(cls, cfg: Any, task: Any) -> Any:
        check_weight("--gate-penalty", cfg.gate_penalty)
        criterion = super().build_criterion(cfg, task)
        criterion.gate_penalty = cfg.gate_penalty
        return criterion

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, Any, dict[str, Any]]:
        """Return what fairseq's criterions return; in training the loss includes the penalty."""
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
        evaluated = gates.rounded(log_alpha)
        state = {"gates_l0": norm.detach(), "gates_open": (evaluated > 0).sum()}
        logged = {**logging_output, **state, self.count: 1}
        return loss + sample_size * self.gate_penalty * norm, sample_size, logged


# ---- groups --------------------------------------------------------------------------------------

GROUPS_LOGGED = (*MEASURES, "group_loss")
#: The scale of the constraint: see :mod:`.constraint`.
NORMALISATIONS = ("paper", "released")


@dataclass
class HeadGroupsOptions(FairseqDataclass):
    """Options of the group constraint."""

    group_alpha: float = option(
        0.5, "weight of the similarity between heads and the centre of their group"
    )
    group_beta: float = option(0.5, "weight of the dissimilarity between the centres of groups")
    group_normalisation: str = option(
        "released",
        "scale of the group constraint: its sum over attentions is added to the sum over tokens "
        "(released, as in the released code), or its mean to the mean over tokens (paper; this is "
        "much stronger, and BLEU falls)",
        NORMALISATIONS,
    )


class WithHeadGroups(LogsMeans):
    """A criterion that adds the group constraint to the loss of the next criterion class."""

    logged, count, digits = GROUPS_LOGGED, "group_batches", 4

    group_alpha: float
    group_beta: float
    group_normalisation: str

    @classmethod
    def build_criterion(cls, cfg: Any, task: Any) -> Any:
        check_weight("--group-alpha", cfg.group_alpha)
        check_weight("--group-beta", cfg.group_beta)
        if cfg.group_normalisation not in NORMALISATIONS:
            names = ", ".join(NORMALISATIONS)
            problem = f"is {cfg.group_normalisation!r}; it must be one of {names}"
            raise UserError(problem, where="--group-normalisation")
        criterion = super().build_criterion(cfg, task)
        criterion.group_alpha, criterion.group_beta = cfg.group_alpha, cfg.group_beta
        criterion.group_normalisation = cfg.group_normalisation
        return criterion

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, Any, dict[str, Any]]:
        """Return what fairseq's criterions return; in training the loss includes the constraint."""
        if not model.training:
            return super().forward(model, sample, reduce)
        with watched(model) as attentions:
            loss, sample_size, logging_output = super().forward(model, sample, reduce)
        measures = constrain(attentions, padding_of(sample["net_input"], self.padding_idx))
        constraint = self.group_beta * measures["group_between"]
        constraint = constraint - self.group_alpha * measures["group_within"]
        measures["group_loss"] = constraint
        scale = sample_size if self.group_normalisation == "paper" else len(attentions)
        values = {name: value.detach() for name, value in measures.items()}
        return loss + scale * constraint, sample_size, {**logging_output, **values, self.count: 1}


@dataclass
class LabelSmoothedWithHeadGroupsConfig(
    HeadGroupsOptions, LabelSmoothedCrossEntropyCriterionConfig
):
    """Options of label smoothing and of the group constraint."""


@register_criterion(
    "label_smoothed_cross_entropy_with_head_groups", dataclass=LabelSmoothedWithHeadGroupsConfig
)
class LabelSmoothedCrossEntropyWithHeadGroups(WithHeadGroups, LabelSmoothedCrossEntropyCriterion):
    """``--criterion label_smoothed_cross_entropy_with_head_groups``."""


@dataclass
class AdaptiveLossWithHeadGroupsConfig(HeadGroupsOptions, AdaptiveLossConfig):
    """Options of fairseq's adaptive loss and of the group constraint."""


@register_criterion("adaptive_loss_with_head_groups", dataclass=AdaptiveLossWithHeadGroupsConfig)
class AdaptiveLossWithHeadGroups(WithHeadGroups, AdaptiveLoss):
    """``--criterion adaptive_loss_with_head_groups``."""
