"""Turns fairseq's own complaints about a user's mistakes into UserErrors.

Two ways: where fairseq's message does not name the file, the function that raises it is
wrapped; where it does, it is recognised by its words. What is not recognised here is no
user's mistake and keeps its traceback.
"""

from __future__ import annotations

import difflib
import itertools
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from collab_common.errors import UserError, first_line

from .patching import wrap

DATA_TODO = "give the folder that fairseq-preprocess has written"
PLUG_IN_TODO = "if a plug-in brings it, name the plug-in's folder with --user-dir"
PLUG_IN_OPTIONS = ("--arch", "--criterion", "--lr-scheduler", "--optimizer", "--task")
FEW = 12  # choices that can be listed in one line

# Messages of fairseq that say all that is needed; what follows the match is cut off.
SELF_CONTAINED = re.compile(
    r"Must specify batch size either with --max-tokens or --batch-size"
    r"|--path required for generation!"
    r"|--(sampling|replace-unk|buffer-size|batch-size) .*"
    r"|Please specify criterion to train a model"
    r"|(Criterion|Optimizer) does not match; please reset the optimizer.*"
    r"|--finetune-from-model .* does not exist"
    r"|--finetune-from-model .* can not be (set|specified) together[^:]*"
    r"|\w+ is required!"
    r"|Sizes of sample #.*|Size of sample #.*"
    r"|The dataset is empty\.[^:]*"
    r"|Sentences lengths should not exceed max_tokens=\d+"
    r"|min_len cannot be larger than max_len"
)


# ---- recognised by their words -------------------------------------------------------------------


def translate(error: BaseException) -> UserError | None:
    """Returns the UserError that an exception of fairseq, hydra or a worker amounts to."""
    from hydra.errors import CompactHydraException

    message, kind = str(error), type(error).__name__
    if kind == "ProcessRaisedException":  # of torch.multiprocessing.spawn
        lines = re.findall(r"^[\w.]*UserError: (.*)$", message, re.MULTILINE)
        return UserError(lines[-1]) if lines else None
    if isinstance(error, CompactHydraException):
        return UserError(f"{error} {error.__cause__ or ''}".strip())
    if kind == "ConfigKeyError":  # omegaconf's: `+model.OPTION=...`, and the class has no such
        unknown = re.match(r"Key '(\w+)' not in '(\w+)'", message)
        return unknown and UserError(f"there is no option {unknown[1]!r} in {unknown[2]}")
    split = re.fullmatch(r"Dataset not found: (\S+) \((.*)\)", message)
    if isinstance(error, FileNotFoundError) and split:
        return _missing_split(*split.groups())
    if _raised_by_fairseq(error):
        complaint = SELF_CONTAINED.match(message)
        if complaint:
            return UserError(complaint.group())
        if isinstance(error, OSError) and error.filename is not None:
            return UserError(error.strerror or first_line(error), os.fsdecode(error.filename))
    return _of_literal(error)


def _missing_split(split: str, folder: str) -> UserError:
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    found = sorted({name.partition(".")[0] for name in names if name.endswith(".idx")})
    there = f"it has {', '.join(found)}" if found else DATA_TODO
    return UserError(f"has no data set {split!r} for this language pair", folder, there)


def _raised_by_fairseq(error: BaseException) -> bool:
    """Whether it was raised by fairseq's own code, rather than a library's."""
    frames = traceback.extract_tb(error.__traceback__)
    parts = os.path.normpath(frames[-1].filename).split(os.sep) if frames else []
    return "fairseq" in parts or "fairseq_cli" in parts


def _of_literal(error: BaseException) -> UserError | None:
    """Names the option whose value fairseq's commands have given to ast.literal_eval."""
    frames = traceback.extract_tb(error.__traceback__)
    for caller, called in itertools.pairwise(frames):
        option = re.search(r"literal_eval\(cfg\.\w*\.?(\w+)\)", caller.line or "")
        if called.name == "literal_eval" and option:
            name = "--" + option.group(1).replace("_", "-")
            return UserError(f"is no Python literal: {first_line(error)}", name)
    return None


