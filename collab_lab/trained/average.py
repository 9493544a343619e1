"""The mean of the weights of several checkpoints of one training."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq.checkpoint_utils import checkpoint_paths
from torch import Tensor

from collab_common.errors import UserError
from collab_common.files import sha256
from collab_common.progress import say
from collab_lab.trained.fine_tuning import known_defaults
from collab_lab.trained.left_out import moving_averages, say_if_left_out
from fairseq_compat import checkpoints, fairseq_fixes

EPOCH_FILE, UPDATE_FILE = r"checkpoint(\d+)\.pt", r"checkpoint_\d+_(\d+)\.pt"
LAST_FILE = r"checkpoint_last\.pt"
#: Options of all architectures that tie weights: a checkpoint that was written on a GPU stores
#: tied embeddings as copies.
_TYING = ("share_all_embeddings", "share_decoder_input_output_embed")
_ONE_TRAINING = "average one training only"
#: Weights with a smaller mean cosine come from different trainings, whose mean cosine is 0.
RELATED = 0.2


def average_checkpoints(
    paths: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str], *, ema: bool = False
) -> None:
    """Average the weights of the checkpoints ``paths`` and write the result to ``out``.

    The configuration and the task state come from the checkpoint with the most updates; the
    optimizer state is dropped.  Weights that are tied in the first checkpoint stay tied.  Sums are
    in double precision, and only one sum and one model are in memory.  A line on standard error
    warns if the checkpoints seem to come from different trainings, or if their moving averages
    were not used.

    Args:
        ema: average the moving averages of the weights (``--store-ema``) instead of the weights.

    Raises:
        UserError: a checkpoint cannot be read, does not match the others, or holds NaN; or
            the result cannot be written.
    """
    if not paths:
        raise UserError("names no checkpoint", "`paths`", "give one at least")
    first, *others = [os.fspath(path) for path in paths]
    newest, known = _read(first, ema), {sha256(Path(first)): first}
    is_said = not ema and say_if_left_out(newest, first)
    function, model = function_options(newest), newest.pop("model")
    names, kinds = checkpoints.first_names(model), {n: _kind(w) for n, w in model.items()}
    sums = {n: w.double() for n, w in _summed(model, names, first).items()}
    lengths = [_square(sums)]
    # Half precision would lose the mean; fairseq saves it as float32, too.
    dtypes = {name: torch.promote_types(model[name].dtype, torch.float32) for name in sums}
    integers = {n: w for n, w in model.items() if not w.is_floating_point()}  # without a mean
    for path in others:
        state, content = _read(path, ema), sha256(Path(path))
        if content in known:  # checkpoint_last.pt is that of an epoch, too
            raise UserError(f"is the same as {known[content]}", path, "give each checkpoint once")
        known[content] = path
        is_said = is_said or (not ema and say_if_left_out(state, path))
        model, options = state.pop("model"), function_options(state)
        found = {name: _kind(weight) for name, weight in model.items()}
        for expected, actual in ((function, options), (kinds, found)):
            for name in sorted({*expected, *actual}):
                value, wanted = (part.get(name, "missing") for part in (actual, expected))
                if value != wanted:
                    problem = f"{name} is {value}, but {wanted} in {first}"
                    raise UserError(problem, path, _ONE_TRAINING)
        check_tied(model, names, path, first)
        weights = _summed(model, names, path)
        lengths.append(_square(weights))
        for name, weight in weights.items():
            sums[name] += weight  # in double precision
        newest = max(newest, state, key=_updates)
    # |sum|^2 is the sum of the |w|^2, and of all products of two: n - 1 of each.
    common = (_square(sums) / sum(lengths) - 1) / (len(paths) - 1) if others else 1.0
    if common < RELATED:
        say(f"warning: the weights have a mean cosine of {common:.2f}: are they of one training?")
    means = {name: (total / len(paths)).to(dtypes[name]) for name, total in sums.items()}
    mean = {name: integers[name] if name in integers else means[names[name]] for name in kinds}
    checkpoints.save(checkpoints.without_training(newest) | {"model": mean}, out)


def _read(path: str, ema: bool) -> dict[str, Any]:
    """A checkpoint, with its moving averages as its weights if they are asked for."""
    state = checkpoints.read(path)
    if ema:
        averages = moving_averages(state)
        if averages is None:
            todo = "leave --ema out, or train with --store-ema"
            raise UserError("the checkpoint has no moving averages of its weights", path, todo)
        if missing := sorted({*state["model"]} - {*averages}):
            problem = f"its moving averages lack {missing[0]} ({len(missing)} weights in all)"
            raise UserError(problem, path, "leave --ema out")
        return {**state, "model": dict(averages)}
    return state


def _summed(model: Mapping[str, Tensor], names: Mapping[str, str], path: str) -> dict[str, Tensor]:
    """The weights to be averaged: one of each group of tied weights.

    Raises:
        UserError: a weight is not finite.
    """
    result = {}
    for name, weight in model.items():
        if weight.is_floating_point() and names[name] == name:
            if name.endswith(fairseq_fixes.UNDEFINED):
                weight = torch.zeros_like(weight)  # nothing reads it
            if not torch.isfinite(weight).all():
                raise UserError(f"{name} holds NaN or infinity", path, "leave this file out")
            result[name] = weight
    return result


def check_tied(
    model: Mapping[str, Tensor], names: Mapping[str, str], path: str, first: str
) -> None:
    """Raise UserError if weights that are tied in the first checkpoint differ in this one.

    Only one of them is averaged, so that the others would be lost.
    """
    for name, one in names.items():
        differ = name != one and not torch.equal(model[name], model[one])
        if differ and not name.endswith(fairseq_fixes.UNDEFINED):
            problem = f"{name} differs from {one}, and in {first} they are one weight"
            raise UserError(problem, path, "give this file first")


def _square(weights: Mapping[str, Tensor]) -> float:
    """The sum of squares of all matrices.

    Vectors do not count, because those of layer norms are near 1 in every training.
    """
    matrices = (weight for weight in weights.values() if weight.dim() > 1)
    return sum(float(weight.double().square().sum()) for weight in matrices) or 1.0


def _kind(weight: Tensor) -> str:
    """The properties of a weight that all checkpoints share: its shape; if integer, its values."""
    if weight.is_floating_point():
        return f"float {tuple(weight.shape)}"
    return f"integer {weight.tolist()}"


def function_options(state: Mapping[str, Any]) -> dict[str, str]:
    """The model options of a checkpoint that change what the model computes, if they are known."""
    options = (state.get("cfg") or {}).get("model") or state.get("args") or {}
    values: Mapping[str, Any] = options if isinstance(options, Mapping) else vars(options)
    known = known_defaults(str(values.get("_name") or values.get("arch")))
    return {
        name: str(values.get(name, default))
        for name, default in {**dict.fromkeys(_TYING, False), **known}.items()
        if not re.search("dropout|layerdrop", name)  # those of the training alone
    }


def _updates(state: dict[str, Any]) -> int:
    history = state.get("optimizer_history") or [{}]
    return history[-1].get("num_updates", 0)


def last_checkpoints(count: int, folder: str | os.PathLike[str]) -> list[str]:
    """The last ``count`` checkpoints of a folder by number of updates, oldest first.

    Raises:
        UserError: the folder does not exist, or holds fewer checkpoints: see
            :func:`checkpoints_of`.
    """
    paths = checkpoints_of(folder)
    if len(paths) < count:
        problem = f"has {len(paths)} checkpoints of epochs or updates, fewer than --last {count}"
        todo = "give a smaller --last, or train with --keep-last-epochs or more"
        raise UserError(problem, folder, todo)
    return paths[-count:]


def checkpoints_of(folder: str | os.PathLike[str]) -> list[str]:
    """The checkpoints of a folder that can be averaged, sorted by number of updates, oldest first.

    These are checkpoints of epochs (``checkpoint3.pt``), or in a folder without any those of
    ``--save-interval-updates`` (``checkpoint_3_1000.pt``); and where the training went on after
    the last of them, its newest weights (``checkpoint_4_1500.pt``, ``checkpoint_last.pt``).  A line
    on standard error says where one has more updates than ``checkpoint_last.pt``: a training that
    starts again in a folder leaves those of longer ones.
    """
    if not os.path.isdir(folder):
        raise UserError("folder not found", folder, "give the --save-dir of the training")
    folder = os.fspath(folder)
    epochs, updates, last = (
        checkpoint_paths(folder, name) for name in (EPOCH_FILE, UPDATE_FILE, LAST_FILE)
    )
    # A name does not have it: epochs count from 1 again with --reset-dataloader.
    number = {path: _updates(checkpoints.read(path)) for path in (*epochs, *updates, *last)}
    paths = sorted(epochs or updates, key=number.__getitem__)
    if last and (later := [path for path in paths if number[path] > number[last[0]]]):
        say(
            f"warning: {later[0]} has {number[later[0]]} updates, more than {last[0]} with "
            f"{number[last[0]]}: is it of an earlier training?"
        )
    newest = max([*updates, *last], key=number.__getitem__, default=None)
    if newest and not (paths and number[newest] <= number[paths[-1]]):
        paths.append(newest)
    return paths
