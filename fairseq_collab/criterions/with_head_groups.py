"""fairseq's losses with the group constraint (Ni et al. 2023, arXiv 2305.14380).

``label_smoothed_cross_entropy_with_head_groups`` for translation,
``adaptive_loss_with_head_groups`` for language models with adaptive softmax.  The constraint is
part of the gradient in training only.  ``loss`` in the log is fairseq's own.
"""

# No "from __future__ import annotations": fairseq reads the fields' types.
from dataclasses import dataclass
from typing import Any

from fairseq.criterions import register_criterion
from fairseq.criterions.adaptive_loss import AdaptiveLoss, AdaptiveLossConfig
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.dataclass import FairseqDataclass
from torch import Tensor

from collab_common.errors import UserError
from fairseq_collab.criterions.head_groups import MEASURES, constrain, padding_of, watched
from fairseq_collab.criterions.shared import LogsMeans, check_weight
from fairseq_collab.models.config import option

LOGGED = (*MEASURES[:2], "group_loss", *MEASURES[2:])
#: The scale of the constraint: see :mod:`.head_groups`.
NORMALISATIONS = ("paper", "released")


@dataclass
class HeadGroupsOptions(FairseqDataclass):
    """Options of the group constraint."""

    group_alpha: float = option(0.5, "weight of the similarity of heads and their group's centre")
    group_beta: float = option(0.5, "weight of the dissimilarity of the groups' centres")
    group_normalisation: str = option(
        "released",
        "released (a sum over attentions beside the sum over tokens, as in the paper's released "
        "code, which made its results) or paper (a mean over attentions beside the mean over "
        "tokens: much stronger, and BLEU falls)",
    )


class WithHeadGroups(LogsMeans):
    """Adds the group constraint to the loss of the next criterion class."""

    logged, count, digits = LOGGED, "group_batches", 4

    group_alpha: float
    group_beta: float
    group_normalisation: str

    def set_groups(self, alpha: float, beta: float, normalisation: str) -> None:
        """Check the options, and keep them."""
        check_weight("--group-alpha", alpha)
        check_weight("--group-beta", beta)
        if normalisation not in NORMALISATIONS:
            what = f"is {normalisation!r}; it must be one of {', '.join(NORMALISATIONS)}"
            raise UserError(what, where="--group-normalisation")
        self.group_alpha, self.group_beta = alpha, beta
        self.group_normalisation = normalisation

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, Any, dict[str, Any]]:
        """fairseq's criterion contract; in training the loss includes the constraint."""
        if not model.training:
            return super().forward(model, sample, reduce)
        with watched(model) as attentions:
            loss, sample_size, logging_output = super().forward(model, sample, reduce)
        found = constrain(attentions, padding_of(sample["net_input"], self.padding_idx))
        constraint = self.group_beta * found["group_between"]
        constraint = constraint - self.group_alpha * found["group_within"]
        found["group_loss"] = constraint
        scale = sample_size if self.group_normalisation == "paper" else len(attentions)
        values = {name: value.detach() for name, value in found.items()}
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

    def __init__(
        self,
        task: Any,
        sentence_avg: bool,
        label_smoothing: float,
        group_alpha: float,
        group_beta: float,
        group_normalisation: str,
        ignore_prefix_size: int = 0,
        report_accuracy: bool = False,
    ):
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        self.set_groups(group_alpha, group_beta, group_normalisation)


@dataclass
class AdaptiveLossWithHeadGroupsConfig(HeadGroupsOptions, AdaptiveLossConfig):
    """Options of fairseq's adaptive loss and of the group constraint."""


@register_criterion("adaptive_loss_with_head_groups", dataclass=AdaptiveLossWithHeadGroupsConfig)
class AdaptiveLossWithHeadGroups(WithHeadGroups, AdaptiveLoss):
    """``--criterion adaptive_loss_with_head_groups``."""

    @classmethod
    def build_criterion(cls, cfg: Any, task: Any) -> Any:
        # fairseq's passes its own options only, but checks --ddp-backend for adaptive softmax.
        stock = AdaptiveLoss.build_criterion(cfg, task)
        groups = (cfg.group_alpha, cfg.group_beta, cfg.group_normalisation)
        return cls(task, stock.sentence_avg, *groups)

    def __init__(
        self,
        task: Any,
        sentence_avg: bool,
        group_alpha: float,
        group_beta: float,
        group_normalisation: str,
    ):
        super().__init__(task, sentence_avg)
        self.set_groups(group_alpha, group_beta, group_normalisation)
