"""The model that is priced and cut: the given one, with heads that can be cut."""

from __future__ import annotations

from collab_lab.shrinking.draft import size_problems
from collab_lab.shrinking.gates import without_gates
from collab_lab.shrinking.retained import all_heads, pruned
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.rebuilt import model_problems, reject
from fairseq_collab.models.base import HeadModel
from fairseq_collab.models.variants import GATED, HEAD_GROUPS


def cuttable(trained: Trained) -> Trained:
    """The model that is priced and cut: its gates are multiplied into the weights, groups dropped.

    Raises:
        UserError: a model that is rebuilt from its options and weights would compute something
            else.
    """
    reject(trained, "cannot be changed", model_problems(trained))
    model = trained.model
    if isinstance(model, HeadModel) and model.variant in (GATED, HEAD_GROUPS):
        reject(trained, "cannot be changed", size_problems(trained))
        return pruned(without_gates(trained), all_heads(trained))
    return trained
