"""What is analysed: a trained model that attends."""

from __future__ import annotations

from pathlib import Path

import torch
from fairseq.modules import MultiheadAttention

from collab_common.errors import UserError
from fairseq_collab.attention import HeadAttention
from fairseq_collab.trained import opener
from fairseq_collab.trained.attentions import attentions
from fairseq_collab.trained.opener import Trained


def load(checkpoint: Path, data: Path, device: torch.device | str = "cpu") -> Trained:
    """Load fairseq's own transformer or any of ours, for the sentences of the folder ``data``.

    Raises:
        UserError: see :func:`.opener.load`; or its attentions cannot be analysed.
    """
    trained = opener.load(checkpoint, data)
    opener.check_transformer(trained.model, checkpoint)
    for attention in attentions(trained.model):
        if not isinstance(attention.module, (HeadAttention, MultiheadAttention)):
            kind = type(attention.module).__name__
            todo = "give one of a translation model or a language model"
            raise UserError(f"attention of an unknown kind: {kind}", checkpoint, todo)
        if not attention.module.num_heads:
            what = f"attention {attention} has no heads left to be analysed"
            raise UserError(what, checkpoint, "give the model that was pruned")
    trained.model.to(device)
    return trained
