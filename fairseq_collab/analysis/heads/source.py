"""What is analysed: a trained model, and the sentences that it reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from fairseq import utils
from tqdm import tqdm

from collab_common.errors import UserError
from fairseq_collab.analysis.heads.weights import heads_of
from fairseq_collab.checkpoints import opener
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
    try:
        heads_of(loaded.model)
    except TypeError as error:
        todo = "give a checkpoint of a translation model"
        raise UserError(str(error), where=checkpoint, todo=todo) from error
    loaded.model.to(device)
    return loaded


def batches(loaded: Loaded, subset: str, max_tokens: int | None = None) -> Iterator[dict[str, Any]]:
    """The sentences of a data set in fairseq's batches, on the model's device, with a progress bar.

    Sentences that are longer than the model's positions are left out.

    Args:
        max_tokens: of a batch, padding included; as in the training unless given.

    Raises:
        UserError: there is no sentence, or one does not fit into ``max_tokens``.
        FileNotFoundError: fairseq's, if there is no such subset; told in one line by the commands.
    """
    samples = opener.epoch(loaded, subset, max_tokens)
    for sample in tqdm(samples, desc="batches", unit="batch", disable=None, leave=False):
        yield to_device(sample, loaded.device)


def to_device(sample: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """A batch with all its tensors on ``device``."""
    moved: dict[str, Any] = utils.apply_to_sample(lambda tensor: tensor.to(device), sample)
    return moved
