"""Checkpoints of stock fairseq: loaded as data, saved whole or not at all.

Each `apply_*` function says what is wrong with fairseq's own way.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from collab_common import atomic, errors
from collab_common.errors import UserError

from . import literals
from .patching import Proxy, wrap
from .safe_load import damage, read, require_file

__all__ = ["apply", "copy", "damage", "first_names", "read", "save", "without_training"]

logger = logging.getLogger(__name__)

ATTEMPTS = 3
PAUSE = 1.0  # seconds before a failed save is tried again
# Errors that neither waiting nor more room on the disk would mend.
LASTING = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
# Parts of a training that say nothing about the model, each as large as it.
TRAINING = ("last_optimizer_state",)
TRAINING_EXTRA = ("ema", "ema_fp32_params")


def save(obj: Any, path: str | os.PathLike[str]) -> None:
    """Saves a checkpoint completely, or raises UserError and leaves a former file as it was."""

    def check(partial: str) -> None:
        problem = damage(partial)
        if problem is not None:
            raise OSError(problem)

    _persist(path, lambda: atomic.write(path, lambda file: torch.save(obj, file), check))


def copy(source: str, target: str) -> None:
    """Copies a checkpoint as :func:`save` writes one."""
    _persist(target, lambda: atomic.copy(source, target))


def without_training(state: dict[str, Any]) -> dict[str, Any]:
    """Returns a checkpoint without the optimizer's state and moving averages of the weights."""
    extra = state.get("extra_state") or {}
    return {
        **{name: value for name, value in state.items() if name not in TRAINING},
        "extra_state": {name: extra[name] for name in extra if name not in TRAINING_EXTRA},
    }


