"""A file with a model's statistics next to its prices, so that one pass serves all commands.

The file holds tensors in single precision, names, a hash of the model, and which sentences were
read.  Reading it, like reading a checkpoint, never executes code.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import torch
from fairseq import utils
from torch import Tensor

from collab_common.errors import UserError
from collab_lab.statistics import STATISTICS
from collab_lab.statistics.moments import Statistics
from collab_lab.statistics.units import UnitStatistics
from collab_lab.trained.attentions import Attention, attentions
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.feed_forward import FeedForward, feed_forwards
from collab_lab.trained.identity import hash_of
from fairseq_compat import checkpoints


class Sentences(NamedTuple):
    """Calibration sentences: their data folder, the set, and how many were asked for."""

    data: str
    subset: str
    number: int

    def __str__(self) -> str:
        return f"{self.number:,} sentences of {self.subset} of {self.data}"


def sentences_asked_for(trained: Trained, subset: str, number: int) -> Sentences:
    """The calibration sentences of a command, from its options."""
    folders = utils.split_paths(str(trained.cfg.task.data))
    data = os.pathsep.join(str(Path(folder).resolve()) for folder in folders)
    return Sentences(data, subset, number)


def write(
    statistics: Mapping[Attention, Statistics],
    units: Mapping[FeedForward, UnitStatistics],
    trained: Trained,
    folder: Path,
    sentences: Sentences,
) -> None:
    """Write the statistics of a model atomically."""
    content = {
        "model": hash_of(trained.model),
        "sentences": tuple(sentences),
        "statistics": {a.name: _single(of_it) for a, of_it in statistics.items()},
        "units": {block.name: _single(of_it) for block, of_it in units.items()},
    }
    checkpoints.save(content, folder / STATISTICS)


def _single(statistics: Statistics | UnitStatistics) -> dict[str, Tensor]:
    return {name: value.float().cpu() for name, value in vars(statistics).items()}


def sentences_of(folder: str | Path) -> Sentences:
    """The sentences that stored statistics are of."""
    path = Path(folder) / STATISTICS
    return Sentences(*torch.load(path, weights_only=True, mmap=True)["sentences"])


def read(folder: str | Path, trained: Trained) -> dict[Attention, Statistics]:
    """Read the statistics of a model's attentions: see :func:`read_all`."""
    return read_all(folder, trained)[0]


def read_all(
    folder: str | Path, trained: Trained
) -> tuple[dict[Attention, Statistics], dict[FeedForward, UnitStatistics]]:
    """Read the statistics of a model's attentions and feed-forward blocks that :func:`write` wrote.

    Raises:
        UserError: the file is missing or damaged, or belongs to another model.
    """
    path, todo = Path(folder) / STATISTICS, "give a folder that fairseq-collab prices wrote"
    if not path.is_file():
        raise UserError("file not found", path, todo)
    try:
        content = torch.load(path, map_location=trained.device, weights_only=True)
        of_model, tensors, units = (content[name] for name in ("model", "statistics", "units"))
        Sentences(*content["sentences"])
        for kind, every in ((Statistics, tensors), (UnitStatistics, units)):
            names = {field.name for field in fields(kind)}
            if any({*of_it} != names for of_it in every.values()):
                raise ValueError("other statistics")
    except Exception as error:  # of a damaged file: no narrower type
        raise UserError("has no statistics", path, "run fairseq-collab prices again") from error
    if of_model != hash_of(trained.model):
        problem = f"the statistics belong to another model than {trained.path}"
        raise UserError(problem, path, f"run fairseq-collab prices for {trained.path}")
    ours = {attention.name: attention for attention in attentions(trained.model)}
    blocks = {block.name: block for block in feed_forwards(trained.model)}
    return (
        {ours[name]: Statistics(**_double(of_it)) for name, of_it in tensors.items()},
        {blocks[name]: UnitStatistics(**_double(of_it)) for name, of_it in units.items()},
    )


def _double(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.double() for name, value in tensors.items()}
