"""What commands print: one line for a user's error; with our plug-in, four lines first.

INFO | fairseq_collab | fairseq-collab 0.3.0, fairseq 0.12.2, torch 2.11.0
INFO | fairseq_collab | device: Intel(R) Xeon(R) Processor, 2 cores, 1 thread a training
INFO | fairseq_collab | data: data/multi30k, en to de, 4,000 symbols, 4,000 symbols
INFO | fairseq_collab | model: transformer_collab, 1,234,567 parameters
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import warnings
from types import TracebackType
from typing import Any

from collab_common.command import silence_stdout
from collab_common.errors import UserError, find
from collab_common.provenance import hardware, versions

from .patching import wrap

TRACEBACK_WANTED = ("FAIRSEQ_COMPAT_TRACEBACK", "HYDRA_FULL_ERROR")  # by setting one to 1
#: The beginnings of warnings of hydra and torch about how fairseq calls them.
IGNORED = (
    r"hydra.experimental.\w+\(\) is no longer experimental",
    r"\s*The version_base parameter is not specified",
    r"In '.*': Usage of deprecated keyword in package header",
    r"\s*'.*' is validated against ConfigStore schema with the same name",
    r"\s*The strict flag in the compose API is deprecated",
    r"`torch.cuda.amp.autocast\(args...\)` is deprecated",
    r"'pin_memory' argument is set as true but no accelerator is found",
    r"Initializing zero-element tensors is a no-op",  # attentions without heads
    r"Support for mismatched key_padding_mask and attn_mask is deprecated",
)
#: The beginnings of messages that repeat the first lines or say that an ordinary step begins.
REPEATED = re.compile(
    r"\[\w+\] dictionary: |dictionary: |(task|model|criterion): |num\. \w+ model params|loaded \d"
    r"|\S+ valid\S* \S+ \d+ examples|training on |max tokens per device|No existing checkpoint"
    r"|Preparing to |loading (\w+ data|model)|grouped total_num_itrs|Start iterating|Saving check"
    r"|Finished saving|detected shared parameter"
)
RESUME = "; run the same command again to resume from the last checkpoint"
logger = logging.getLogger("fairseq_collab")


def program() -> str | None:
    """Return the name of the running command if it is one of fairseq's or ours."""
    path, name = os.path.split(sys.argv[0] if sys.argv else "")
    stem = name.removesuffix(".py")
    if os.path.basename(path) == "fairseq_cli":  # python -m fairseq_cli.train
        return "fairseq-" + stem.replace("_", "-")
    return stem if stem.startswith("fairseq-") else None


# ---- the first screen, with our plug-in ----------------------------------------------------------


def introduce() -> None:
    """Hide what fairseq's commands print first, and say what runs; stock fairseq stays as it is.

    The plug-in calls this when it is imported. Everything still goes to the file of ``--log-file``.
    """
    if program() is None:
        return
    for message in IGNORED:
        warnings.filterwarnings("ignore", message=message)
    logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)  # on tensorboardX
    from fairseq import checkpoint_utils
    from fairseq.trainer import Trainer

    for handler in logging.root.handlers:
        if not isinstance(handler, logging.FileHandler):
            handler.addFilter(on_screen)

    @wrap(Trainer, "__init__")
    def __init__(
        original: Any, self: Any, cfg: Any, task: Any, model: Any, *args: Any, **kwargs: Any
    ) -> None:
        original(self, cfg, task, model, *args, **kwargs)
        gpus = self.cfg.distributed_training.distributed_world_size  # cfg may be a Namespace
        say_first(hardware(self.cfg.common.cpu, gpus), self.cfg.model, task, model)

    @wrap(checkpoint_utils, "load_model_ensemble_and_task")
    def load_ensemble(original: Any, *args: Any, **kwargs: Any) -> Any:
        models, cfg, task = original(*args, **kwargs)
        if (program() or "").startswith(("fairseq-generate", "fairseq-int", "fairseq-eval")):
            say_first(hardware("--cpu" in sys.argv), cfg.model, task, models[0])
        return models, cfg, task


def on_screen(record: logging.LogRecord) -> bool:
    """Tell whether a record is worth a line on the screen."""
    return isinstance(record.msg, str) and not REPEATED.match(record.getMessage())


def say_first(device: str, chosen: Any, task: Any, model: Any) -> None:
    """Log versions, device, data, and model with its size."""
    libraries = versions("fairseq-collab", "fairseq", "torch")
    del libraries["python"]
    logger.info(", ".join(" ".join(library) for library in libraries.items()))
    logger.info(f"device: {device}")
    options = getattr(task, "cfg", None) or getattr(task, "args", None)  # older tasks have args
    languages, symbols = [], []
    for side in ("source", "target"):
        languages.append(getattr(options, f"{side}_lang", None))
        with contextlib.suppress(AttributeError, NotImplementedError):  # a task without
            symbols.append(f"{len(getattr(task, f'{side}_dictionary')):,} symbols")
    parts = [str(getattr(options, "data", "")), " to ".join(filter(None, languages)), *symbols]
    logger.info(f"data: {', '.join(filter(None, parts))}")
    arch = getattr(chosen, "_name", None) or getattr(chosen, "arch", type(model).__name__)
    size = sum(weight.numel() for weight in model.parameters())
    logger.info(f"model: {arch}, {size:,} parameters")


# ---- errors --------------------------------------------------------------------------------------


def report(error: BaseException) -> bool:
    """Print the line of an interruption, a UserError or an unreadable file; False for others.

    Other errors keep their traceback.  A closed pipe, as of ``| head``, ends in silence.
    """
    if program() is None:
        return False
    if isinstance(error, BrokenPipeError):
        silence_stdout()
        return True
    if isinstance(error, KeyboardInterrupt):
        _say("interrupted" + RESUME * str(program()).endswith("train"))
        return True
    user_error: BaseException | None = find(error)
    if user_error is None and isinstance(error, OSError) and error.errno and error.filename:
        user_error = UserError(error.strerror or str(error), error.filename)
    if user_error is None or any(os.environ.get(name) == "1" for name in TRACEBACK_WANTED):
        return False
    _say(f"error: {' '.join(str(user_error).split())}")
    return True


def _say(line: str) -> None:
    sys.stdout.flush()
    print(f"{program()}: {line}", file=sys.stderr, flush=True)


def shorten_errors() -> None:
    """Ctrl-C, a closed pipe and UserErrors of a plug-in end in a page of traceback."""
    previous = sys.excepthook

    def excepthook(kind: Any, error: BaseException, traceback: TracebackType | None) -> None:
        if not report(error):
            previous(kind, error, traceback)

    sys.excepthook = excepthook


def shorten_hydras_errors() -> None:
    """Hydra reports the errors of a job itself, and leaves the program."""
    from hydra._internal import utils

    @wrap(utils, "run_and_report")
    def run_and_report(original: Any, func: Any) -> Any:
        def guarded() -> Any:
            try:
                return func()
            except Exception as error:
                if not report(error):
                    raise
                raise SystemExit(1) from error

        return original(guarded)
