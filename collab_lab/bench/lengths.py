"""Decoding against length: seconds per token and memory of narrow caches and of stock fairseq.

All translations are forced to the greatest of the lengths.  One such run gives all lengths: the
clock is read when the decoder has made that many steps.  Weights are random.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from collab_lab.bench.models import PRESETS, batches, random_model, random_pair, random_task
from collab_lab.bench.timing import Record, clock
from collab_lab.bench.translate import Translator

BEAMS = (1, 5)
SENTENCES = 64
_MIB = 2**20


def kinds(d: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """Architecture and options of each kind of heads for models of size ``d``."""
    latent = {"latent_dim_in_encoder": d}
    return {
        "standard heads": ("transformer_headsize_n", {}),
        "standard heads, 8 bits": ("transformer_headsize_n", {"cache_bits": "8"}),
        "standard heads, 4 bits": ("transformer_headsize_n", {"cache_bits": "4"}),
        "shared key d/4, own queries": (
            "transformer_collab",
            {"key_dim": d // 4, "query_mixing": "own"},
        ),
        "latent, a quarter": ("transformer_latent", {"latent_dim": d // 2, **latent}),
        "latent, a quarter, 4 bits": (
            "transformer_latent",
            {"latent_dim": d // 2, "cache_bits": "4", **latent},
        ),
        "latent, an eighth": ("transformer_latent", {"latent_dim": d // 4, **latent}),
        "grouped query, 2 heads": ("transformer_grouped_query", {"key_value_heads": 2}),
        "multi-query": ("transformer_grouped_query", {"key_value_heads": 1}),
    }


def run(
    preset: str, lengths: Sequence[int], device: torch.device, sentences: int = SENTENCES
) -> Iterator[Record]:
    """One record per beam size, kind of heads and length; stock fairseq comes first."""
    lengths = sorted(lengths)
    positions = {"max_target_positions": lengths[-1] + 2}
    task = random_task(preset, sentences)
    (batch,) = batches(task, "test", device, max_sentences=sentences)
    for beam in BEAMS:
        stock = random_pair("transformer_headsize_n", preset, task, **positions).stock
        yield from _decode("stock fairseq", stock.to(device), task, batch, beam, lengths)
        del stock
        d = PRESETS[preset].options.get("decoder_embed_dim", 512)
        for kind, (arch, options) in kinds(d).items():
            model = random_model(arch, preset, task, **options, **positions).model.to(device)
            yield from _decode(kind, model, task, batch, beam, lengths)
            del model


def _decode(
    kind: str, model: Any, task: Any, batch: Any, beam: int, lengths: Sequence[int]
) -> Iterator[Record]:
    """Decode once; the first steps, which allocate, are made twice."""
    Translator(model, task, beam, length=8)(batch)
    translator = Translator(model, task, beam, length=lengths[-1])
    on_gpu = next(model.parameters()).is_cuda
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    marks: dict[int, tuple[float, float, float]] = {}
    steps = 0

    def look(_: Any, arguments: Any, options: Any) -> None:
        """Before a step: ``steps`` tokens of each hypothesis are known."""
        nonlocal steps
        if steps in lengths:
            (state,) = (x for x in (*arguments, *options.values()) if isinstance(x, dict))
            marks[steps] = clock(), peak_memory(on_gpu), cache_bytes(state)
        steps += 1

    hook = model.decoder.layers[0].register_forward_pre_hook(look, with_kwargs=True)
    start = clock()
    translator(batch)
    hook.remove()
    for length in lengths:
        time, memory, cache = marks[length]
        yield {
            "kind": kind,
            "beam": beam,
            "length": length,
            "seconds": (time - start) / length,
            "memory": memory / _MIB,
            "cache": cache / _MIB,
        }


def peak_memory(on_gpu: bool) -> float:
    """The largest number of bytes so far: allocated on the GPU, or resident in this process."""
    if on_gpu:
        return torch.cuda.max_memory_allocated()
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def cache_bytes(state: Any) -> int:
    """The bytes of all tensors below ``state``, each storage once."""
    sizes: dict[int, int] = {}
    pending = [state]
    while pending:
        value = pending.pop()
        if isinstance(value, Tensor):
            storage = value.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
        elif isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, (list, tuple)):
            pending += value
        elif hasattr(value, "__dict__"):
            pending += vars(value).values()
    return sum(sizes.values())
