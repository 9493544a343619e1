"""Loads checkpoints as data: nothing in a file is run, and one line names a bad file.

``torch.load(weights_only=True)`` rejects every global that is not allowed.  Allowed here is what
fairseq's checkpoints hold, nothing else.  fairseq also passes settings to ``eval``, for example
``"(0.9, 0.98)"`` or ``"[(512, 3)] * 20"``, and some come out of checkpoints
(``adaptive_softmax_cutoff``, ``encoder_layers``, ...): :func:`evaluate` accepts only literals and
``+ - * /``.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import operator
import os
import pickle
import re
import threading
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import numpy as np
import torch

from collab_common import errors
from collab_common.errors import UserError

ZIP, LEGACY = b"PK\x03\x04", b"\x80\x02\x8a\x0a"  # how the files of torch.save begin
TODO = "give another checkpoint"
LONGEST = 10_000  # elements or characters of a product in a setting, which could fill the memory


_READING = threading.RLock()


class NumberType:
    """Stands in for numpy.dtype while a checkpoint is read, and allows only plain numbers.

    numpy's own would let a file describe an array of Python objects and then fill it with bytes,
    that is, with addresses that the file chooses.
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


def scalar(number: NumberType, data: bytes) -> np.generic:
    """Stand in for numpy's ``scalar`` while a checkpoint is read: make a number from its bytes."""
    if not isinstance(number, NumberType):
        raise pickle.UnpicklingError(f"a number of type {number!r}")
    return np.frombuffer(data, number.dtype, count=1)[0]


class PlainArray(np.ndarray):
    """Stands in for numpy.ndarray while a checkpoint is read, and allows only plain numbers.

    It is saved as numpy's own.
    """

    __slots__ = ()

    def __new__(cls) -> PlainArray:
        return super().__new__(cls, 0)  # numpy's own takes a type, and memory of any size

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        version, shape, number, in_columns, data = state
        if not isinstance(number, NumberType) or not isinstance(data, bytes):
            raise pickle.UnpicklingError(f"a number of type {number!r}")
        super().__setstate__((version, shape, number.dtype, in_columns, data))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return np.asarray(self).__reduce_ex__(protocol)


def reconstruct(*ignored: object) -> PlainArray:
    """Stand in for numpy's ``_reconstruct`` while a checkpoint is read: an array to fill later."""
    return PlainArray()


class Inert:
    """Stands in for a class of omegaconf, or for the name of a type, while a checkpoint is read.

    Nothing is called.  Checkpoints of late 2020 hold their options as omegaconf's objects:
    :func:`plain_options` takes the values out of them.
    """

    def __new__(cls, *ignored: object) -> Inert:
        return super().__new__(cls)


#: Classes that omegaconf 2.0 to 2.3 pickles for options without types of their own.
OMEGACONF = (
    "omegaconf.dictconfig.DictConfig", "omegaconf.listconfig.ListConfig",
    "omegaconf.base.ContainerMetadata", "omegaconf.base.Metadata", "omegaconf.nodes.AnyNode",
    "omegaconf.nodes.StringNode", "omegaconf.nodes.IntegerNode", "omegaconf.nodes.FloatNode",
    "omegaconf.nodes.BooleanNode", "collections.defaultdict", "typing.Any", "builtins.dict",
    "builtins.list", "builtins.int", "builtins.str", "builtins.float", "builtins.bool",
)  # fmt: skip


def plain_options(options: Any) -> Any:
    """Return options with omegaconf's objects replaced by their values.

    Raises:
        UnpicklingError: a value is not a text, number, list, dictionary or namespace.
    """
    if isinstance(options, Inert):
        parts = vars(options)
        if "_content" not in parts and "_val" not in parts:
            raise pickle.UnpicklingError("options without a value")
        return plain_options(parts["_content"] if "_content" in parts else parts["_val"])
    if isinstance(options, argparse.Namespace):
        return argparse.Namespace(**plain_options(vars(options)))
    if isinstance(options, dict):
        return {key: plain_options(value) for key, value in options.items()}
    if isinstance(options, list | tuple):
        return type(options)(map(plain_options, options))
    if options is None or isinstance(options, str | bool | int | float):
        return options
    raise pickle.UnpicklingError(f"options with a {type(options).__name__}")