def of_options(message: str) -> str:
    """Returns a message of argparse with the nearest choices instead of hundreds of them."""
    forgotten = "" if "--user-dir" in " ".join(sys.argv) else f"; {PLUG_IN_TODO}"
    wrong = re.fullmatch(r"argument (\S+): invalid choice: (.+?) \(choose from (.*)\)", message)
    if wrong is None:
        unknown = message.startswith("unrecognized arguments")
        return message.replace(" <lambda> ", " ") + (forgotten if unknown else "")
    option, value, listed = wrong.groups()
    choices = [choice.strip().strip("'\"") for choice in listed.split(",")]
    text = f"argument {option}: there is no {value}"
    if len(choices) <= FEW:
        text += f"; choose from {', '.join(choices)}"
    else:
        near = difflib.get_close_matches(value.strip("'\""), choices)
        text += f"; similar: {', '.join(near)}" if near else ""
    return text + (forgotten if option.split("/")[0] in PLUG_IN_OPTIONS else "")


# ---- raised by what does not say which file or folder it is about --------------------------------


def apply() -> None:
    """Wraps the functions whose errors do not name what is wrong."""
    name_the_data_folder()
    name_the_dictionary()
    name_the_user_dir()
    name_the_config()
    name_the_architecture()


def name_the_data_folder() -> None:
    """fairseq lists the folder or says that it "could not infer language pair"."""
    from fairseq.data import data_utils

    @wrap(data_utils, "infer_language_pair")
    def infer_language_pair(original: Any, path: str) -> Sequence[str | None]:
        if not os.path.isdir(path):
            raise UserError("there is no such data folder", path, DATA_TODO)
        pair: Sequence[str | None] = original(path)
        if None in pair:
            raise UserError("holds no binarised language pair", path, DATA_TODO)
        return pair


def name_the_dictionary() -> None:
    """fairseq quotes a line of a broken dictionary, but not the file it is in."""
    from fairseq.data.dictionary import Dictionary

    @wrap(Dictionary, "add_from_file")
    def add_from_file(original: Any, self: Any, f: Any) -> None:
        try:
            original(self, f)
        except UserError:  # from the call for the open file
            raise
        except FileNotFoundError as error:
            folder = os.path.dirname(f)
            if not os.path.isdir(folder):
                raise UserError("there is no such data folder", folder, DATA_TODO) from error
            todo = "check --source-lang and --target-lang, or " + DATA_TODO
            raise UserError("there is no such dictionary", f, todo) from error
        except Exception as error:
            if not isinstance(f, str) or not _raised_by_fairseq(error):
                raise
            raise UserError(str(error), f, "binarise the data again") from error


def name_the_user_dir() -> None:
    """fairseq raises FileNotFoundError with nothing but the path."""
    from fairseq import utils

    @wrap(utils, "import_user_module")
    def import_user_module(original: Any, args: Any) -> None:
        try:
            original(args)
        except FileNotFoundError as error:
            if error.filename is not None:  # raised by the plug-in itself
                raise
            todo = "--user-dir takes the folder of a plug-in"
            raise UserError("there is no such folder", args.user_dir, todo) from error


def name_the_config() -> None:
    """fairseq-hydra-train takes an unknown --config-name for one that leaves all as it is."""
    from fairseq.dataclass import initialize

    @wrap(initialize, "hydra_init")
    def hydra_init(original: Any, cfg_name: str = "config") -> None:
        from hydra._internal.utils import get_args_parser

        folder = get_args_parser().parse_known_args()[0].config_dir
        name = cfg_name.removesuffix(".yaml") + ".yaml"
        if folder and cfg_name != "config" and not os.path.isfile(os.path.join(folder, name)):
            raise UserError("there is no such configuration", os.path.join(folder, name))
        original(cfg_name)


def name_the_architecture() -> None:
    """fairseq fails to format its own complaint about a checkpoint's model: KeyError: "'_name'"."""
    from fairseq import models

    @wrap(models, "build_model")
    def build_model(original: Any, cfg: Any, task: Any, from_checkpoint: bool = False) -> Any:
        name = getattr(cfg, "_name", None) or getattr(cfg, "arch", None)
        known = (models.ARCH_MODEL_REGISTRY, models.MODEL_DATACLASS_REGISTRY)
        if name and not any(name in registry for registry in known):
            raise UserError(f"there is no architecture {name}", todo=PLUG_IN_TODO)
        return original(cfg, task, from_checkpoint)
