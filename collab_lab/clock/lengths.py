"""Decoding by length: how seconds per token and memory grow with the translations.

Models have random weights, as in :mod:`.bench`, and every translation is forced to a length.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import resource
import sys
import tempfile
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import count, product
from typing import Any, NamedTuple, TypeVar

import torch
from fairseq import utils
from fairseq.models import MODEL_REGISTRY
from torch import Tensor

from collab_common.errors import UserError, did_you_mean
from collab_lab.clock.bench import PRESETS, batches, random_model, random_task, translator
from collab_lab.clock.turns import Record, clock
from collab_lab.export.plain import plain
from fairseq_collab.attention.cache import Cache, beam_history, has_beam_history
from fairseq_collab.decoding.fixed_steps import BUFFERS, FIXED_STEPS_ENV
from fairseq_collab.models.families import TRANSLATION

T = TypeVar("T")
STOCK = "stock fairseq"
#: Kinds that every model is timed next to.
STANDARD = (STOCK, "standard heads")
BEAMS, SENTENCES = (1, 5), 64


class Case(NamedTuple):
    """What is decoded.

    Attributes:
        preset: sizes of the models, of :data:`.bench.PRESETS`.
        lengths: of the translations, in tokens, ascending.
        device: where.
        dtype: the type of all numbers.
        fixed_steps: whether models of this project take steps of fixed shapes
            (:mod:`fairseq_collab.decoding.fixed_steps`).
    """

    preset: str
    lengths: Sequence[int]
    device: torch.device
    dtype: torch.dtype = torch.float32
    fixed_steps: bool = False


def kinds(d: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """The architecture and the options of each kind of heads, for models of size ``d``."""
    latent = {"latent_dim": d // 2, "latent_dim_in_encoder": d}
    own = {"key_dim": d // 4, "query_mixing": "own"}
    return {
        STOCK: ("transformer_headsize_n", {}),
        "standard heads": ("transformer_headsize_n", {}),
        "standard heads, 4 bits": ("transformer_headsize_n", {"cache_bits": "4"}),
        "shared key d/4, own queries": ("transformer_collab", own),
        "latent, a quarter": ("transformer_latent", latent),
        "latent, a quarter, 4 bits": ("transformer_latent", latent | {"cache_bits": "4"}),
        "latent, an eighth": ("transformer_latent", latent | {"latent_dim": d // 4}),
        "latents, one for all cross-attentions": (
            "transformer_latent",
            latent | {"latent_dim": d, "shared_latent_in_cross": d},
        ),
        "grouped query, 2 heads": ("transformer_grouped_query", {"key_value_heads": 2}),
        "multi-query": ("transformer_grouped_query", {"key_value_heads": 1}),
    }


def chosen(only: Sequence[str], arch: str | None) -> list[str]:
    """The kinds of heads to time, stock fairseq first; UserError for one that is not known."""
    known = [*kinds(512)]
    if arch is not None:
        check_arch(arch)
        only = only or STANDARD
    for name in only:
        if name not in known:
            todo = did_you_mean(name, known) or f"give some of {'; '.join(known)}"
            raise UserError("is not a kind of heads", f"--only {name!r}", todo)
    names = [name for name in known if name in {STOCK, *(only or known)}]
    return names if arch is None else [*names, arch]


def check_arch(arch: str) -> None:
    """Raise UserError unless this is a registered architecture of translation models with heads."""
    known = [name for name, kind in MODEL_REGISTRY.items() if issubclass(kind, TRANSLATION.model)]
    if arch not in known:
        todo = did_you_mean(arch, known) or "give --user-dir with the plug-in that defines it"
        raise UserError("must be a translation model of this project", f"--arch {arch}", todo)


def time_lengths(
    case: Case,
    beams: Sequence[int] = BEAMS,
    only: Sequence[str] = (),
    arch: str | None = None,
    user_dir: str | None = None,
) -> Iterator[Record]:
    """Time decoding: one record per beam, kind of heads and length, stock fairseq first.

    Each model decodes in a new process, so that its peak memory is its own.

    Args:
        only: kinds to time, of :func:`kinds`, next to stock fairseq; default: all.
        arch: a registered architecture that is also timed; by default next to standard heads only.
        user_dir: folder of the plug-in that registers it.
    """
    names = chosen(only, arch)
    for beam, kind in product(beams, names):
        on_gpu = case.device.type == "cuda"
        yield from in_new_process(decode, kind, case, beam, user_dir=user_dir, on_gpu=on_gpu)


def in_new_process(
    function: Callable[..., T], *arguments: Any, user_dir: str | None = None, on_gpu: bool = False
) -> T:
    """What a function returns in a process of its own, whose peak of memory is not another's.

    On a CPU, the first call starts a server of these processes, whose peak counts in theirs.

    Args:
        user_dir: folder of a plug-in that the process imports.
        on_gpu: start the process anew: a fork may find CUDA in use.

    Raises:
        UserError: the process was killed.
    """
    context: Any = multiprocessing.get_context("spawn" if on_gpu else "forkserver")
    if not on_gpu:
        context.set_forkserver_preload([__name__])  # imported once
    setup = torch.get_num_threads(), user_dir
    try:
        with ProcessPoolExecutor(1, context, prepare, setup) as pool:
            return pool.submit(function, *arguments).result()
    except BrokenProcessPool:
        todo = "the system may have had too little memory: free some, or measure less"
        raise UserError("crashed or was killed", "the process that was timed", todo) from None
    except OSError as error:
        if "AF_UNIX" not in str(error):  # the server's socket
            raise
        where = f"TMPDIR {tempfile.gettempdir()}"
        raise UserError(str(error), where, "set it to a short path, such as /tmp") from error


def prepare(threads: int, user_dir: str | None) -> None:
    """Set up a new process: its end, its threads, and the kinds of heads of a plug-in."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    utils.import_user_module(Namespace(user_dir=user_dir))


