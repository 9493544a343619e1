"""Contexts in which a model is measured, after which all is as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def without_checkpointing(options: Any) -> Iterator[None]:
    """Context in which ``options`` ask for no activation checkpointing and no embedding files.

    With activation checkpointing, hooks would see every layer twice and without a gradient.  The
    embeddings that the training started from may be gone, and the checkpoint replaces them anyway.
    Both options have their former values afterwards, so that a saved model keeps them.
    """
    saving = ("checkpoint_activations", "offload_activations")  # the second implies the first
    without: dict[str, Any] = dict.fromkeys(saving, False)
    without |= dict.fromkeys(("encoder_embed_path", "decoder_embed_path"))
    saved = {name: getattr(options, name) for name in without if name in options}
    for name in saved:
        setattr(options, name, without[name])
    try:
        yield
    finally:
        for name, value in saved.items():
            setattr(options, name, value)


@contextmanager
def in_evaluation(*models: nn.Module) -> Iterator[None]:
    """Context in which models are in eval mode; afterwards each is in its former mode."""
    modes = {module: module.training for model in models for module in model.modules()}
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
