"""Loading trained models, and the checks that every command makes before it computes anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fairseq import utils
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_compat.checkpoints import UNDEFINED
from fairseq_compat.errors import UserError

GIVE_DATA = "give the folder that fairseq-preprocess has written"


class Loaded(NamedTuple):
    """A trained model in eval mode on the CPU, its options and its task."""

    model: Any
    cfg: Any
    task: Any


def load(checkpoint: Path, data: Path) -> Loaded:
    """Load a checkpoint, of fairseq's models or ours, with the sentences of the folder ``data``.

    Raises:
        UserError: the checkpoint is missing, damaged, or does not fit ``data``.
    """
    check_data(data)
    # Recomputed activations are for training: hooks would see every layer twice.
    overrides = {"data": str(data), "checkpoint_activations": False}
    (model,), cfg, task = load_model_ensemble_and_task([str(checkpoint)], arg_overrides=overrides)
    return Loaded(model.eval(), cfg, task)


def epoch(
    model: Any, cfg: Any, task: Any, subset: str, max_tokens: int | None
) -> Iterator[dict[str, Any]]:
    """One epoch of a subset that ``task`` has loaded, in fairseq's batches.

    Sentences that are longer than the model's positions are left out.

    Args:
        max_tokens: of a batch, padding included; as in the training if it is None.

    Raises:
        UserError: there is no sentence, or one does not fit into ``max_tokens``.
    """
    tokens = max_tokens or cfg.dataset.max_tokens
    try:
        batches = task.get_batch_iterator(
            task.dataset(subset),
            max_tokens=tokens,
            max_sentences=None if max_tokens else cfg.dataset.batch_size,
            max_positions=utils.resolve_max_positions(task.max_positions(), model.max_positions()),
            ignore_invalid_inputs=True,
            seed=cfg.common.seed,
        )
    except AssertionError as error:
        if "exceed max_tokens" not in str(error):
            raise
        what = f"a sentence of {subset} has more than the {tokens} tokens of a batch"
        raise UserError(what, "--max-tokens", "give a larger number") from error
    samples: Any = batches.next_epoch_itr(shuffle=False)
    if not len(samples):
        raise UserError("has no sentence that the model can read", where=subset)
    return samples


def placeholder(size: int) -> Dictionary:
    """A dictionary of ``size`` symbols, for a model of which only the sizes matter."""
    symbols = Dictionary()
    for i in range(size - len(symbols)):
        symbols.add_symbol(f"placeholder{i}")
    return symbols


def check_data(data: str | Path, todo: str = GIVE_DATA) -> None:
    """The data folder, or folders joined by colons as fairseq takes them, must be there.

    Raises:
        UserError: names the first that is not.
    """
    for folder in utils.split_paths(str(data)):
        if not Path(folder).is_dir():
            raise UserError("there is no such data folder", folder, todo)


def check_finite(weights: Mapping[str, Tensor], path: Path) -> None:
    """No weight may be NaN or infinite.

    Raises:
        UserError: names the first that is.
    """
    for name, weight in weights.items():
        defined = weight.is_floating_point() and not name.endswith(UNDEFINED)  # nothing reads those
        if defined and not torch.isfinite(weight).all():
            raise UserError(f"{name} holds NaN or infinity", path, "give an intact checkpoint")
