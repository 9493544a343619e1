"""Options that several commands share, and their checks."""

from __future__ import annotations

import os
import re
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collab_common import LAST_CHECKPOINT
from collab_common.command import Parser, check_folder_of, positive
from collab_common.errors import UserError
from collab_common.progress import say
from collab_common.provenance import circumstances

if TYPE_CHECKING:
    import torch

    from collab_lab.shrinking.evidence import Evidence
    from collab_lab.statistics.moments import Statistics
    from collab_lab.trained.attentions import Attention
    from collab_lab.trained.checkpoint import Trained

DATA = "data folder that fairseq-preprocess wrote"
TRANSFORMER = "trained transformer (a translation model or a language model)"


def parser_of(command: str, description: str, epilog: str | None = None) -> ArgumentParser:
    """Create the parser of ``fairseq-collab COMMAND``."""
    prog = f"fairseq-collab {command}"
    return Parser(prog=prog, description=description, epilog=epilog)


def add_model(
    parser: ArgumentParser,
    about: str = TRANSFORMER,
    data: str | None = "the folder of the training",
) -> None:
    """Add the arguments CHECKPOINT and DATA, ``--cpu`` and ``--user-dir``: see :func:`model`.

    Args:
        data: words for the default of the data folder; None if the user must give it.
    """
    parser.add_argument("checkpoint", type=Path, help=about)
    help_ = f"{DATA} (default: {data})" if data else DATA
    parser.add_argument("data", type=Path, nargs="?" if data else None, help=help_)
    add_cpu(parser)
    add_user_dir(parser)


def model(args: Namespace) -> Trained:
    """Open the model that the arguments of :func:`add_model` name."""
    import_models(args)
    from collab_lab import open_model

    return open_model(args.checkpoint, args.data, device=device(args))


def add_out(parser: ArgumentParser, metavar: str, about: str, force: bool = True) -> None:
    """Add ``--out``, the file or folder to write, and ``--force``."""
    parser.add_argument("--out", type=Path, required=True, metavar=metavar, help=about)
    if force:
        add_force(parser)


def add_force(parser: ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="overwrite existing results")


def check_out(args: Namespace, *more: Path) -> None:
    """Raise UserError unless the folder of ``--out`` exists and no result would be overwritten."""
    check_folder_of(args.out)
    check_new(args, args.out, *more)


def check_model_out(args: Namespace) -> None:
    """Raise UserError unless a checkpoint and its configuration can be written to ``--out``.

    An error also prevents that the printed commands resume fine-tuning an earlier model of the
    same name.
    """
    if args.out.suffix != ".pt":
        raise UserError("the name of a checkpoint must end in .pt", args.out, "give another --out")
    check_out(args, args.out.with_suffix(".yaml"))
    for name in (args.out.stem, f"{args.out.stem}-original"):
        if (tuned := args.out.with_name(name) / LAST_CHECKPOINT).exists():
            problem = f"belongs to an earlier {args.out.name}; fine-tuning would resume from it"
            raise UserError(problem, tuned, "remove its folder, or give another --out")


def check_new(args: Namespace, *results: Path, option: str = "--out") -> None:
    """Raise UserError if a result exists already, unless ``--force`` is given."""
    todo = "give --force to overwrite it" if "force" in args else "remove it"
    for path in results:
        if path.exists() and not vars(args).get("force"):
            raise UserError("already exists", path, f"{todo}, or give another {option}")


def add_cpu(parser: Any) -> None:
    parser.add_argument("--cpu", action="store_true", help="use the CPU even if there is a GPU")


def add_pass(parser: ArgumentParser, check: str | None = None) -> None:
    """Add the options of the calibration sentences and, if ``check`` explains it, ``--check``."""
    about = "calibration sentences (for prices, the refit and the measured increase of the loss)"
    group = parser.add_argument_group(about)
    group.add_argument("--subset", default="train", help="set to read them from (default: train)")
    group.add_argument(
        "--sentences", type=positive, default=1000, metavar="N",
        help="number of sentences to read, spread evenly over the set (default: 1000); more take "
        "longer and predict better",
    )  # fmt: skip
    if check:
        parser.add_argument("--check", action="store_true", help=check)


def add_prices(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--prices", type=Path, metavar="DIR",
        help="folder that fairseq-collab prices wrote for this model; it saves a calibration pass",
    )  # fmt: skip


def statistics(args: Namespace, model: Trained) -> dict[Attention, Statistics] | None:
    """The statistics in ``--prices``, or None without it; UserError for those of another model."""
    from collab_lab.shrinking.cuttable import cuttable
    from collab_lab.statistics import stored

    if args.prices is None:
        return None
    found = stored.read(args.prices, cuttable(model))
    say_if_of_other_sentences(args, model)
    return found


def say_if_of_other_sentences(args: Namespace, model: Trained) -> None:
    """Say that stored statistics are of other sentences than those that the options ask for."""
    from collab_lab.statistics import stored

    read = stored.sentences_of(args.prices)
    asked = stored.sentences_asked_for(model, args.subset, args.sentences)
    if read != asked:
        say(f"prices are of {read} (--prices); the refit and the measured loss are of {asked}")


