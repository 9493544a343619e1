"""The mean of the weights of several checkpoints of one training."""

from __future__ import annotations

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
_ONE_TRAINING = "average one training only"


class Mean:
    """Sums models up one by one in double precision: one sum and one model in memory."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.like: dict[str, Tensor] = {}  # shapes and types of the first model, without values
        self.tied: dict[str, str] = {}  # floating weight: name that it is summed under
        self.sums: dict[str, Tensor] = {}
        self.integers: dict[str, list[Tensor]] = {}  # small, and not simply averaged

    def add(self, model: dict[str, Tensor], path: str) -> None:
        """Add the weights of one checkpoint.

        Raises:
            UserError: they differ in names or shapes from those before, or are not finite.
        """
        if self.paths:
            self._compare(model, path)
        else:
            self._start(model)
        self.paths.append(path)
        for name, value in model.items():
            if not value.is_floating_point():
                self.integers.setdefault(name, []).append(value)
            elif self.tied[name] == name and not name.endswith(checkpoints.UNDEFINED):
                if not torch.isfinite(value).all():
                    raise UserError(f"{name} holds NaN or infinity", path, "leave this file out")
                self.sums[name] += value

    def _start(self, model: dict[str, Tensor]) -> None:
        self.like = {name: value.to("meta") for name, value in model.items()}
        first = checkpoints.first_names(model)
        self.tied = {name: first[name] for name in model if model[name].is_floating_point()}
        self.sums = {
            name: torch.zeros_like(model[name], dtype=torch.float64)
            for name in self.tied
            if self.tied[name] == name
        }

    def _compare(self, model: dict[str, Tensor], path: str) -> None:
        for name in sorted(self.like.keys() ^ model.keys()):
            lacking, other = (path, self.paths[0]) if name in self.like else (self.paths[0], path)
            raise UserError(f"has no {name}, unlike {other}", lacking, _ONE_TRAINING)
        for name, value in model.items():
            found, expected = _kind(value), _kind(self.like[name])
            if found != expected:
                what = f"{name} is {found}, but {expected} in {self.paths[0]}"
                raise UserError(what, path, _ONE_TRAINING)
        # A weight that is shared here and not there has two means.
        for name, first in self.tied.items():
            if first != name and not torch.equal(model[name], model[first]):
                what = f"{name} differs from {first}, but is tied to it in {self.paths[0]}"
                raise UserError(what, path, _ONE_TRAINING)

    def result(self) -> dict[str, Tensor]:
        """The mean, with names and sharing of the first model."""
        means: dict[str, Tensor] = {}
        for name, like in self.like.items():
            if name in self.integers:
                means[name] = self._integer(name)
            elif self.tied[name] != name:
                means[name] = means[self.tied[name]]
            else:
                # Half precision would round the mean away: fairseq, too, saves it as float32.
                dtype = torch.promote_types(like.dtype, torch.float32)
                means[name] = (self.sums[name] / len(self.paths)).to(dtype)
        return means

    def _integer(self, name: str) -> Tensor:
        """What all inputs agree on; the mean of the rest is rounded down, as in fairseq."""
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


def _kind(weight: Tensor) -> str:
    return f"{'float' if weight.is_floating_point() else 'integer'} {tuple(weight.shape)}"


def average_checkpoints(
    paths: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]
) -> None:
    """Write a checkpoint with the mean of the weights of ``paths``.

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
    """The last ``count`` checkpoints of a folder, oldest first.

    These are the ones of whole epochs (``checkpoint3.pt``) or, in a folder without any, those
    of ``--save-interval-updates`` (``checkpoint_3_1000.pt``).
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
