"""What does not depend on the clock: cache bytes, multiply-adds, copies of tensors.

Cache bytes are read from the caches of a model that has decoded some steps, and must be those of
:mod:`fairseq_collab.metrics.cost`.  Copies are counted while torch runs one more step, the
reorder of its beams included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_collab.attention import HeadAttention
from fairseq_collab.bench.models import (
    STOCK,
    build_stock,
    build_variant,
    preset_options,
    variants,
)
from fairseq_collab.bench.settings import BEAM, Settings
from fairseq_collab.bench.work import random_task
from fairseq_collab.metrics.cost import LENGTH, cost, multiply_adds

SENTENCES, STEPS = 4, 20
COPIES = {"copy_", "_to_copy", "clone", "cat", "stack", "index_select", "repeat"}


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


def run(settings: Settings, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """One record for fairseq's model and for each of ours, of all presets."""
    records = []
    for preset in settings.presets:
        task = random_task(preset, SENTENCES, settings.seed)
        options = preset_options(preset)
        say(f"counters, {preset}")
        models = {STOCK: build_stock(options, task)}
        models |= {v.name: build_variant(v, options, task) for v in variants((1, 2, 4, 8))}
        for name, model in models.items():
            counted = {"multiply_adds": multiply_adds(model), **decode(model)}
            described = {"part": "counters", "preset": preset, "case": _CASE, "model": name}
            records.append({**described, **counted})
    return records


_CASE = (
    f"cache bytes a target token (a beam), a source token (a sentence), float32; multiply-adds of "
    f"a pair of {LENGTH} and {LENGTH} tokens; copies in step {STEPS + 1} of {SENTENCES} sentences, "
    f"beam {BEAM}"
)


@torch.no_grad()
def decode(model: Any) -> dict[str, int]:
    """Decode some steps and read the caches; one more, and count copies."""
    model.eval()
    if hasattr(model, "set_beam_size"):
        model.set_beam_size(BEAM)
    source = torch.full((SENTENCES, LENGTH), 5)
    order = torch.arange(SENTENCES).repeat_interleave(BEAM)  # (rows)
    encoded = model.encoder(source, torch.full((SENTENCES,), LENGTH))
    encoded = model.encoder.reorder_encoder_out(encoded, order)
    tokens = torch.full((len(order), STEPS + 1), 5)
    rows = torch.arange(len(order)).view(-1, BEAM).flip(1).flatten()  # beams change places
    state: dict[str, dict[str, Any]] = {}

    def step(t: int) -> None:
        model.decoder(tokens[:, : t + 1], encoder_out=encoded, incremental_state=state)
        model.decoder.reorder_incremental_state_scripting(state, rows)

    for t in range(STEPS):
        step(t)
    caches = cache_bytes(model, state)
    with CopyCounter() as copies:
        step(STEPS)
    return {**caches, "copies": copies.calls, "copied_bytes": copies.bytes}


def cache_bytes(model: Any, state: Any) -> dict[str, int]:
    """Bytes a token of keys and values, as they lie in ``state`` after :data:`STEPS` steps.

    ``self``: of a target token, for each beam.  ``cross``: of a source token, for each sentence,
    that is, of all its beams where they do not share it.
    """
    totals = dict.fromkeys((f"{site}_{what}" for site in _SITES for what in _WHAT), 0)
    tokens = {"self": SENTENCES * BEAM * STEPS, "cross": SENTENCES * LENGTH}
    for layer in model.decoder.layers:
        for site, attention in (("self", layer.self_attn), ("cross", layer.encoder_attn)):
            for what, size in held(attention, state).items():
                totals[f"{site}_{what}"] += size // tokens[site]
    counted = cost(model)
    program = (counted.key_bytes_per_target_token, counted.value_bytes_per_target_token)
    found = (totals["self_keys"], totals["self_values"])
    assert program == found, f"cost says {program} bytes a target token, the caches hold {found}"
    return {f"cache_{name}": size for name, size in totals.items()}


_SITES, _WHAT = ("self", "cross"), ("keys", "values")


def held(attention: Any, state: Any) -> dict[str, int]:
    """Bytes of keys and values in the cache of one attention."""
    if isinstance(attention, HeadAttention):
        return attention.cache_bytes(state)
    assert isinstance(attention, MultiheadAttention)
    buffer: Any = attention._get_input_buffer(state)
    return {
        what: buffer[f"prev_{what[:-1]}"].numel() * buffer[f"prev_{what[:-1]}"].element_size()
        for what in _WHAT
    }