def _check_values(part: Any) -> None:
    """Raise UnpicklingError for an object of omegaconf, or a type, that options never contain."""
    if isinstance(part, Inert) or part is Inert:
        raise pickle.UnpicklingError("options within something else")
    if isinstance(part, argparse.Namespace):
        part = vars(part)
    if isinstance(part, dict):
        part = [*part.keys(), *part.values()]
    if isinstance(part, list | tuple):
        for value in part:
            _check_values(value)


def allowed() -> list[Any]:
    """List what a fairseq checkpoint holds beyond tensors, containers and plain values."""
    from fairseq.data import Dictionary  # only now: its import applies this package's fixes
    from fairseq.logging import meters

    classes = [argparse.Namespace, (NumberType, "numpy.dtype"), (PlainArray, "numpy.ndarray")]
    for core in ("_core", "core"):  # of numpy 2, and of numpy 1
        classes.append((scalar, f"numpy.{core}.multiarray.scalar"))
        classes.append((reconstruct, f"numpy.{core}.multiarray._reconstruct"))
    for meter in (meters.AverageMeter, meters.TimeMeter, meters.StopwatchMeter):
        classes += [meter, (meter, f"fairseq.meters.{meter.__name__}")]  # up to fairseq 0.8
    classes += [(Inert, name) for name in OMEGACONF]
    return [*classes, Dictionary]  # in the state of tasks of speech


#: The parts of a checkpoint that fairseq needs, each under today's name or an older one.
PARTS = [("model",), ("cfg", "args"), ("optimizer_history", "best_loss"), ("extra_state", "epoch")]


def read(
    source: str | os.PathLike[str] | BinaryIO, map_location: Any = "cpu", **ignored: Any
) -> dict[str, Any]:
    """Load a fairseq checkpoint as data.

    Raises:
        UserError: the file is missing or damaged, is not a fairseq checkpoint, or holds more than
            data.
    """
    path = os.fspath(source if isinstance(source, str | os.PathLike) else source.name)
    if not os.path.isfile(path):
        fault = "is a folder, not a checkpoint" if os.path.isdir(path) else "checkpoint not found"
        raise UserError(fault, path, TODO)
    if problem := damage(path):
        raise UserError(problem, path, TODO)
    try:
        with _only_allowed():
            state = torch.load(path, map_location, weights_only=True, mmap=_can_be_mapped(path))
        if isinstance(state, dict):
            if isinstance(state.get("cfg"), Inert):
                state["cfg"] = plain_options(state["cfg"])
            _check_values(state)
    except pickle.UnpicklingError as error:
        raise UserError(_rejection(error), path, "none of it was run") from error
    except (OSError, MemoryError):  # the machine's fault, not the file's
        raise
    except Exception as error:  # a file that somebody has tampered with can raise anything
        raise UserError(f"cannot be read ({errors.first_line(error)})", path, TODO) from error
    if missing := _missing_parts(state):
        problem = f"is not a fairseq checkpoint: it has no {', no '.join(missing)}"
        raise UserError(problem, path, "give a file that fairseq-train has written")
    if absent := _missing_options(state):
        problem = f"its options (cfg) have no {' and no '.join(absent)}: fairseq cannot build it"
        raise UserError(problem, path, TODO)
    return state


def _can_be_mapped(path: str) -> bool:
    """Return whether tensors lie in the file as they lie in memory.

    If they do, unused parts are not read, for example the optimiser's state, two thirds of the
    file.
    """
    with open(path, "rb") as file:
        if file.read(4) != ZIP:
            return False
    with zipfile.ZipFile(path) as archive:
        return all(member.compress_type == zipfile.ZIP_STORED for member in archive.infolist())


