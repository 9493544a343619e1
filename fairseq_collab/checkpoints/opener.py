"""Trained models: loaded, with the checks that every command makes first, read with, and saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fairseq import utils
from fairseq.checkpoint_utils import load_checkpoint_to_cpu, load_model_ensemble_and_task
from fairseq.data import Dictionary
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from collab_common.errors import UserError
from fairseq_compat.checkpoints import UNDEFINED, without_training

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
    # Recomputed activations are for training: hooks would see every layer twice.
    return loaded(checkpoint, read_checkpoint(checkpoint, data, checkpoint_activations=False))


def read_checkpoint(checkpoint: Path, data: Path | None, **changed: Any) -> dict[str, Any]:
    """The content of a checkpoint, with ``cfg``, whose data folder is there.

    Args:
        data: the data folder, if not the one that it was trained on.
        changed: options of the model or the task that are to have other values.

    Raises:
        UserError: the checkpoint is missing or damaged, or there is no such data folder.
    """
    if data is not None:
        check_data(data)
        changed["data"] = str(data)
    state: dict[str, Any] = load_checkpoint_to_cpu(str(checkpoint), changed)
    if data is None:
        todo = f"name the folder that {checkpoint} was trained on with --data"
        check_data(state["cfg"].task.get("data", ""), todo)
    return state


def loaded(checkpoint: Path, state: dict[str, Any]) -> Loaded:
    """The model that a checkpoint's content, as :func:`read_checkpoint` returns it, describes.

    Raises:
        UserError: it does not fit its data folder.
    """
    (model,), cfg, task = load_model_ensemble_and_task([str(checkpoint)], state=state)
    return Loaded(model.eval(), cfg, task)


def plain_config(cfg: DictConfig) -> dict[str, Any]:
    """A configuration as plain values, interpolations resolved: what checkpoints hold."""
    values = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    assert isinstance(values, dict)
    return {str(name): value for name, value in values.items()}


def checkpoint_of(state: dict[str, Any], cfg: dict[str, Any], model: Any) -> dict[str, Any]:
    """What to save of a model made from a trained one: to translate with, or to fine-tune from.

    Args:
        state: the trained model's checkpoint; all that it says of neither weights nor training
            stays.
        cfg: the configuration of ``model``, as plain values.
    """
    content = {"args": None, "cfg": cfg, "model": model.state_dict()}
    return {**without_training(state), **content}


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
