"""What does not depend on the clock: peak memory, cache bytes, multiply-adds, copies of tensors.

``memory``    peak resident memory of a process that builds one model and translates one batch.
              Memory is counted by process, so every model is measured in one of its own.  On a GPU
              the peak is that of torch's allocator.
``counters``  cache bytes and multiply-adds of :mod:`fairseq_collab.metrics.cost`; copies, counted
              while torch runs one step of decoding, the reorder of its beams included.
"""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import fairseq_collab  # noqa: F401  (registers the architectures in a process of its own)
from collab_common.errors import UserError
from fairseq_collab.bench.generate import Case, Translator, sentences
from fairseq_collab.bench.models import COLLAB, HEADSIZE, STOCK, Variant, build, variants
from fairseq_collab.bench.settings import BEAM, PRESETS, Record, Settings
from fairseq_collab.bench.work import random_task
from fairseq_collab.metrics.cost import LENGTH, cost, multiply_adds

R = TypeVar("R")


# ---- peak memory ---------------------------------------------------------------------------------

MODELS = (Variant(STOCK), Variant(HEADSIZE), Variant(COLLAB, 4), Variant(COLLAB, 8))


def run(settings: Settings) -> Iterator[Record]:
    """One record a preset and model, in bytes; of large models, not all."""
    for preset in settings.presets:
        for variant in MODELS[: len(MODELS) - (preset == "wmt_en_de")]:
            yield in_own_process("benchmark of memory", peak, settings, preset, variant)


def in_own_process(where: str, function: Callable[..., R], *arguments: Any) -> R:
    """Call a function in a new process; if it fails or dies, raises UserError with ``where``."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(function, *arguments).result()
        except Exception as error:  # whatever a process of a measurement dies of
            raise UserError(f"{type(error).__name__}: {error}", where) from error


def peak(settings: Settings, preset: str, variant: Variant) -> Record:
    """Translate one batch, at batch 64 and to length 60, or 30 for a large vocabulary."""
    torch.set_num_threads(settings.threads)
    batch, length = (8, 10) if settings.quick else (64, 30 if preset == "wmt_en_de" else 60)
    if preset == "tiny":
        batch = PRESETS[preset].batch
    case = Case(BEAM, batch, batch, length, (0, 1))
    task = random_task(preset, batch, settings.seed)
    torch.manual_seed(settings.seed)
    translate = Translator(build(variant, preset, task), task, case, settings)
    (found,) = sentences(task, case, settings)
    cuda = settings.device == "cuda"
    before = resident("VmRSS")
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    translate(found)
    return {
        "part": "memory",
        "preset": preset,
        "case": f"beam {BEAM}, batch {batch}, length {length}",
        "model": variant.name,
        "peak_bytes": torch.cuda.max_memory_allocated() if cuda else resident("VmHWM"),
        "before_bytes": before,
    }


def resident(field: str) -> int:
    """Bytes of this process, by Linux: ``VmRSS`` now, ``VmHWM`` at its peak.

    ``getrusage`` would not do: its peak begins with that of the process that started this one.
    """
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None, f"no {field} in /proc/self/status"
    return 1024 * int(found[1])


# ---- counters ------------------------------------------------------------------------------------

SENTENCES, STEPS = 4, 20
COPIES = {"copy_", "_to_copy", "clone", "cat", "stack", "index_select", "repeat"}
CASE = (
    "cache bytes per target token (a beam), a source token (a sentence), float32; multiply-adds of "
    f"a pair of {LENGTH} and {LENGTH} tokens; copies in step {STEPS + 1} of {SENTENCES} sentences, "
    f"beam {BEAM}"
)


class CopyCounter(TorchDispatchMode):
    """Counts torch's operations that copy tensors, and the bytes that they write."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in COPIES and isinstance(result, Tensor):
            self.calls += 1
            self.bytes += result.numel() * result.element_size()
        return result


def run_counters(settings: Settings) -> Iterator[Record]:
    """One record for fairseq's model and for each of ours, of all presets."""
    for preset in settings.presets:
        task = random_task(preset, SENTENCES, settings.seed)
        for variant in (Variant(STOCK), *variants()):
            model = build(variant, preset, task).eval()
            labels = {"part": "counters", "preset": preset, "case": CASE, "model": variant.name}
            copies = count_copies(model)
            counted = {"copies": copies.calls, "copied_bytes": copies.bytes}
            yield {**labels, "multiply_adds": multiply_adds(model), **cache_bytes(model), **counted}


def cache_bytes(model: Any) -> dict[str, int]:
    """Bytes per token of keys and values: of a target token for each beam, of a source sentence's.

    Without beams that share it, the latter is cached for each of them.
    """
    found, beams = cost(model), 1 if hasattr(model, "set_beam_size") else BEAM
    return {
        "cache_self_keys": found.key_bytes_per_target_token,
        "cache_self_values": found.value_bytes_per_target_token,
        "cache_cross_keys": beams * found.key_bytes_per_source_token,
        "cache_cross_values": beams * found.value_bytes_per_source_token,
    }


@torch.no_grad()
def count_copies(model: Any, state: dict[str, dict[str, Any]] | None = None) -> CopyCounter:
    """Decode :data:`STEPS` steps, and one more, whose copies count; ``state`` gets the caches."""
    if hasattr(model, "set_beam_size"):
        model.set_beam_size(BEAM)
    source = torch.full((SENTENCES, LENGTH), 5)
    order = torch.arange(SENTENCES).repeat_interleave(BEAM)  # (rows)
    encoded = model.encoder(source, torch.full((SENTENCES,), LENGTH))
    encoded = model.encoder.reorder_encoder_out(encoded, order)
    tokens = torch.full((len(order), STEPS + 1), 5)
    rows = torch.arange(len(order)).view(-1, BEAM).flip(1).flatten()  # beams change places
    state = {} if state is None else state

    def step(t: int) -> None:
        model.decoder(tokens[:, : t + 1], encoder_out=encoded, incremental_state=state)
        model.decoder.reorder_incremental_state_scripting(state, rows)

    for t in range(STEPS):
        step(t)
    with CopyCounter() as copies:
        step(STEPS)
    return copies
