"""Statistics of a model in a file next to its prices, so that one pass serves all commands.

The file holds tensors in single precision, names and a hash of the model, and is read as a
checkpoint is: without its code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import torch
from torch import nn

from collab_common.errors import UserError
from collab_lab.pricing import STATISTICS
from collab_lab.pricing.statistics import Statistics, own_bits
from collab_lab.trained.attentions import Attention, attentions
from collab_lab.trained.checkpoint import Trained
from fairseq_compat import checkpoints


def write(statistics: Mapping[Attention, Statistics], trained: Trained, folder: Path) -> None:
    """Write the statistics of a model, atomically."""
    tensors = {
        attention.name: {name: value.float().cpu() for name, value in vars(of_it).items()}
        for attention, of_it in statistics.items()
    }
    content = {"model": hash_of(trained.model), "statistics": tensors}
    checkpoints.save(content, folder / STATISTICS)


def read(folder: str | Path, trained: Trained) -> dict[Attention, Statistics]:
    """The statistics of a model that :func:`write` wrote.

    Raises:
        UserError: there are none, the file is damaged, or they are of another model.
    """
    path, todo = Path(folder) / STATISTICS, "give a folder that fairseq-collab prices wrote"
    if not path.is_file():
        raise UserError("file not found", path, todo)
    names = {field.name for field in fields(Statistics)}
    try:
        content = torch.load(path, map_location=trained.device, weights_only=True)
        of_model, tensors = content["model"], content["statistics"]
        if any({*of_it} != names for of_it in tensors.values()):
            raise ValueError("other statistics")
    except Exception as error:  # of a damaged file: no narrower type
        raise UserError("holds no statistics", path, "run fairseq-collab prices again") from error
    if of_model != hash_of(trained.model):
        problem = f"the statistics are of another model than {trained.path}"
        raise UserError(problem, path, "run fairseq-collab prices for it")
    every = {attention.name: attention for attention in attentions(trained.model)}
    return {
        every[name]: Statistics(**{key: value.double() for key, value in of_it.items()})
        for name, of_it in tensors.items()
    }


def hash_of(model: nn.Module) -> str:
    """A hash of all weights, of numbers of heads, and of bits of the KV cache."""
    of_model = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        of_model.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        of_model.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    for attention in attentions(model):
        module = attention.module
        of_model.update(f"{attention} {module.num_heads} {own_bits(module)}".encode())
    return of_model.hexdigest()
