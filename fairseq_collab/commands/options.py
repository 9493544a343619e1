"""Options that several commands share, and what is done with them."""

from __future__ import annotations

import argparse
import math
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fairseq import utils

from collab_common.errors import UserError

TRANSLATION = "a trained encoder-decoder transformer"
TRANSFORMER = "a trained transformer: it translates, or is a language model"


def parser_of(command: str, description: str, epilog: str | None = None) -> ArgumentParser:
    """The parser of ``fairseq-collab COMMAND``."""
    prog = f"fairseq-collab {command}"
    return ArgumentParser(prog=prog, description=description, epilog=epilog)


def add_checkpoint(parser: ArgumentParser, about: str | None = TRANSLATION) -> None:
    """The first argument: what the command reads."""
    parser.add_argument("checkpoint", type=Path, help=about)


def add_data(parser: ArgumentParser) -> None:
    """The second argument: the sentences."""
    parser.add_argument("data", type=Path, help="the folder that fairseq-preprocess has written")


def add_output(
    parser: ArgumentParser, option: str, metavar: str, about: str, required: bool = True
) -> None:
    """What the command writes: ``--out`` or ``--output``."""
    parser.add_argument(option, type=Path, required=required, metavar=metavar, help=about)


def add_cpu(parser: ArgumentParser) -> None:
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")


def add_user_dir(parser: ArgumentParser) -> None:
    parser.add_argument("--user-dir", metavar="DIR", help="a further plug-in, if the model is its")


def import_plugin(args: Namespace) -> None:
    """Import what ``--user-dir`` names."""
    utils.import_user_module(Namespace(user_dir=args.user_dir))


def device(args: Namespace) -> torch.device:
    """The GPU, unless there is none or ``--cpu`` is given."""
    return torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")


def parsed(parse: Callable[..., Any], option: str, text: str, **how: Any) -> Any:
    """An option's value, read by a function that raises ValueError.

    Raises:
        UserError: it cannot be read.
    """
    try:
        return parse(option, text, **how)
    except ValueError as error:
        raise UserError(str(error)) from error


# ---- kinds of values, for argparse ---------------------------------------------------------------


def proper_share(text: str) -> float:
    """A number above 0 and below 1."""
    if not 0 < number(text) < 1:
        raise argparse.ArgumentTypeError(f"must be above 0 and below 1, not {text!r}")
    return number(text)


def share(text: str) -> float:
    """A number from 0 up to 1."""
    if not 0 <= number(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a number from 0 up to 1, not {text!r}")
    return number(text)


def amount(text: str) -> float:
    """A number from 0 up."""
    if not 0 <= number(text) < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number from 0 up, not {text!r}")
    return number(text)


def number(text: str) -> float:
    """NaN if it is none: no range holds that."""
    try:
        return float(text)
    except ValueError:
        return math.nan
