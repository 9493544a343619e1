"""What does not depend on the clock: cache bytes, multiply-adds, copies of tensors.

Cache bytes are read from the caches of a model that has decoded some steps, and must be those of
:mod:`fairseq_collab.metrics.cost`.  Copies are counted while torch runs one more step, the
reorder of its beams included.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_collab.attention import HeadAttention
from fairseq_collab.bench.models import STOCK, build, variants
from fairseq_collab.bench.settings import BEAM, Record, Settings
from fairseq_collab.bench.work import random_task
from fairseq_collab.metrics.cost import LENGTH, cost, multiply_adds

SENTENCES, STEPS = 4, 20
COPIES = {"copy_", "_to_copy", "clone", "cat", "stack", "index_select", "repeat"}
CASE = (
    f"cache bytes a target token (a beam), a source token (a sentence), float32; multiply-adds of "
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


def run(settings: Settings) -> Iterator[Record]:
    """One record for fairseq's model and for each of ours, of all presets."""
    for preset in settings.presets:
        task = random_task(preset, SENTENCES, settings.seed)
        for variant in (None, *variants()):
            model = build(variant, preset, task)
            name = variant.name if variant else STOCK
            labels = {"part": "counters", "preset": preset, "case": CASE, "model": name}
            yield {**labels, "multiply_adds": multiply_adds(model), **decode(model)}


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
    tokens = {"self": SENTENCES * BEAM * STEPS, "cross": SENTENCES * LENGTH}
    totals = {f"cache_{site}_{what}": 0 for site in tokens for what in ("keys", "values")}
    for layer in model.decoder.layers:
        for site, attention in (("self", layer.self_attn), ("cross", layer.encoder_attn)):
            for what, size in held(attention, state).items():
                totals[f"cache_{site}_{what}"] += size // tokens[site]
    counted = cost(model)
    program = (counted.key_bytes_per_target_token, counted.value_bytes_per_target_token)
    found = (totals["cache_self_keys"], totals["cache_self_values"])
    assert program == found, f"cost says {program} bytes a target token, the caches hold {found}"
    return totals


def held(attention: Any, state: Any) -> dict[str, int]:
    """Bytes of keys and values in the cache of one attention."""
    if isinstance(attention, HeadAttention):
        return attention.cache_bytes(state)
    buffer = attention._get_input_buffer(state)  # fairseq's
    return {what: buffer[f"prev_{what[:-1]}"].nbytes for what in ("keys", "values")}
