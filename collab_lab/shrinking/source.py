"""The model that prices and plans are of: the given one, with heads that can be cut."""

from __future__ import annotations

from collab_lab.shrinking.gates import without_gates
from collab_lab.shrinking.pruning import all_heads, pruned
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.rebuilt import model_problems, reject
from fairseq_collab.models.base import HeadModel
from fairseq_collab.models.variants import GATED, HEAD_GROUPS


def source_of(trained: Trained) -> Trained:
    """The model with heads that prices and plans are of: gates in its weights, and no groups.

    Raises:
        UserError: no model that is built anew would compute the same.
    """
    reject(trained, "cannot be changed", model_problems(trained))
    model = trained.model
    if isinstance(model, HeadModel) and model.variant in (GATED, HEAD_GROUPS):
        return pruned(without_gates(trained), all_heads(trained))
    return trained
