"""Options that several commands share, and what is done with them."""

from __future__ import annotations

import argparse
import math
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from collab_common.provenance import circumstances

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
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


def add_out(parser: ArgumentParser, metavar: str, about: str) -> None:
    """``--out``, the file or folder to write."""
    parser.add_argument("--out", type=Path, required=True, metavar=metavar, help=about)


def add_cpu(parser: ArgumentParser) -> None:
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")


def add_user_dir(parser: ArgumentParser) -> None:
    parser.add_argument("--user-dir", metavar="DIR", help="a further plug-in, if the model is its")


def import_plugin(args: Namespace) -> None:
    """Import the package that ``--user-dir`` names."""
    from fairseq import utils

    utils.import_user_module(Namespace(user_dir=args.user_dir))


def device(args: Namespace) -> torch.device:
    """The GPU, unless there is none or ``--cpu`` is given."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")


def made(command: str, argv: Sequence[str], cpu: bool = True) -> dict[str, Any]:
    """What a file of results says of how it was made."""
    return {"command": shlex.join(["fairseq-collab", command, *argv]), **circumstances(cpu)}


def refuse(parser: ArgumentParser, args: Namespace, names: Iterable[str], reason: str) -> None:
    """End with status 2 where one of these options, which have no effect, is not at its default."""
    for name in names:
        if getattr(args, name) != parser.get_default(name):
            parser.error(f"--{name.replace('_', '-')} {reason}")


# ---- kinds of values, for argparse ---------------------------------------------------------------


def typed(parse: Callable[[str], T]) -> Callable[[str], T]:
    """A kind of values from a function that raises ValueError: its message is shown."""

    def value(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return value


def ranged(holds: Callable[[float], bool], said: str) -> Callable[[str], float]:
    """Numbers for which ``holds`` is true; others must be as ``said``."""

    def value(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan  # which no range holds
        if not holds(number):
            raise argparse.ArgumentTypeError(f"must be {said}, not {text!r}")
        return number

    return value


share = ranged(lambda x: 0 <= x < 1, "a number from 0 up to 1")
amount = ranged(lambda x: 0 <= x < math.inf, "a number from 0 up")
