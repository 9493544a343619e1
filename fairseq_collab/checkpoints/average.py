"""``fairseq-collab average``: the mean of the weights of several checkpoints of one training."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from collab_common.command import check_folder_of
from collab_common.errors import UserError
from fairseq_compat import checkpoints

EPOCH_FILE = re.compile(r"checkpoint(\d+)\.pt")
UPDATE_FILE = re.compile(r"checkpoint_\d+_(\d+)\.pt")


class Mean:
    """Sums models up one by one in double precision: one sum and one model in memory."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.kinds: dict[str, tuple[torch.Size, bool]] = {}  # shape, and whether floating
        self.sums: dict[str, Tensor] = {}
        self.integers: dict[str, list[Tensor]] = {}  # small, and not simply averaged
        self.tied: dict[str, str] = {}  # name of a shared weight: name it is summed under
        self.dtypes: dict[str, torch.dtype] = {}

    def add(self, model: dict[str, Tensor], path: str) -> None:
        """Adds the weights of one checkpoint.

        Raises:
            UserError: they differ in names or shapes from those before, or are not finite
        """
        if self.paths:
            self._compare(model, path)
        else:
            self._start(model)
        self.paths.append(path)
        for name, value in model.items():
            if not value.is_floating_point():
                self.integers.setdefault(name, []).append(value)
                continue
            if name.endswith(checkpoints.UNDEFINED):  # zero in the mean
                continue
            if not torch.isfinite(value).all():
                raise UserError(f"{name} holds NaN or infinity", path, "leave this file out")
            if self.tied.get(name, name) == name:
                self.sums[name] += value

    def _start(self, model: dict[str, Tensor]) -> None:
        first = checkpoints.first_names(model)
        for name, value in model.items():
            self.kinds[name] = value.shape, value.is_floating_point()
            if value.is_floating_point():
                self.tied[name] = first[name]
                # Half precision would round the mean away: fairseq, too, saves it as float32.
                self.dtypes[name] = torch.promote_types(value.dtype, torch.float32)
                if self.tied[name] == name:
                    self.sums[name] = torch.zeros_like(value, dtype=torch.float64)

    def _compare(self, model: dict[str, Tensor], path: str) -> None:
        for name in sorted(self.kinds.keys() ^ model.keys()):
            lacking, other = (path, self.paths[0]) if name in self.kinds else (self.paths[0], path)
            raise UserError(f"has no {name}, unlike {other}", lacking, "average one training only")
        for name, value in model.items():
            shape, floating = self.kinds[name]
            if (value.shape, value.is_floating_point()) != (shape, floating):
                raise UserError(
                    f"{name} is {_kind(value.shape, value.is_floating_point())}, "
                    f"but {_kind(shape, floating)} in {self.paths[0]}",
                    path,
                    "average one training only",
                )
        # A weight that is shared here and not there has two means.
        for name, first in list(self.tied.items()):
            if first != name and not torch.equal(model[name], model[first]):
                raise UserError(
                    f"{name} differs from {first}, but is tied to it in {self.paths[0]}",
                    path,
                    "average one training only",
                )

    def result(self) -> dict[str, Tensor]:
        """Returns the mean, with names and sharing of the first model.

        Raises:
            UserError: the signatures differ, that is, the attention or the dictionary does
        """
        means: dict[str, Tensor] = {}
        for name in self.kinds:
            if name in self.integers:
                means[name] = self._integer(name)
            elif self.tied[name] != name:
                means[name] = means[self.tied[name]]
            else:
                means[name] = (self.sums[name] / len(self.paths)).to(self.dtypes[name])
        return means

    def _integer(self, name: str) -> Tensor:
        """Keeps what all inputs agree on; the mean of the rest is rounded down, as in fairseq."""
        first, *others = values = self.integers[name]
        if all(torch.equal(first, value) for value in others):
            return first
        if name.endswith("signature"):
            place = next(i for i, value in enumerate(values) if not torch.equal(first, value))
            raise UserError(
                f"{name} is {values[place].tolist()}, but {first.tolist()} in {self.paths[0]}",
                self.paths[place],
                "these are models of different kinds and have no mean",
            )
        total = torch.stack([value.to(torch.int64) for value in values]).sum(0)
        return (total // len(values)).to(first.dtype)


def _kind(shape: torch.Size, floating: bool) -> str:
    return f"{'float' if floating else 'integer'} {tuple(shape)}"


def average_checkpoints(
    paths: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]
) -> None:
    """Writes a checkpoint with the mean of the weights of ``paths``.

    Everything else (configuration, task state, ...) is that of the input with most updates;
    the state of the optimizer is left out.

    Raises:
        UserError: an input cannot be read, does not match the others or is not finite, or
            the result cannot be written
    """
    if not paths:
        raise UserError("there is nothing to average", todo="name at least one checkpoint")
    check_folder_of(out, "--output")
    mean, newest, most = Mean(), {}, -1
    for path in (os.fspath(path) for path in paths):
        state = checkpoints.read(path)
        mean.add(state.pop("model"), path)
        updates = _updates(state)
        if updates > most:
            newest, most = state, updates
    checkpoints.save(checkpoints.without_training(newest) | {"model": mean.result()}, out)


