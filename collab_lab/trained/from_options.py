"""Building a model from its options only, without its task: the dictionaries are placeholders."""

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


def build_from_options(
    options: Any, cfg: DictConfig, weights: Mapping[str, Tensor], path: Path
) -> nn.Module:
    """Build the model of ``options`` with random weights and placeholder dictionaries.

    Args:
        cfg: configuration of the checkpoint, with the task's options.
        weights: weights of the checkpoint, which show the sizes of the dictionaries.
        path: the checkpoint, for messages.
    """
    source, target = map(placeholder, dictionary_sizes(weights, path))
    task = SimpleNamespace(source_dictionary=source, target_dictionary=target, cfg=cfg.get("task"))
    task.dictionary = task.output_dictionary = target  # what tasks of language models call it
    with naming(path):
        check_autoregressive(options)
        return models.build_model(options, task, from_checkpoint=True)


def check_autoregressive(options: Any) -> None:
    """Raise UserError if the options describe a non-autoregressive model.

    All measures here assume that a model predicts each word from the words before it.
    """
    name = getattr(options, "_name", None) or getattr(options, "arch", None)
    if issubclass(models.ARCH_MODEL_REGISTRY.get(name, object), FairseqNATModel):
        todo = "give a model that predicts each word from those before it, as transformer does"
        raise UserError(f"{name} is non-autoregressive", todo=todo)


def load_weights(model: Any, weights: Mapping[str, Tensor], path: Path) -> None:
    """Load all weights; raise UserError if one is missing or the model has no place for it."""
    with naming(path):
        loaded = model.load_state_dict(dict(weights), strict=False)
    for problem, names in zip(("is missing", "has no place in the model"), loaded, strict=True):
        if names:
            raise UserError(f"the weight {names[0]} {problem}", path)


def dictionary_sizes(weights: Mapping[str, Tensor], path: Path) -> tuple[int, int]:
    """The numbers of symbols in the source dictionary and in the target dictionary."""
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
        problem = "has no table of word embeddings of one encoder or decoder"
        todo = "give a transformer of one translation direction, or a language model of subwords"
        raise UserError(problem, path, todo)
    return sizes[0], sizes[-1]


def placeholder(size: int) -> Dictionary:
    """A dictionary of ``size`` made-up symbols."""
    symbols = Dictionary()
    for number in range(size - len(symbols)):
        symbols.add_symbol(f"placeholder{number}")
    return symbols