def first_names(weights: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Returns for each weight the first name that it stands under: another one where it is tied."""
    first: dict[tuple[Any, ...], str] = {}
    return {
        name: first.setdefault((weight.data_ptr(), weight.shape, weight.stride()), name)
        if weight.numel()
        else name
        for name, weight in weights.items()
    }


def _persist(path: str | os.PathLike[str], attempt: Callable[[], None]) -> None:
    """Tries a write again from its very beginning, for disks that are full for a moment."""
    for tries_left in reversed(range(ATTEMPTS)):
        try:
            return attempt()
        except (OSError, RuntimeError) as error:
            # torch's writer hides a full disk behind a RuntimeError about its own state
            system = (link for link in errors.chain(error) if isinstance(link, OSError))
            cause = next(system, error)
            reason = errors.first_line(cause)
            if isinstance(cause, LASTING):
                todo = "make its folder writable, or give another file"
                raise UserError(f"cannot be saved: {cause.strerror}", path, todo) from error
            if not tries_left:
                todo = "make room and start again; a former file of this name is intact"
                raise UserError(f"cannot be saved: {reason}", path, todo) from error
            logger.warning("cannot save %s (%s); trying again", path, reason)
            time.sleep(PAUSE)


def apply() -> None:
    """Replaces what fairseq does with checkpoints; called once, after fairseq is imported."""
    literals.apply()
    apply_safe_load()
    apply_whole_save()
    apply_named_files()
    apply_start_checks()


def apply_safe_load() -> None:
    """fairseq leaves weights_only to torch, that is, to its version and to the environment
    variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD.

    broadcast_object() unpickles what another rank of the same job has sent, among others a
    DictConfig. No file comes this way: the rank that reads one has read it as data.
    """
    from fairseq import checkpoint_utils
    from fairseq.distributed import utils

    checkpoint_utils.torch = Proxy(torch, load=read)
    utils.torch = Proxy(torch, load=functools.partial(torch.load, weights_only=False))


def apply_whole_save() -> None:
    """fairseq tries a failed write again behind the bytes of the first try, and reports that
    as a success; it makes checkpoint_last.pt and checkpoint_best.pt by overwriting them."""
    from fairseq import checkpoint_utils
    from fairseq.file_io import PathManager

    @wrap(checkpoint_utils, "torch_persistent_save")
    def torch_persistent_save(
        original: Any, obj: Any, filename: str, async_write: bool = False
    ) -> None:
        if async_write or not PathManager.supports_rename(filename):
            return original(obj, filename, async_write)
        save(obj, filename)

    @wrap(PathManager, "copy")
    def copy_file(original: Any, src_path: str, dst_path: str, overwrite: bool = False) -> Any:
        if not all(map(PathManager.supports_rename, (src_path, dst_path))):
            return original(src_path, dst_path, overwrite)
        copy(src_path, dst_path)
        return dst_path

    # Where files cannot be renamed.
    checkpoint_utils._torch_persistent_save = lambda obj, file: torch.save(obj, file)


def apply_named_files() -> None:
    """Gives every error about a checkpoint the name of the file."""
    from fairseq import checkpoint_utils, trainer

    latest = ""

    @wrap(checkpoint_utils, "load_checkpoint_to_cpu")
    def load_checkpoint_to_cpu(original: Any, path: str, *args: Any, **kwargs: Any) -> Any:
        nonlocal latest
        latest = path
        require_file(path)
        return original(path, *args, **kwargs)

    @wrap(checkpoint_utils, "load_model_ensemble_and_task")
    def load_ensemble(original: Any, filenames: list[str], *args: Any, **kwargs: Any) -> Any:
        with _naming(lambda: latest or filenames[0]):
            return original(filenames, *args, **kwargs)

    @wrap(trainer.Trainer, "load_checkpoint")
    def load_checkpoint(original: Any, self: Any, filename: str, *args: Any, **kwargs: Any) -> Any:
        with _naming(lambda: filename):
            if os.path.isdir(filename):  # fairseq would start from scratch
                require_file(filename)
            return original(self, filename, *args, **kwargs)


@contextlib.contextmanager
def _naming(file: Callable[[], str]) -> Iterator[None]:
    """Names the file in errors raised while a model is made from it."""
    try:
        yield
    except Exception as error:
        mendable = errors.find(error)
        if mendable is not None:
            mendable.where = mendable.where or file()
            raise
        for link in errors.chain(error):
            if isinstance(link, OSError) and str(link).startswith("Model file not found: "):
                require_file(str(link).partition(": ")[2])
            if isinstance(link, RuntimeError) and "Error(s) in loading state_dict" in str(link):
                raise _misfit(str(link), file()) from error
        raise


def _misfit(message: str, path: str) -> UserError:
    """Boils torch's list of all keys that do not fit down to the first one."""
    _, *problems = [line.strip().rstrip(".") for line in message.splitlines() if line.strip()]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    todo = "give the --arch, the sizes and the data that it was trained with"
    return UserError(f"does not fit the model: {problems[0]}{more}", path, todo)


def apply_start_checks() -> None:
    """Refuses at the start what fairseq would pass over without a word, or fail at later."""
    from fairseq import checkpoint_utils
    from fairseq.distributed import utils

    @wrap(checkpoint_utils, "load_checkpoint")
    def load_checkpoint(original: Any, cfg: Any, trainer: Any, **kwargs: Any) -> Any:
        # fairseq starts from scratch when --restore-file is missing. That is meant only for
        # the default, under whichever spelling of its path.
        default = os.path.join(cfg.save_dir, "checkpoint_last.pt")
        restore = cfg.restore_file
        if restore != "checkpoint_last.pt" and os.path.abspath(restore) != os.path.abspath(default):
            require_file(restore.replace(".pt", (trainer.checkpoint_suffix or "") + ".pt"))
        return original(cfg, trainer, **kwargs)

    @wrap(checkpoint_utils, "verify_checkpoint_directory")
    def verify_checkpoint_directory(original: Any, save_dir: str) -> None:
        if sys.flags.optimize:
            what = "python -O drops assertions, in which fairseq makes checkpoint_last.pt"
            raise UserError(what, todo="leave it out, or unset PYTHONOPTIMIZE")
        try:
            original(save_dir)
        except OSError as error:
            problem = f"checkpoints cannot be written there: {error.strerror}"
            raise UserError(problem, save_dir, "give another folder with --save-dir") from error

    @wrap(utils, "call_main")
    def call_main(original: Any, cfg: Any, main: Any, **kwargs: Any) -> Any:
        if cfg.checkpoint.write_checkpoints_asynchronously:
            raise UserError(
                "is not supported: it cannot tell a failed write, and leaves no checkpoint_last.pt",
                "--write-checkpoints-asynchronously",
                "leave the option out",
            )
        return original(cfg, main, **kwargs)
