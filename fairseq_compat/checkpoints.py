"""Load fairseq's checkpoints as data, and save them atomically.

The docstring of each ``apply_*`` function says what is wrong in fairseq.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from collab_common import atomic, errors
from collab_common.errors import UserError

from .patching import Proxy, wrap
from .safe_load import damage, evaluate, read

__all__ = ["apply", "damage", "first_names", "naming", "read", "save", "without_training"]

OWN = "checkpoint_last.pt"  # a training resumes from it without an option
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


def apply() -> None:
    """Patch how fairseq loads and saves checkpoints; called once, after fairseq is imported."""
    apply_safe_settings()
    apply_safe_load()
    apply_atomic_save()
    apply_named_files()
    apply_absent_start()


def apply_safe_settings() -> None:
    """fairseq evaluates settings, also those of a checkpoint, as code."""
    for name, module in list(sys.modules.items()):
        code = getattr(getattr(module, "__spec__", None), "origin", None)
        if name.partition(".")[0] == "fairseq" and code and code.endswith(".py"):
            vars(module)["eval"] = evaluate


def apply_safe_load() -> None:
    """fairseq leaves weights_only to torch's version and to the environment.

    ``broadcast_object()`` may still unpickle: its bytes come from another process of the same job,
    not from a file.
    """
    from fairseq import checkpoint_utils
    from fairseq.distributed import utils

    checkpoint_utils.torch = Proxy(torch, load=read)
    utils.torch = Proxy(torch, load=functools.partial(torch.load, weights_only=False))


def apply_atomic_save() -> None:
    """fairseq repeats a failed write after the bytes of the first attempt and reports success.

    It also overwrites checkpoint_last.pt and checkpoint_best.pt in place.
    """
    from fairseq import checkpoint_utils
    from fairseq.file_io import PathManager

    @wrap(checkpoint_utils, "torch_persistent_save")
    def torch_persistent_save(
        original: Any, obj: Any, filename: str, async_write: bool = False
    ) -> None:
        save(obj, filename)

    @wrap(PathManager, "copy")
    def copy_file(original: Any, src_path: str, dst_path: str, overwrite: bool = False) -> str:
        copy(src_path, dst_path)
        return dst_path


def apply_named_files() -> None:
    """fairseq's errors while a model is made from a checkpoint do not name the file.

    A missing file ends in a traceback.
    """
    from fairseq import checkpoint_utils, trainer

    @wrap(checkpoint_utils, "load_model_ensemble_and_task")
    def load_ensemble(original: Any, filenames: list[str], *args: Any, **kwargs: Any) -> Any:
        try:
            with naming(" or ".join(filenames)):
                return original(filenames, *args, **kwargs)
        except OSError as error:
            _, separator, file = str(error).partition("Model file not found: ")
            if not separator:
                raise
            raise UserError("checkpoint not found; see --path", file) from None

    @wrap(trainer.Trainer, "load_checkpoint")
    def load_checkpoint(original: Any, self: Any, filename: str, *args: Any, **kwargs: Any) -> Any:
        with naming(filename):
            return original(self, filename, *args, **kwargs)


def apply_absent_start() -> None:
    """fairseq trains from scratch if the checkpoint that it should start from is missing."""
    from fairseq import checkpoint_utils

    @wrap(checkpoint_utils, "load_checkpoint")
    def load_checkpoint(original: Any, cfg: Any, trainer: Any, **kwargs: Any) -> Any:
        resumes = os.path.exists(os.path.join(cfg.save_dir, "checkpoint_last.pt"))
        for option in ("restore_file", "finetune_from_model", "continue_once"):
            path = getattr(cfg, option) or OWN
            is_read = path != OWN and (option == "restore_file" or not resumes)
            if is_read and not checkpoint_utils.PathManager.exists(path):
                problem = f"checkpoint not found; see --{option.replace('_', '-')}"
                raise UserError(problem, path)
        return original(cfg, trainer, **kwargs)


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