def _updates(state: dict[str, Any]) -> int:
    history = state.get("optimizer_history") or [{}]
    return history[-1].get("num_updates", 0)


def last_checkpoints(
    count: int, folder: str | os.PathLike[str], upper_bound: int | None = None
) -> list[str]:
    """Returns the last ``count`` checkpoints of a folder, oldest first.

    These are the ones of whole epochs (``checkpoint3.pt``) or, in a folder without any, those
    of ``--save-interval-updates`` (``checkpoint_3_1000.pt``).

    Raises:
        UserError: there is no such folder, or it holds fewer checkpoints
    """
    if not os.path.isdir(folder):
        raise UserError("there is no such folder", folder, "give the --save-dir of the training")
    names = os.listdir(folder)
    matches = [match for name in names if (match := EPOCH_FILE.fullmatch(name))]
    matches = matches or [match for name in names if (match := UPDATE_FILE.fullmatch(name))]
    numbered = sorted((int(match.group(1)), match.group()) for match in matches)
    if upper_bound is not None:
        numbered = [entry for entry in numbered if entry[0] <= upper_bound]
    if len(numbered) < count:
        limit = "" if upper_bound is None else f" up to {upper_bound}"
        raise UserError(
            f"holds {len(numbered)} checkpoints of epochs or updates{limit}, not {count}",
            folder,
            "give a smaller --last, or train with --keep-last-epochs or more",
        )
    return [os.path.join(folder, name) for _, name in numbered[-count:]]


def build_parser() -> argparse.ArgumentParser:
    """The options of the command."""
    parser = argparse.ArgumentParser(
        prog="fairseq-collab average",
        description="Averages the weights of several checkpoints of one training. The result "
        "translates like any checkpoint; to train on from it, use --finetune-from-model.",
        epilog="example: fairseq-collab average --last 5 checkpoints --output average.pt",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--inputs", nargs="+", metavar="FILE", help="the checkpoints to average")
    source.add_argument(
        "--last",
        nargs=2,
        metavar=("N", "DIR"),
        help="the last N checkpoints of the folder DIR: those of epochs (checkpoint3.pt) or, "
        "where there are none, those of updates (checkpoint_3_1000.pt)",
    )
    parser.add_argument(
        "--upper-bound",
        type=int,
        metavar="NUMBER",
        help="with --last: leave out what comes after this epoch (or this update, where the "
        "checkpoints are those of updates)",
    )
    parser.add_argument("--output", required=True, metavar="FILE", help="the checkpoint to write")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status.

    Raises:
        UserError: see ``average_checkpoints`` and ``last_checkpoints``
    """
    parser = build_parser()
    arguments = parser.parse_args(argv)
    paths = arguments.inputs
    if paths is None:
        count, folder = arguments.last
        if not count.isdecimal() or int(count) == 0:
            parser.error(f"argument --last: N must be a whole number above 0, not {count!r}")
        paths = last_checkpoints(int(count), folder, arguments.upper_bound)
    elif arguments.upper_bound is not None:
        parser.error("argument --upper-bound: goes with --last only")
    average_checkpoints(paths, arguments.output)
    print(f"{arguments.output}: the mean of {', '.join(paths)}")
    return 0
