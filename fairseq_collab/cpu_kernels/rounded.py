"""Attention of a decoding step over a rounded cache by a kernel in C, ``rounded.c``.

It unpacks a few slots at a time into the processor's nearest cache and skips slots that no beam
sees.  The system's C compiler (``CC``, else ``cc``) makes a library of it when it is first needed,
in ``~/.cache/fairseq_collab`` (``XDG_CACHE_HOME``); its name has the hash of the source, of the
compiler's name and of its options.  Where that fails, and on other processors than x86-64, torch's
operators compute the same (:mod:`fairseq_collab.attention.packed`) in more time.
``FAIRSEQ_COLLAB_ROUNDED=torch`` (or ``compiled``) overrides the choice.

Threads are those of torch's operators: torch's own OpenMP library starts them.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from ctypes import POINTER, Structure, c_int64, c_uint, c_void_p
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from collab_common.errors import UserError
from collab_common.files import user_cache
from fairseq_collab.attention.cache import PackedContext, Slots
from fairseq_collab.attention.packed import Heads
from fairseq_collab.attention.rounding import group_sizes

#: The environment variable that chooses between the kernel and torch's operators, and its values.
ROUNDED_ENV = "FAIRSEQ_COLLAB_ROUNDED"
CHOICES = ("torch", "compiled")
SOURCE = Path(__file__).with_name("rounded.c")
#: No option lets the compiler assume that numbers are finite or sums are associative.
OPTIONS = [
    "-std=gnu11",
    "-O3",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wno-psabi",
    "-shared",
    "-fPIC",
]
#: Further options by ``torch.backends.cpu.get_cpu_capability()``.
PROCESSORS = {
    "AVX512": [
        "-mavx2",
        "-mfma",
        "-mf16c",
        *(f"-mavx512{part}" for part in ("f", "bw", "dq", "vl")),
    ],
    "AVX2": ["-mavx2", "-mfma", "-mf16c"],
    "DEFAULT": [],
}
#: Numbers of a cache from which threads are worthwhile, and the least slots of a thread's part.
_THREADED, _PART = 2**16, 256
logger = logging.getLogger(__name__)


class _Packed(Structure):
    _fields_ = [
        ("data", c_void_p),
        *((name, c_int64) for name in ("sentence", "slot", "heads", "size", "groups", "group")),
    ]


class _Step(Structure):
    """The structure of the same name in ``rounded.c``."""

    _fields_ = [
        ("keys", _Packed),
        ("values", _Packed),
        *((name, c_int64) for name in ("one", "bits", "sentences", "heads", "queries", "slots")),
        ("query", c_void_p),
        ("mask", c_void_p),
        *((f"mask_{name}", c_int64) for name in ("sentence", "query", "slot", "replaces")),
        ("parts", c_int64),
        *((name, c_void_p) for name in ("output", "greatest", "total", "scores")),
        ("next", c_int64),
        ("failed", c_int64),
    ]


# ---- a step --------------------------------------------------------------------------------------


def compiled_heads(q: Tensor, context: PackedContext, need_weights: bool) -> Heads | None:
    """Return the outputs of all heads and weights; None if torch's operators must compute them.

    Args:
        q: ``(B, H, T, e)``; the kernel computes only in float32.

    Raises:
        MemoryError: there is no memory for a block of numbers.
    """
    formats = {q.dtype, context.keys.dtype, context.values.dtype}
    if formats != {torch.float32} or type(q) is not Tensor or torch.compiler.is_compiling():
        return None
    attend = kernel()
    if attend is None:
        return None
    batch, heads, queries, _ = q.shape
    keys, values = context.keys, context.values
    slots = keys.filled.size(2)
    threads, parts = _shares(batch, slots, keys.filled[0].numel() * batch)
    q = q.contiguous()
    output = q.new_empty(batch, parts, heads, queries, values.size)
    greatest, total = q.new_empty(2, batch, parts, heads, queries, 1).unbind()
    step = _Step(_packed(keys), _packed(values), keys is values, keys.bits, batch, heads, queries)
    step.slots, step.parts, step.query = slots, parts, q.data_ptr()
    step.output, step.greatest, step.total = (x.data_ptr() for x in (output, greatest, total))
    mask = None
    if context.mask is not None:
        mask, step.mask_replaces = _added(context.mask, q), context.mask.dtype == torch.bool
        mask = mask.expand(batch, 1, queries, slots)
        step.mask = mask.data_ptr()
        step.mask_sentence, _, step.mask_query, step.mask_slot = mask.stride()
    scores = None
    if need_weights:
        scores = q.new_full((batch, heads, queries, slots), float("-inf"))
        step.scores = scores.data_ptr()
    attend(step, threads)
    if step.failed:
        raise MemoryError("of attention to a rounded cache")
    if parts > 1:
        shares = (greatest - greatest.amax(1, keepdim=True)).exp()
        output = (output * shares).sum(1, keepdim=True) / (total * shares).sum(1, keepdim=True)
    return output[:, 0], None if scores is None else scores.softmax(-1)


def _packed(slots: Slots) -> _Packed:
    filled = slots.filled[:, 0]  # (B, slots, bytes)
    assert filled.stride(2) == 1  # a copy would be freed before the kernel reads it
    groups = group_sizes(slots.heads * slots.size)
    return _Packed(filled.data_ptr(), *filled.stride()[:2], slots.heads, slots.size, *groups)


def _added(mask: Tensor, like: Tensor) -> Tensor:
    """Return a mask that can be added to scores."""
    if mask.dtype == torch.bool:
        return like.new_zeros(mask.shape).masked_fill_(mask, float("-inf"))
    return mask.to(like.dtype)


def _shares(batch: int, slots: int, numbers: int) -> tuple[int, int]:
    """Return the number of threads, and the number of parts of a sentence's slots.

    A sentence has several parts only if there are few sentences.
    """
    threads = torch.get_num_threads() if numbers >= _THREADED else 1
    if threads == 1:
        return 1, 1
    return threads, max(1, min(-(-4 * threads // batch), slots // _PART))


# ---- the library ---------------------------------------------------------------------------------


@functools.cache
def kernel() -> Callable[[_Step, int], None] | None:
    """Return the kernel, a function of a step and a number of threads; None for torch's operators.

    Raises:
        UserError: the environment variable has an unknown value, or asks for a kernel that cannot
            be compiled.
    """
    asked = os.environ.get(ROUNDED_ENV)
    if asked is not None and asked not in CHOICES:
        raise UserError(f"is {asked!r}", ROUNDED_ENV, f"set it to {' or '.join(CHOICES)}")
    if asked == "torch":
        return None
    try:
        return library(torch.backends.cpu.get_cpu_capability())
    except (OSError, subprocess.SubprocessError) as error:
        lines = str(getattr(error, "stderr", "") or error).strip().splitlines()
        if asked:
            todo = f"install a C compiler, or set {ROUNDED_ENV} to torch"
            raise UserError(f"cannot be compiled: {lines[0]}", SOURCE.name, todo) from error
        logger.warning(
            "attention to rounded caches is slower: %s cannot be compiled (%s)",
            SOURCE.name, lines[0],
        )  # fmt: skip
        return None


def in_use() -> str:
    """Return what computes attention to rounded caches on this machine."""
    if kernel() is None:
        return "operators of torch"
    return f"{SOURCE.name}, compiled for {torch.backends.cpu.get_cpu_capability()}"


def library(processor: str) -> Callable[[_Step, int], None]:
    """Return the kernel for one of :data:`PROCESSORS`, compiled if need be.

    Raises:
        OSError: there is no such processor, compiler or folder, or the library cannot be loaded.
        subprocess.SubprocessError: the compiler fails.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64" or processor not in PROCESSORS:
        raise OSError(f"{SOURCE.name} is for Linux on x86-64")
    attend: Any = ctypes.CDLL(str(_compiled(PROCESSORS[processor]))).attend
    attend.argtypes, attend.restype = [POINTER(_Step)], None
    address, in_parallel = ctypes.cast(attend, c_void_p), _openmp()

    def run(step: _Step, threads: int) -> None:
        if threads == 1 or in_parallel is None:
            attend(step)
        else:
            in_parallel(address, ctypes.addressof(step), threads, 0)

    return run


def _openmp() -> Any:
    """Return ``GOMP_parallel`` of the library that torch itself uses; None if torch uses none.

    It runs a function of one pointer in a number of threads.
    """
    path = Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"
    try:
        in_parallel = ctypes.CDLL(str(path)).GOMP_parallel  # looked up in what it is linked with
    except (OSError, AttributeError):
        return None
    in_parallel.argtypes, in_parallel.restype = [c_void_p, c_void_p, c_uint, c_uint], None
    return in_parallel


def _compiled(more: list[str]) -> Path:
    """Return the path of the library, compiled once for each source, compiler and options."""
    compiler = os.environ.get("CC") or "cc"
    what = [compiler, *OPTIONS, *more]
    text = "\0".join(what).encode() + SOURCE.read_bytes()
    folder = user_cache()
    path = folder / f"rounded-{hashlib.sha256(text).hexdigest()[:16]}.so"
    if not path.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as new:
            made = Path(new, path.name)
            command = [*shlex.split(compiler), *what[1:], str(SOURCE), "-o", str(made)]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
            made.replace(path)  # atomic: other processes see the whole file or none
    return path
