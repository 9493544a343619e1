"""A model without its task: built from options alone, with made-up dictionaries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fairseq import models
from fairseq.data import Dictionary
from fairseq.models.nat import FairseqNATModel
from omegaconf import DictConfig
from torch import Tensor, nn

from collab_common.errors import UserError
from fairseq_compat.checkpoints import naming


def untrained(
    options: Any, cfg: DictConfig, weights: Mapping[str, Tensor], path: Path
) -> nn.Module:
    """The model of ``options``, with placeholders of the right sizes as dictionaries.

    Args:
        cfg, weights: of the checkpoint, for the task and the sizes of the dictionaries.
    """
    source, target = map(placeholder, dictionary_sizes(weights, path))
    task = SimpleNamespace(source_dictionary=source, target_dictionary=target, cfg=cfg.task)
    task.dictionary = task.output_dictionary = target  # what tasks of language models call it
    with naming(path):
        check_order_of_words(options)
        return models.build_model(options, task, from_checkpoint=True)


def check_order_of_words(options: Any) -> None:
    """Raise UserError for a non-autoregressive model, by its options.

    It predicts no word from those before it, which every measure here takes for granted.
    """
    name = getattr(options, "_name", None) or getattr(options, "arch", None)
    if issubclass(models.ARCH_MODEL_REGISTRY.get(name, object), FairseqNATModel):
        todo = "give a model that predicts each word from those before it, as transformer does"
        raise UserError(f"{name} is non-autoregressive", todo=todo)


def load_weights(model: Any, weights: Mapping[str, Tensor], path: Path) -> None:
    """Load all weights; UserError names one that is missing, or has no place in the model."""
    with naming(path):
        loaded = model.load_state_dict(dict(weights), strict=False)
    for problem, names in zip(("is missing", "has no place in the model"), loaded, strict=True):
        if names:
            raise UserError(f"the weight {names[0]} {problem}", path)


def dictionary_sizes(weights: Mapping[str, Tensor], path: Path) -> tuple[int, int]:
    """The numbers of symbols of the source and the target dictionary."""
    sizes = []
    for stack in ("encoder", "decoder"):
        signature = weights.get(f"{stack}.dictionary_signature")
        embedding = re.compile(rf"{stack}\.embed_tokens\.(embeddings\.\d+\.0\.)?weight")  # adaptive
        rows = [len(weight) for name, weight in weights.items() if embedding.fullmatch(name)]
        if signature is not None:
            sizes.append(int(signature[1]))
        elif rows:
            sizes.append(sum(rows))
    if not sizes:
        problem = "has no embeddings of words, and so no known size of its dictionary"
        todo = "give a transformer of words or subwords"
        raise UserError(problem, path, todo)
    return sizes[0], sizes[-1]


def placeholder(size: int) -> Dictionary:
    """A dictionary of ``size`` made-up symbols."""
    symbols = Dictionary()
    for number in range(size - len(symbols)):
        symbols.add_symbol(f"placeholder{number}")
    return symbols
