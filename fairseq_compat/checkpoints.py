"""Load fairseq's checkpoints as data, and save them atomically."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from collab_common import atomic, errors
from collab_common.errors import UserError

from .safe_load import damage, read

__all__ = ["copy", "damage", "first_names", "naming", "read", "save", "without_training"]

# Parts of a training that say nothing about the model, each as large as the model.
TRAINING = ("last_optimizer_state",)
TRAINING_EXTRA = ("ema", "ema_fp32_params")


def save(obj: Any, path: str | os.PathLike[str]) -> None:
    """Save a checkpoint atomically.

    Raises:
        UserError: the file cannot be written; an old file of this name is untouched.
    """
    with _saving(path):
        atomic.write(path, lambda file: torch.save(obj, file))


def copy(source: str, target: str) -> None:
    """Copy a checkpoint atomically.

    It makes no hard link: ``cp`` onto one of the two names would then change both files.
    """
    with _saving(target):
        atomic.copy(source, target)


@contextlib.contextmanager
def _saving(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as error:
        # torch's writer hides a full disk behind a RuntimeError about its own state.
        cause = next((link for link in errors.chain(error) if isinstance(link, OSError)), error)
        reason = getattr(cause, "strerror", None) or errors.first_line(cause)
        todo = "free some space or give another file; an old file of this name is untouched"
        raise UserError(f"cannot be saved: {reason}", path, todo) from error


def without_training(state: dict[str, Any]) -> dict[str, Any]:
    """Return a checkpoint without the optimiser's state and moving averages of the weights."""
    extra = state.get("extra_state") or {}
    return {
        **{name: value for name, value in state.items() if name not in TRAINING},
        "extra_state": {name: extra[name] for name in extra if name not in TRAINING_EXTRA},
    }


def first_names(weights: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Map the name of each weight to the first name in the model that has the same memory.

    The two names differ where weights are tied.
    """
    first: dict[tuple[Any, ...], str] = {}
    return {
        name: first.setdefault((weight.data_ptr(), weight.shape, weight.stride()), name)
        if weight.numel()
        else name
        for name, weight in weights.items()
    }


@contextlib.contextmanager
def naming(file: str | os.PathLike[str]) -> Iterator[None]:
    """Add the file to UserErrors that are raised within the context and name no file."""
    try:
        yield
    except Exception as error:
        user_error = errors.find(error)
        if user_error is not None:
            user_error.where = user_error.where or file
        raise
