"""Options of fairseq's commands: each fix names its fault."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import Any

from collab_common.errors import UserError

from .patching import wrap


def train_in_bfloat16() -> None:
    """fairseq-train takes --bf16 for --tpu, on GPUs and CPUs too, and wants torch_xla."""
    from fairseq import options

    @wrap(options, "parse_args_and_arch")
    def parse_args_and_arch(
        original: Any, parser: Any, input_args: Sequence[str] | None = None, *args: Any, **kw: Any
    ) -> Any:
        result = original(parser, input_args, *args, **kw)
        parsed = result[0] if isinstance(result, tuple) else result  # with what it does not know
        if getattr(parsed, "bf16", False) and hasattr(parsed, "tpu"):
            parsed.tpu = "--tpu" in (sys.argv if input_args is None else input_args)
        return result


def accept_package_names() -> None:
    """fairseq finds a plug-in by its path only, and a wrong path ends in a traceback."""
    from fairseq import utils

    @wrap(utils, "import_user_module")
    def import_user_module(original: Any, args: Any) -> None:
        name = getattr(args, "user_dir", None)
        if name and name.isidentifier() and not os.path.exists(name):
            spec = importlib.util.find_spec(name)
            for folder in (spec and spec.submodule_search_locations) or []:
                args = argparse.Namespace(user_dir=os.path.abspath(folder))
        try:
            original(args)
        except FileNotFoundError as error:
            if error.errno is not None:  # the plug-in's own
                raise
            raise UserError("folder or package not found", f"--user-dir {name}") from None


def validate_without_options() -> None:
    """fairseq-validate ends in a traceback without --task, and without --max-tokens."""
    from fairseq import options
    from fairseq.distributed import utils

    @wrap(options, "get_validation_parser")
    def get_validation_parser(original: Any, default_task: str | None = None) -> Any:
        return original(default_task or "translation")  # the checkpoint's task is used

    @wrap(utils, "call_main")
    def call_main(original: Any, cfg: Any, main: Any, **kwargs: Any) -> Any:
        is_validation = "override_args" in kwargs
        if is_validation and cfg.dataset.max_tokens is None and cfg.dataset.batch_size is None:
            cfg.dataset.max_tokens = 12000  # as in fairseq-generate
        return original(cfg, main, **kwargs)


def check_number_format() -> None:
    """--fp16 without a GPU ends in a traceback of torch."""
    import torch
    from fairseq.distributed import utils

    @wrap(utils, "call_main")
    def call_main(original: Any, cfg: Any, main: Any, **kwargs: Any) -> Any:
        common, cpu = cfg.common, cfg.common.cpu or not torch.cuda.is_available()
        # Without flattened gradients a CPU trains, too.
        flat = not (common.memory_efficient_fp16 or common.fp16_no_flatten_grads)
        if cpu and common.fp16 and flat:
            raise UserError("needs a GPU", "--fp16", "give --bf16, or neither")
        return original(cfg, main, **kwargs)


def check_direction() -> None:
    """fairseq-generate translates from the target language without a word."""
    from fairseq import checkpoint_utils

    @wrap(checkpoint_utils, "load_model_ensemble_and_task")
    def load_ensemble(original: Any, filenames: Any, *args: Any, **kwargs: Any) -> Any:
        models, cfg, task = original(filenames, *args, **kwargs)
        saved, asked = (
            [getattr(options, f"{side}_lang", None) for side in ("source", "target")]
            for options in (cfg.task, getattr(task, "cfg", None))
        )
        if all(saved) and saved == asked[::-1] != asked:
            problem = f"translates {saved[0]} to {saved[1]}, not {saved[1]} to {saved[0]}"
            todo = f"give --source-lang {saved[0]} --target-lang {saved[1]}"
            raise UserError(problem, filenames[-1], todo)
        return models, cfg, task
