"""Fixes of how fairseq loads and saves checkpoints; the docstring of each fix names the fault.

Their code is in modules that import torch, so each fix imports it only when it is applied.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from collab_common import LAST_CHECKPOINT
from collab_common.errors import UserError

from .patching import Proxy, wrap


def read_settings_as_data() -> None:
    """fairseq evaluates settings, also those of a checkpoint, as code."""
    from .safe_load import evaluate

    for name, module in list(sys.modules.items()):
        code = getattr(getattr(module, "__spec__", None), "origin", None)
        if name.partition(".")[0] == "fairseq" and code and code.endswith(".py"):
            vars(module)["eval"] = evaluate


def load_as_data() -> None:
    """torch 2.6 rejects fairseq's checkpoints; an older torch runs code that stands in a file.

    fairseq leaves weights_only to torch's version and to the environment.  ``broadcast_object()``
    may still unpickle: its bytes come from another process of the same job, not from a file.
    """
    import torch
    from fairseq import checkpoint_utils
    from fairseq.distributed import utils

    from .safe_load import read

    checkpoint_utils.torch = Proxy(torch, load=read)
    utils.torch = Proxy(torch, load=functools.partial(torch.load, weights_only=False))


def save_atomically() -> None:
    """fairseq repeats a failed save after the bytes of the first attempt and reports success."""
    from fairseq import checkpoint_utils

    from . import checkpoints

    @wrap(checkpoint_utils, "torch_persistent_save")
    def torch_persistent_save(
        original: Any, obj: Any, filename: str, async_write: bool = False
    ) -> None:
        checkpoints.save(obj, filename)


def refuse_asynchronous_writes() -> None:
    """--write-checkpoints-asynchronously leaves no checkpoint_last.pt without ioPath."""
    from fairseq import checkpoint_utils

    @wrap(checkpoint_utils, "load_checkpoint")
    def load_checkpoint(original: Any, cfg: Any, trainer: Any, **kwargs: Any) -> Any:
        if cfg.write_checkpoints_asynchronously:
            problem, todo = "fairseq needs ioPath for it", "leave it out"
            raise UserError(problem, "--write-checkpoints-asynchronously", todo)
        return original(cfg, trainer, **kwargs)


def copy_atomically() -> None:
    """fairseq overwrites checkpoint_last.pt and checkpoint_best.pt in place."""
    from fairseq.file_io import PathManager

    from . import checkpoints

    @wrap(PathManager, "copy")
    def copy_file(original: Any, src_path: str, dst_path: str, overwrite: bool = False) -> str:
        checkpoints.copy(src_path, dst_path)
        return dst_path


def name_files() -> None:
    """Errors of a checkpoint do not name its file; a missing file ends in a traceback."""
    from fairseq import checkpoint_utils, trainer

    from .checkpoints import naming

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


def require_start() -> None:
    """fairseq trains from scratch if the checkpoint that it should start from is missing."""
    from fairseq import checkpoint_utils

    @wrap(checkpoint_utils, "load_checkpoint")
    def load_checkpoint(original: Any, cfg: Any, trainer: Any, **kwargs: Any) -> Any:
        resumes = os.path.exists(os.path.join(cfg.save_dir, LAST_CHECKPOINT))
        for option in ("restore_file", "finetune_from_model", "continue_once"):
            path = getattr(cfg, option) or LAST_CHECKPOINT
            is_read = path != LAST_CHECKPOINT and (option == "restore_file" or not resumes)
            if is_read and not checkpoint_utils.PathManager.exists(path):
                problem = f"checkpoint not found; see --{option.replace('_', '-')}"
                raise UserError(problem, path)
        return original(cfg, trainer, **kwargs)
