"""The mean of the weights of several checkpoints of one training."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from collab_common.errors import UserError
from collab_common.files import sha256
from collab_lab.trained.configuration import known_defaults
from fairseq_compat import checkpoints, fairseq_fixes

EPOCH_FILE = re.compile(r"checkpoint(\d+)\.pt")
UPDATE_FILE = re.compile(r"checkpoint_\d+_(\d+)\.pt")
EMBEDDING = re.compile(r"\b(embed_tokens|output_projection)\.weight$")
_ONE_TRAINING = "average one training only"


class Mean:
    """A running sum of models in double precision: one sum and one model are in memory."""

    def __init__(self, first: dict[str, Tensor]) -> None:
        self.paths: list[str] = []
        #: Names, shapes and types of the first model, without values.
        self.like = {name: value.to("meta") for name, value in first.items()}
        names = checkpoints.first_names(first)
        #: The name under which each floating-point weight is summed: one name of tied weights.
        self.tied = {name: names[name] for name in first if first[name].is_floating_point()}
        self.shared = shared_embeddings(first)
        self.sums: dict[str, Tensor] = {}
        self.integers: dict[str, Tensor] = {}  # signatures, which have no mean

    def add(self, model: dict[str, Tensor], path: str) -> None:
        """Add a checkpoint's weights; raises UserError if they do not match or are not finite."""
        self.paths.append(path)
        self._compare(model, path)
        for name, value in model.items():
            if not value.is_floating_point():
                known = self.integers.setdefault(name, value)
                if not torch.equal(known, value):
                    problem = f"{name} is {value.tolist()}, but {known.tolist()} in {self.paths[0]}"
                    raise UserError(problem, path, "models of different kinds have no mean")
            elif self.tied[name] == name:
                if name.endswith(fairseq_fixes.UNDEFINED):
                    value = torch.zeros_like(value)  # nothing reads it
                if not torch.isfinite(value).all():
                    raise UserError(f"{name} holds NaN or infinity", path, "leave this file out")
                self.sums[name] = self.sums.get(name, 0) + value.double()

    def _compare(self, model: dict[str, Tensor], path: str) -> None:
        for name in sorted({*self.like, *model}):
            kind, expected = _kind(model.get(name)), _kind(self.like.get(name))
            if kind != expected:
                problem = f"{name} is {kind}, but {expected} in {self.paths[0]}"
                raise UserError(problem, path, _ONE_TRAINING)
        if different := sorted(self.shared ^ shared_embeddings(model)):
            name, tied_name = different[0]
            kind, expected = ("two", "one") if different[0] in self.shared else ("one", "two")
            problem = f"{name} and {tied_name} are {kind} here, but {expected} in {self.paths[0]}"
            raise UserError(problem, path, "models that share different embeddings have no mean")

    def result(self) -> dict[str, Tensor]:
        """The mean, with the names and tied weights of the first model."""
        means = {}
        for name, total in self.sums.items():
            # Half precision would lose the mean; fairseq saves it as float32, too.
            dtype = torch.promote_types(self.like[name].dtype, torch.float32)
            means[name] = (total / len(self.paths)).to(dtype)
        return {
            name: means[self.tied[name]] if name in self.tied else self.integers[name]
            for name in self.like
        }


def shared_embeddings(model: dict[str, Tensor]) -> set[tuple[str, str]]:
    """Pairs of names of equal embeddings: a checkpoint may keep shared ones as copies."""
    names = sorted(filter(EMBEDDING.search, model))
    return {pair for pair in combinations(names, 2) if torch.equal(*(model[n] for n in pair))}


def _kind(weight: Tensor | None) -> str:
    if weight is None:
        return "missing"
    return f"{'float' if weight.is_floating_point() else 'integer'} {tuple(weight.shape)}"


def average_checkpoints(
    paths: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]
) -> None:
    """Write a checkpoint with the mean of the weights of ``paths``.

    Everything else (configuration, task state, ...) is that of the input with most updates,
    without the state of the optimizer.

    Raises:
        UserError: an input cannot be read, does not match the others or is not finite, or
            the result cannot be written.
    """
    first, *others = [os.fspath(path) for path in paths]
    newest = checkpoints.read(first)
    function = function_options(newest)
    model = newest.pop("model")
    mean = Mean(model)
    mean.add(model, first)
    known = {sha256(Path(first)): first}
    for path in others:
        state, content = checkpoints.read(path), sha256(Path(path))
        if content in known:  # checkpoint_last.pt is that of an epoch, too
            raise UserError(f"is the same as {known[content]}", path, "give each checkpoint once")
        known[content] = path
        for name, value in function_options(state).items():
            if value != function.get(name, value):
                problem = f"{name} is {value}, but {function[name]} in {first}"
                raise UserError(problem, path, _ONE_TRAINING)
        model = state.pop("model")
        mean.add(model, path)
        newest = max(newest, state, key=_updates)
    checkpoints.save(checkpoints.without_training(newest) | {"model": mean.result()}, out)


def function_options(state: Mapping[str, Any]) -> dict[str, str]:
    """The options of a checkpoint's model that change its function, where they are known."""
    options = (state.get("cfg") or {}).get("model") or state.get("args") or {}
    values: Mapping[str, Any] = options if isinstance(options, Mapping) else vars(options)
    known = known_defaults(str(values.get("_name") or values.get("arch")))
    return {
        name: str(values.get(name, default))
        for name, default in known.items()
        if not re.search("dropout|layerdrop", name)  # those of the training alone
    }


def _updates(state: dict[str, Any]) -> int:
    history = state.get("optimizer_history") or [{}]
    return history[-1].get("num_updates", 0)


def last_checkpoints(count: int, folder: str | os.PathLike[str]) -> list[str]:
    """The last ``count`` checkpoints of a folder, oldest first.

    These are checkpoints of epochs (``checkpoint3.pt``), or in a folder without any those of
    ``--save-interval-updates`` (``checkpoint_3_1000.pt``).
    """
    if not os.path.isdir(folder):
        raise UserError("folder not found", folder, "give the --save-dir of the training")
    files = os.listdir(folder)
    matches = [match for file in files if (match := EPOCH_FILE.fullmatch(file))]
    matches = matches or [match for file in files if (match := UPDATE_FILE.fullmatch(file))]
    names = [name for _, name in sorted((int(match[1]), match[0]) for match in matches)]
    if len(names) < count:
        problem = f"holds {len(names)} checkpoints of epochs or updates, not {count}"
        todo = "give a smaller --last, or train with --keep-last-epochs or more"
        raise UserError(problem, folder, todo)
    return [os.path.join(folder, name) for name in names[-count:]]
