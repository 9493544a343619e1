"""Loads checkpoints as data: nothing in a file is run, and a bad one is named in one line.

torch.load(weights_only=True) refuses every global that is not allowed. Here exactly that is
allowed which fairseq's checkpoints hold.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pickle
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from collab_common import errors
from collab_common.errors import UserError

from .one_line import program

ZIP, LEGACY = b"PK\x03\x04", b"\x80\x02\x8a\x0a"  # how the files of torch.save begin


class Number:
    """Stands in for numpy.dtype while a checkpoint is read: plain numbers and nothing else.

    The real one would let a file describe an array of Python objects and then fill it with
    bytes, that is, with addresses of its own choice.
    """

    CODES = {f"{kind}{size}" for kind in "iuf" for size in (2, 4, 8)} | {"b1", "i1", "u1"}

    def __init__(self, code: str, align: bool = False, copy: bool = True) -> None:
        if code not in self.CODES:
            raise pickle.UnpicklingError(f"a number of type {code!r}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, order, *rest = state
        if order not in ("<", ">", "|", "=") or rest[:3] != [None, None, None]:
            raise pickle.UnpicklingError(f"a number of type {state!r}")
        self.dtype = self.dtype.newbyteorder(order)


def scalar(number: Number, data: bytes) -> np.generic:
    """Stands in for numpy's function of that name: makes a number out of its bytes."""
    if not isinstance(number, Number):
        raise pickle.UnpicklingError(f"a number of type {number!r}")
    return np.frombuffer(data, number.dtype, count=1)[0]


class Meter:
    """Stands in for the meters that fairseq up to 0.9 kept in its checkpoints; never used."""


# All that a fairseq checkpoint holds beyond tensors, containers and plain values. numpy 2
# and numpy 1 write different names.
ALLOWED: list[Any] = [
    argparse.Namespace,
    (Number, "numpy.dtype"),
    (scalar, "numpy._core.multiarray.scalar"),
    (scalar, "numpy.core.multiarray.scalar"),
    *((Meter, f"fairseq.meters.{name}Meter") for name in ("Average", "Time", "Stopwatch")),
]
#: What fairseq needs of a checkpoint, under today's name or an older one.
PARTS = [("model",), ("cfg", "args"), ("optimizer_history", "best_loss"), ("extra_state", "epoch")]


def read(
    source: str | os.PathLike[str] | BinaryIO, map_location: Any = "cpu", **ignored: Any
) -> dict[str, Any]:
    """Loads a fairseq checkpoint as data; nothing in it is run.

    Raises UserError if it is missing, damaged, no fairseq checkpoint, or holds more than data.
    """
    if isinstance(source, str | os.PathLike):
        path = os.fspath(source)
        require_file(path)
        with open(path, "rb") as file:
            return read(file, map_location)
    path = os.fspath(source.name)
    problem = damage(path)
    if problem is not None:
        raise UserError(problem, path, instead_of(path))
    mapped = _can_be_mapped(path)
    try:
        with _only_allowed():
            content = path if mapped else source
            state = torch.load(content, map_location, weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        raise UserError(_refusal(error), path, "none of it was run") from error
    except (OSError, MemoryError):  # says nothing about what the file holds
        raise
    except Exception as error:  # a file that somebody has tampered with can raise anything
        problem = f"cannot be read ({errors.first_line(error)})"
        raise UserError(problem, path, instead_of(path)) from error
    if isinstance(state, dict) and isinstance(state.get("extra_state"), dict):
        state["extra_state"].pop("train_meters", None)  # of fairseq 0.9; a copy would be refused
    missing = _missing_parts(state)
    if missing:
        problem = f"is no fairseq checkpoint: it has no {', no '.join(missing)}"
        raise UserError(problem, path, "give a file that fairseq-train has written")
    return state


def _can_be_mapped(path: str) -> bool:
    """Whether tensors lie in the file as they are in memory.

    Only what is looked at is then read: the state of an optimizer, two thirds of the file, is not.
    """
    with open(path, "rb") as file:
        if file.read(4) != ZIP:  # whatever is_zipfile finds at its end
            return False
    with zipfile.ZipFile(path) as archive:
        return all(part.compress_type == zipfile.ZIP_STORED for part in archive.infolist())


@contextlib.contextmanager
def _only_allowed() -> Iterator[None]:
    """Allows exactly `ALLOWED`, whatever else has been allowed for other files."""
    others = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals(ALLOWED)
    try:
        yield
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(others)


def _refusal(error: pickle.UnpicklingError) -> str:
    """Picks what was refused out of torch's message of many lines."""
    found = re.search(r"GLOBAL ([\w.]+)|(a number of type \S+)", str(error))
    what = "something else" if found is None else found.group(1) or found.group(2)
    return f"refused: a checkpoint may hold only data, but this one asks for {what}"


def _missing_parts(state: Any) -> list[str]:
    """Names the parts that fairseq needs and the loaded object lacks."""
    if not isinstance(state, dict):
        return ["'model'"]
    return [
        " or ".join(map(repr, names))
        for names in PARTS
        if all(state.get(name) is None for name in names)
    ]


def damage(path: str) -> str | None:
    """Says what is wrong with the outside of a checkpoint file; None when it looks whole."""
    size = os.path.getsize(path)
    if size == 0:
        return "is empty"
    with open(path, "rb") as file:
        start = file.read(4)
    if start == LEGACY:  # torch < 1.6; such files do not tell their length
        return None
    if start != ZIP:
        return "is no checkpoint, nor any file of torch"
    try:
        with zipfile.ZipFile(path):
            return None
    except zipfile.BadZipFile:
        return f"is truncated: its end is missing after {size:,} bytes"


def require_file(path: str) -> None:
    if os.path.isdir(path):
        raise UserError("is a folder, not a checkpoint", path, instead_of(path))
    if not os.path.exists(path):
        raise UserError("there is no such checkpoint", path, instead_of(path))


def instead_of(path: str) -> str:
    """Names the newest checkpoint that can be used instead."""
    inside = os.path.isdir(path) and not path.endswith(".pt")  # a folder checkpoint_last.pt is none
    newest = newest_intact(path if inside else os.path.dirname(path), without=path)
    if newest is None:
        return "there is no intact checkpoint beside it"
    if program() == "fairseq-train":
        return f"resume from {newest} with --restore-file {newest}"
    return f"the newest intact checkpoint there is {newest}"


def newest_intact(folder: str, without: str = "") -> str | None:
    """Returns the newest undamaged `*.pt` of a folder; of copies, the first in the alphabet."""
    paths = [path for path in sorted(Path(folder).glob("*.pt")) if path.is_file()]
    newest_first = sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)
    found = (os.path.join(folder, path.name) for path in newest_first)
    return next((path for path in found if path != without and damage(path) is None), None)
