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

#: What is analysed; an encoder-decoder transformer.
Loaded = Trained


def load(checkpoint: Path, data: Path, device: torch.device | str = "cpu") -> Loaded:
    """Load fairseq's own transformer or any of ours, for the sentences of the folder ``data``.

    Raises:
        UserError: the checkpoint is missing, damaged, does not fit ``data``, or is not that of an
            encoder-decoder transformer.
    """
    loaded = opener.load(checkpoint, data)
    if fault := _fault(loaded.model):
        raise UserError(fault, checkpoint, "give a checkpoint of a translation model")
    loaded.model.to(device)
    return loaded


def _fault(model: Any) -> str | None:
    """What keeps a model from being analysed."""
    found = attentions(model)
    if not {"encoder", "decoder"} <= {attention.site for attention in found}:
        return "not an encoder-decoder transformer"
    for attention in found:
        if not isinstance(attention.module, (HeadAttention, MultiheadAttention)):
            return f"attention of an unknown kind: {type(attention.module).__name__}"
    return None


def batches(loaded: Loaded, subset: str, max_tokens: int | None = None) -> Iterator[dict[str, Any]]:
    """The sentences of a data set in fairseq's batches, on the model's device, with a progress bar.

    Sentences that are longer than the model's positions are left out.

    Args:
        max_tokens: of a batch, padding included; as in the training unless given.

    Raises:
        UserError: there is no sentence, or one does not fit into ``max_tokens``.
        FileNotFoundError: fairseq's, if there is no such subset; commands report it in one line.
    """
    samples = opener.epoch(loaded, subset, max_tokens)
    for sample in tqdm(samples, desc="batches", unit="batch", disable=None, leave=False):
        yield to_device(sample, loaded.device)


def to_device(sample: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """A batch with all its tensors on ``device``."""
    moved: dict[str, Any] = utils.apply_to_sample(lambda tensor: tensor.to(device), sample)
    return moved
