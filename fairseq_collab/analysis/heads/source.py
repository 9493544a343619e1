"""What is analysed: a trained model, and the sentences that it reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from fairseq import utils
from fairseq.modules import MultiheadAttention
from tqdm import tqdm

from collab_common.errors import UserError
from fairseq_collab.attention import HeadAttention
from fairseq_collab.checkpoints import opener
from fairseq_collab.checkpoints.attentions import attentions
from fairseq_collab.checkpoints.opener import Trained


def load(checkpoint: Path, data: Path, device: torch.device | str = "cpu") -> Trained:
    """Load fairseq's own transformer or any of ours, for the sentences of the folder ``data``.

    Raises:
        UserError: the checkpoint is missing, damaged, does not fit ``data``, or is that of neither
            an encoder-decoder transformer nor a language model, or a layer has lost all of its
            heads.
    """
    trained = opener.load(checkpoint, data)
    found, todo = attentions(trained.model), "give one of a translation model or a language model"
    needed = {"decoder"} if trained.is_language_model else {"encoder", "decoder"}
    if not needed <= {attention.site for attention in found}:
        what = "neither an encoder-decoder transformer nor a language model"
        raise UserError(what, checkpoint, todo)
    for attention in found:
        if not isinstance(attention.module, (HeadAttention, MultiheadAttention)):
            kind = type(attention.module).__name__
            raise UserError(f"attention of an unknown kind: {kind}", checkpoint, todo)
        if not attention.module.num_heads:
            what = f"attention {attention} has no heads left to be analysed"
            raise UserError(what, checkpoint, "give the model that was pruned")
    trained.model.to(device)
    return trained


def batches(trained: Trained, subset: str, max_tokens: int | None = None) -> Iterator[Any]:
    """The sentences of a data set in fairseq's batches, on the model's device, with a progress bar.

    Arguments and errors are those of :func:`fairseq_collab.checkpoints.opener.epoch`.
    """
    samples = opener.epoch(trained, subset, max_tokens)
    for sample in tqdm(samples, desc="batches", unit="batch", disable=None, leave=False):
        yield to_device(sample, trained.device)


def to_device(sample: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """A batch with all its tensors on ``device``."""
    return utils.apply_to_sample(lambda tensor: tensor.to(device), sample)
