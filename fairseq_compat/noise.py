"""What fairseq's commands print that no user can act on."""

from __future__ import annotations

import logging
import warnings

from .one_line import program

#: The beginnings of warnings of hydra and torch about how fairseq calls them.
IGNORED = (
    r"hydra.experimental.\w+\(\) is no longer experimental",
    r"\s*The version_base parameter is not specified",
    r"In '.*': Usage of deprecated keyword in package header",
    r"\s*'.*' is validated against ConfigStore schema with the same name",
    r"\s*The strict flag in the compose API is deprecated",
    r"`torch.cuda.amp.autocast\(args...\)` is deprecated",
    r"'pin_memory' argument is set as true but no accelerator is found",
)


def quieten() -> None:
    """fairseq's commands start with 20 lines of warnings, the configuration and all modules.

    The last two still go to the file of `--log-file`.
    """
    if program() is None:
        return
    for message in IGNORED:
        warnings.filterwarnings("ignore", message=message)
    # It advises to install tensorboardX.
    logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)
    for name in ("train", "generate", "interactive", "eval_lm"):
        logging.getLogger(f"fairseq_cli.{name}").addFilter(to_file)


def to_file(record: logging.LogRecord) -> bool:
    """Whether a record is text; a configuration or a model goes to log files alone."""
    if isinstance(record.msg, str):
        return True
    for handler in (*logging.getLogger(record.name).handlers, *logging.root.handlers):
        if isinstance(handler, logging.FileHandler):
            handler.handle(record)
    return False