@contextlib.contextmanager
def _only_allowed() -> Iterator[None]:
    """Let torch load exactly what :func:`allowed` lists, even if others have allowed more.

    torch has one list for the whole process, so only one thread reads at a time.
    """
    with _READING:
        other_globals = torch.serialization.get_safe_globals()
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(allowed())
        try:
            yield
        finally:
            torch.serialization.clear_safe_globals()
            torch.serialization.add_safe_globals(other_globals)


def _rejection(error: pickle.UnpicklingError) -> str:
    """Find what was rejected in torch's message of many lines."""
    match = re.search(r"GLOBAL ([\w.]+)|(a number of type \S+|options with.+)", str(error))
    requested = "something else" if match is None else match.group(1) or match.group(2)
    return f"rejected: a checkpoint may hold only data, but this one asks for {requested}"


def _missing_parts(state: Any) -> list[str]:
    """Name the parts that fairseq needs and the loaded object lacks."""
    if not isinstance(state, dict):
        return ["'model'"]
    return [
        " or ".join(map(repr, names))
        for names in PARTS
        if all(state.get(name) is None for name in names)
    ]


def _missing_options(state: dict[str, Any]) -> list[str]:
    """Name the sections of options that fairseq needs and that are empty."""
    cfg = state.get("cfg")
    if not cfg or not isinstance(cfg, dict):
        return []
    return [section for section in ("model", "task") if cfg.get(section, section) is None]


def damage(path: str) -> str | None:
    """Return what is damaged in a checkpoint file, as far as shows without loading it; or None."""
    with open(path, "rb") as file:
        start = file.read(4)
    if start == LEGACY:  # torch < 1.6; those files do not hold their length
        return None
    if start != ZIP:
        return "is not a file of torch.save" if start else "is empty"
    try:
        with zipfile.ZipFile(path):
            return None
    except zipfile.BadZipFile:
        return f"is truncated: its end is missing after {os.path.getsize(path):,} bytes"


# ---- settings ------------------------------------------------------------------------------------


class NotPlain(UserError, ValueError):
    """A setting that is no plain value: argparse turns a ValueError into a line with the option."""


class WrongType(NotPlain, TypeError):
    """A setting that is not text or is missing: for these, fairseq expects a TypeError."""


#: The operators that settings may have; others, for example ``**``, could take all memory.
OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def evaluate(text: Any) -> Any:
    """Return the value of an expression of literals and ``+ - * /``, as Python's ``eval`` does.

    Raises:
        NotPlain: the text is something else.
        WrongType: it is not text, for which ``eval`` raises TypeError.
    """
    try:
        if not isinstance(text, str):
            raise TypeError("eval() takes text")
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (
        SyntaxError,
        TypeError,
        ValueError,
        ArithmeticError,
        RecursionError,
        MemoryError,
    ) as error:
        kind = WrongType if isinstance(error, TypeError) else NotPlain
        raise kind(f"{text!r} is not a plain value, for example 0.9 or (0.9, 0.98)") from error


def _value(node: Any) -> Any:
    if isinstance(node, ast.List | ast.Tuple):
        return (list if isinstance(node, ast.List) else tuple)(map(_value, node.elts))
    if isinstance(node, ast.Dict):
        return dict(zip(map(_value, node.keys), map(_value, node.values), strict=True))
    if not isinstance(node, ast.BinOp):
        return ast.literal_eval(node)
    if type(node.op) not in OPERATORS:
        raise ValueError("an operator")
    left, right = _value(node.left), _value(node.right)
    if isinstance(node.op, ast.Mult):
        lengths = [len(side) if hasattr(side, "__len__") else side for side in (left, right)]
        has_length = hasattr(left, "__len__") or hasattr(right, "__len__")
        if has_length and operator.mul(*lengths) > LONGEST:
            raise ValueError("too long")
    return OPERATORS[type(node.op)](left, right)
