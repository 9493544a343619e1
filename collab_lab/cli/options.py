"""Options that several commands share, and their checks."""

from __future__ import annotations

import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collab_common.command import check_folder_of, positive
from collab_common.errors import UserError
from collab_common.provenance import circumstances

if TYPE_CHECKING:
    import torch

    from collab_lab.trained.opener import Trained

DATA = "the folder that fairseq-preprocess has written"
TRANSLATION = "a trained encoder-decoder transformer"
TRANSFORMER = "a trained transformer: it translates, or is a language model"


def parser_of(command: str, description: str, epilog: str | None = None) -> ArgumentParser:
    """The parser of ``fairseq-collab COMMAND``."""
    prog = f"fairseq-collab {command}"
    return ArgumentParser(prog=prog, description=description, epilog=epilog)


def add_checkpoint(parser: ArgumentParser, about: str | None = TRANSLATION) -> None:
    """The first argument: what the command reads."""
    parser.add_argument("checkpoint", type=Path, help=about)


def add_data(parser: ArgumentParser, default: str | None = None) -> None:
    """The second argument: the data folder; optional where there is a ``default``."""
    about = f"{DATA} (default: {default})" if default else DATA
    parser.add_argument("data", type=Path, nargs="?" if default else None, help=about)


def add_out(parser: ArgumentParser, metavar: str, about: str) -> None:
    """``--out``, the file or folder to write."""
    parser.add_argument("--out", type=Path, required=True, metavar=metavar, help=about)


def add_force(parser: ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="write over a result that exists")


def check_out(args: Namespace, *more: Path) -> None:
    """Raise UserError unless ``--out`` and ``more`` have a folder, and nothing is written over."""
    check_folder_of(args.out, "--out")
    check_new(args, args.out, *more)


def check_new(args: Namespace, *results: Path) -> None:
    """Raise UserError where a result would be written over something, without ``--force``."""
    todo = "give --force to write over it" if "force" in args else "remove it"
    for path in results:
        if path.exists() and not vars(args).get("force"):
            raise UserError("exists already", path, f"{todo}, or give another --out")


def add_cpu(parser: ArgumentParser) -> None:
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")


def add_pass(parser: ArgumentParser, subset: str = "train") -> None:
    """The sentences of the forward and backward pass that prices come from."""
    group = parser.add_argument_group("sentences that prices come from")
    group.add_argument("--subset", default=subset, help=f"set of them (default: {subset})")
    group.add_argument(
        "--sentences", type=positive, default=1000, metavar="N",
        help="number, evenly spread over the set (default: 1000)",
    )  # fmt: skip


def add_check(parser: ArgumentParser) -> None:
    """``--check``: see :func:`checked`."""
    parser.add_argument(
        "--check", action="store_true", help="measure the loss on the validation set, too"
    )


def checked(args: Namespace, before: Trained, after: Trained) -> dict[str, float]:
    """With ``--check``, losses of two models on the validation set, in bits per target token."""
    if not args.check:
        return {}
    from collab_lab.metrics.loss import mean_bits
    from collab_lab.pricing.statistics import samples

    batches = samples(before, "valid", sys.maxsize)
    return {
        "valid_bits_before": mean_bits(before.model, batches),
        "valid_bits": mean_bits(after.model, batches),
    }


def check_lines(result: Mapping[str, Any]) -> list[str]:
    """What :func:`checked` measured, for people."""
    if "valid_bits" not in result:
        return []
    after, before = result["valid_bits"], result["valid_bits_before"]
    lost = f"{after - before:+.4f}"
    return [f"validation loss (bits per target token): {after:.4f}, {lost} than {before:.4f}"]


def add_user_dir(parser: ArgumentParser) -> None:
    parser.add_argument("--user-dir", metavar="DIR", help="a further plug-in, if the model is its")


def import_models(args: Namespace) -> None:
    """Import fairseq, this project's models and the package of ``--user-dir``, which takes seconds.

    Raises:
        UserError: at once, where ``args.checkpoint`` or ``args.data`` does not exist.
    """
    given = vars(args)
    if given.get("checkpoint"):
        check_checkpoint(args.checkpoint)
    if given.get("data") and not args.data.is_dir():
        raise UserError("data folder not found", args.data, f"give {DATA}")
    import_module("fairseq_collab")
    from fairseq import utils

    utils.import_user_module(Namespace(user_dir=given.get("user_dir")))


def check_checkpoint(path: Path) -> None:
    """Raise UserError unless there is such a file."""
    if not path.is_file():
        what = "is a folder, not a checkpoint" if path.is_dir() else "checkpoint not found"
        raise UserError(what, path, "give a file such as checkpoints/checkpoint_best.pt")


def device(args: Namespace) -> torch.device:
    """The GPU, unless there is none or ``--cpu`` is given."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")


def made(command: str, argv: Sequence[str], cpu: bool = True) -> dict[str, Any]:
    """What a file of results says of how it was made."""
    return {"command": shlex.join(["fairseq-collab", command, *argv]), **circumstances(cpu)}


def reject(parser: ArgumentParser, args: Namespace, names: Iterable[str], reason: str) -> None:
    """End with status 2 where one of these options, which have no effect, is not at its default."""
    for name in names:
        if getattr(args, name) != parser.get_default(name):
            parser.error(f"--{name.replace('_', '-')} {reason}")
