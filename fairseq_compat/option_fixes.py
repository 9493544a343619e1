"""Fixes of the options of fairseq's commands; each docstring names the fault."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import Any

from collab_common.command import Parser
from collab_common.errors import UserError, did_you_mean

from .patching import Proxy, wrap

#: The values of ``--remove-bpe`` and ``--eval-bleu-remove-bpe``: how subwords are joined to words.
JOINED = (
    *("sentencepiece", "wordpiece", "letter", "silence", "_EOW", "subword_nmt", "@@ ", "@@"),
    "none",
)


def train_in_bfloat16() -> None:
    """fairseq-train takes --bf16 for --tpu, also on GPUs and CPUs, and then needs torch_xla."""
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


class FairseqParser(Parser):
    """A parser of one of fairseq's commands, whose ``--user-dir`` adds the names of a plug-in."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.words = [*(sys.argv[1:] if args is None else args)]
        return super().parse_known_args(args, namespace)

    def advise(self, action: argparse.Action, value: str) -> str:
        """Return the nearest choice; names of a plug-in count only if the plug-in is loaded."""
        from fairseq.registry import REGISTRIES

        can_be_of_plugin = action.dest in {"arch", "task", *REGISTRIES}
        given = any(word.partition("=")[0] == "--user-dir" for word in self.words)
        plugin = "" if given or not can_be_of_plugin else "names of a plug-in need --user-dir; "
        return plugin + super().advise(action, value)


def name_nearest_options() -> None:
    """A mistyped option prints the usage of all options, a mistyped name the list of all names."""
    from fairseq import options

    options.argparse = Proxy(argparse, ArgumentParser=FairseqParser)


def require_model_and_optimizer() -> None:
    """fairseq-train ends in a traceback without --arch, and late in one without --optimizer."""
    from fairseq import options
    from fairseq.distributed import utils
    from fairseq.optim import OPTIMIZER_REGISTRY

    @wrap(options, "parse_args_and_arch")
    def parse_args_and_arch(original: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except RuntimeError as error:
            if error.args:  # fairseq raises this one without a word
                raise
            todo = "give an architecture, such as transformer"
            raise UserError("is missing", "--arch", todo) from None

    @wrap(utils, "call_main")
    def call_main(original: Any, cfg: Any, main: Any, **kwargs: Any) -> Any:
        if main.__module__ == "fairseq_cli.train" and cfg.optimizer is None:
            todo = f"give one of {', '.join(sorted(OPTIMIZER_REGISTRY))}"
            raise UserError("is missing", "--optimizer", todo)
        return original(cfg, main, **kwargs)


def check_joined(symbol: str | None, option: str) -> None:
    """Raise UserError unless fairseq can join subwords of this kind; None joins nothing."""
    if symbol is not None and symbol not in JOINED:
        todo = did_you_mean(symbol, JOINED) or f"give one of {', '.join(map(repr, JOINED))}"
        raise UserError(f"fairseq cannot join subwords of the kind {symbol!r}", option, todo)


def name_joined_subwords() -> None:
    """A mistyped --remove-bpe ends in a traceback; in training only after the first epoch."""
    from fairseq import options
    from fairseq.data import data_utils

    @wrap(options, "parse_args_and_arch")
    def parse_args_and_arch(original: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        parsed = result[0] if isinstance(result, tuple) else result  # with what it does not know
        check_joined(getattr(parsed, "post_process", None), "--remove-bpe")
        check_joined(getattr(parsed, "eval_bleu_remove_bpe", None), "--eval-bleu-remove-bpe")
        return result

    @wrap(data_utils, "post_process")
    def post_process(original: Any, sentence: str, symbol: Any) -> Any:
        check_joined(symbol, "post_process")
        return original(sentence, symbol)


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
            raise UserError("needs a GPU", "--fp16", "give --bf16, or leave both out")
        return original(cfg, main, **kwargs)


def check_direction() -> None:
    """fairseq-generate translates from the target language without a warning."""
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