def evidence(
    args: Namespace, model: Trained, parts: Sequence[str] = ("heads", "units", "cache")
) -> Evidence:
    """Collect the evidence about a model; statistics in ``--prices`` save the calibration pass.

    Args:
        parts: what may be cut.
    """
    from collab_lab.shrinking.evidence import Evidence
    from collab_lab.statistics import stored

    found = None if args.prices is None else stored.read_all(args.prices, model)
    if found is not None:
        say_if_of_other_sentences(args, model)
    return Evidence.of(model, args.subset, args.sentences, found, parts)


def add_no_refit(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--no-refit", action="store_true",
        help="do not refit the output projections after the change; most published methods have "
        "no refit",
    )  # fmt: skip


def rise_line(rise: float) -> str:
    """A line with the measured rise of the loss, to compare with the predicted one."""
    return f"measured on the calibration sentences: {rise:+.4f} bits per target token"


def validation(
    args: Namespace, before: Trained
) -> Callable[[Trained, float | None], Sequence[str]]:
    """A function that, with ``--check``, measures a changed model and returns lines to print.

    Its arguments are the changed model and the predicted loss.  The given model is measured at
    once, so that a missing validation set ends the command early.
    """
    if not args.check:
        return lambda after, price: ()
    from collab_lab import validation_loss
    from collab_lab.trained.sentences import samples

    batches = samples(before, "valid")
    bits = validation_loss(before, batches)

    def measured(after: Trained, price: float | None) -> list[str]:
        changed = validation_loss(after, batches)
        change = f"{changed - bits:+.4f} from {bits:.4f}"
        loss = f"validation loss (bits per target token): {changed:.4f}, {change}"
        return [loss, *loss_warnings(args, [("the result", price, changed - bits)])]

    return measured


def loss_warnings(args: Namespace, losses: Iterable[tuple[str, float | None, float]]) -> list[str]:
    """Warnings about losses that deserve doubt: name, prediction and measurement of each."""
    from collab_lab.refitting.rise import LEAST

    lines = [
        f"{name} loses {measured:.4f} bits per token on the validation set, more than twice the "
        f"predicted {price:.4f}: calibrate on more sentences, or on text more like what you will "
        "translate (--sentences, --subset)"
        for name, price, measured in losses
        if price is not None and measured > max(2 * price, LEAST)
    ]
    if args.subset == "valid":
        lines.append(
            "the loss is measured on the calibration sentences themselves (--subset valid): expect "
            "a larger loss on other text"
        )
    return lines


def add_user_dir(parser: Any) -> None:
    parser.add_argument(
        "--user-dir", metavar="DIR", help="folder of the plug-in that defines the model"
    )


def import_models(args: Namespace) -> None:
    """Check paths at once, then import this project's models and the package of ``--user-dir``."""
    values = vars(args)
    if values.get("checkpoint"):
        check_checkpoint(args.checkpoint)
    for part in str(values.get("data") or ".").split(os.pathsep):  # fairseq takes several
        if not Path(part).is_dir():
            raise UserError("data folder not found", part, f"give the {DATA}")
    import_module("fairseq_collab")
    from fairseq import utils

    utils.import_user_module(Namespace(user_dir=values.get("user_dir")))


def check_checkpoint(path: Path) -> None:
    """Raise UserError unless the checkpoint exists."""
    if not path.is_file():
        problem = "is a folder, not a checkpoint" if path.is_dir() else "checkpoint not found"
        raise UserError(problem, path, "give a file such as checkpoints/checkpoint_best.pt")


def device(args: Namespace) -> torch.device:
    """The GPU, unless there is none or ``--cpu`` is given."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")


def provenance(command: str, argv: Sequence[str], cpu: bool = True) -> dict[str, Any]:
    """The origin of a file of results: command, commit, machine and date."""
    return {"command": shlex.join(["fairseq-collab", command, *argv]), **circumstances(cpu)}


def names_of(data: Path) -> str:
    """The name of a data folder, or the names of several, joined by colons as their paths are."""
    return os.pathsep.join(Path(one).resolve().name for one in str(data).split(os.pathsep))


@contextmanager
def spelled(**names: str) -> Iterator[None]:
    """Context in which errors name options instead of the Python arguments in backquotes.

    Args:
        names: names of options that differ from the argument's: ``size="key_dim"``.
    """

    def option(match: re.Match[str]) -> str:
        of_types = match[1] == "by_type"
        name = names.get(match[1], match[1]) + f"_{match[2] or 'TYPE'}" * of_types
        return f"--{name.replace('_', '-')}"

    try:
        yield
    except UserError as error:
        for part in ("problem", "where", "todo"):
            if isinstance(text := getattr(error, part), str):
                setattr(error, part, re.sub(r"`(\w+)(?:\[(\w+)\])?`", option, text))
        raise


def reject(parser: ArgumentParser, args: Namespace, names: Iterable[str], reason: str) -> None:
    """End with status 2 if one of these options is given, because it would have no effect."""
    for name in names:
        if getattr(args, name) != parser.get_default(name):
            option = next(of.option_strings[-1] for of in parser._actions if of.dest == name)
            parser.error(f"{option} {reason}")