def _end_with_parent() -> None:
    """Wait until the process that started this one has ended, also if it was killed; end then."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


def decode(kind: str, case: Case, beam: int) -> list[Record]:
    """The records of one kind of heads with random weights: see :func:`watch`."""
    before = peak_memory(case.device)
    known = kinds(PRESETS[case.preset].options.get("decoder_embed_dim", 512))
    arch, more = known.get(kind, (kind, {}))
    task = random_task(case.preset, SENTENCES)
    (batch,) = batches(task, case.device, max_sentences=SENTENCES)
    longest = case.lengths[-1] + 2
    ours = random_model(arch, case.preset, task, **more, max_target_positions=longest)
    model = (plain(ours) if kind == STOCK else ours).model.to(case.device, case.dtype)
    del ours
    fixed = case.fixed_steps and kind != STOCK
    os.environ[FIXED_STEPS_ENV] = str(int(fixed))
    look = replay if fixed else watch
    found = look(model, task, batch, beam, case.lengths, case.device, before)
    return [{"kind": kind, **record} for record in found]


def watch(
    model: Any,
    task: Any,
    batch: Any,
    beam: int,
    lengths: Sequence[int],
    device: torch.device,
    before: int,
) -> list[Record]:
    """Translate to each length, and record seconds per token and memory.

    A first translation to the shortest length is not timed.  ``memory`` is the peak memory that the
    model and its decoding add, on the GPU or in this process; ``cache`` is the size of the
    incremental state in the last step, and ``all_slots`` its size if no slot of a beam were
    dropped.  All are in MiB.

    Args:
        before: peak memory before the model was built, in bytes.
    """
    steps, sizes = count(), Record()

    def look(_: Any, arguments: Any, options: Any) -> None:
        """Before a step: that many tokens of each hypothesis are known."""
        if next(steps) == length:
            (state,) = (x for x in (*arguments, *options.values()) if isinstance(x, dict))
            sizes["cache"] = cache_bytes(state) / 2**20
            sizes["all_slots"] = sizes["cache"] + dropped_bytes(state) / 2**20

    model.decoder.layers[0].register_forward_pre_hook(look, with_kwargs=True)
    records = list[Record]()
    for length in (lengths[0], *lengths):
        translate, steps = translator(model, task, beam, length=length), count()
        start = clock()
        translate(batch)
        record: Record = {"beam": beam, "length": length, "seconds": (clock() - start) / length}
        records.append(record | {"memory": (peak_memory(device) - before) / 2**20} | sizes)
    return records[1:]


def replay(
    model: Any,
    task: Any,
    batch: Any,
    beam: int,
    lengths: Sequence[int],
    device: torch.device,
    before: int,
) -> list[Record]:
    """As :func:`watch`, in steps of fixed shapes, where a hook would be in the way of a graph.

    The third translation to each length is timed.  The first one captures graphs (``first``: its
    seconds per token); where buffers grow on the way, the second one captures some again.
    ``cache`` is the size of all buffers.
    """
    records = list[Record]()
    BUFFERS.pop(model, None)
    for length in lengths:
        translate, seconds = translator(model, task, beam, length=length), list[float]()
        for _ in range(3):
            start = clock()
            translate(batch)
            seconds.append((clock() - start) / length)
        if model not in BUFFERS:
            raise UserError("has no effect on this model", FIXED_STEPS_ENV, "unset it")
        cache = sum(buffer.nbytes for buffer in BUFFERS[model].memory.values()) / 2**20
        memory = (peak_memory(device) - before) / 2**20
        record: Record = {"beam": beam, "length": length, "seconds": seconds[-1]}
        records.append(record | {"first": seconds[0], "cache": cache, "memory": memory})
    return records


def peak_memory(device: torch.device) -> int:
    """Peak memory so far in bytes: allocated on the GPU, or resident in this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def dropped_bytes(state: Any) -> float:
    """Bytes of the slots that caches dropped because no beam needs them; 0 for stock fairseq."""
    if not has_beam_history(state):
        return 0
    history = beam_history(state)
    slots = history.mask.size(3)
    dropped = history.steps * history.beam - slots
    caches = [entry["cache"] for entry in state.values() if isinstance(entry.get("cache"), Cache)]
    kept = {part for one in caches if not one.is_source for part in (one.keys, one.values)}
    return sum(part.filled.nbytes for part in kept) * dropped / max(1, slots)


def cache_bytes(state: Any) -> int:
    """Bytes of all tensors inside ``state``; each storage counts once."""

    def storages(value: Any) -> Iterator[torch.UntypedStorage]:
        parts = getattr(value, "__dict__", value)
        for part in parts.values() if isinstance(parts, dict) else parts:
            if isinstance(part, Tensor):
                yield part.untyped_storage()
            elif isinstance(part, dict | list | tuple) or hasattr(part, "__dict__"):
                yield from storages(part)

    return sum({x.data_ptr(): x.nbytes() for x in storages(state)}.values())
