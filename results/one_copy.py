"""Seconds of a step, and bytes of a cache, with one latent for all cross-attentions and without.

Models have random weights.  Seconds are those of the processor, in one thread.
"""

from __future__ import annotations

import functools
import time
from typing import Any

import torch

from collab_lab.clock.bench import random_model, random_task
from collab_lab.metrics.cost import totals
from collab_lab.metrics.generate import BEAM
from collab_lab.shrinking.cut import ANY_BITS
from fairseq_collab.decoding.beam_search import ModelDecoding
from results.records import Content
from results.seconds import in_turns, threads_set

STANDARD, OWN, ONE = "standard heads", "a latent a layer", "one for all layers"
#: Bits of the caches that are timed: 8 are unpacked as fast as 4.
TIMED = (0, 4)


def cases(d: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """Architectures and options, by kind and bits: latents as wide as the model."""
    kinds = {
        STANDARD: ("transformer_headsize_n", {}),
        OWN: ("transformer_latent", {"latent_dim": d}),
        ONE: ("transformer_latent", {"latent_dim": d, "shared_latent_in_cross": d}),
    }
    return {
        f"{kind}, {bits}": (arch, {**options, "cache_bits": str(bits)})
        for kind, (arch, options) in kinds.items()
        for bits in ANY_BITS
    }


def decoding_steps(
    preset: str, vocabulary: int, layers: int, longest: int, length: int, d: int, steps: int,
    number: int,
) -> Content:  # fmt: skip
    """Bytes of a token in the KV cache, and seconds of a step in turns, by kind and bits.

    Args:
        layers: of the decoder.
        longest: source that the models can read.
        length: of the source.
        steps: of a turn.
        number: of turns.
    """
    taken = list[tuple[str, float]]()
    models = models_of(preset, vocabulary, layers, longest, d)

    def of(name: str, _: Any) -> None:
        taken.append((name, round(step_seconds(models[name], length, steps), 7)))

    timed = [name for name in models if name.endswith(tuple(f", {bits}" for bits in TIMED))]
    with threads_set(1):
        in_turns({name: functools.partial(of, name) for name in timed}, number)
    caches = {name: totals(model)["cache"] // 8 for name, model in models.items()}
    found = [dict(taken[i : i + len(timed)]) for i in range(0, len(taken), len(timed))]
    return {"turns": found, "cache": caches, "threads": 1}


@functools.lru_cache(1)
def models_of(preset: str, vocabulary: int, layers: int, longest: int, d: int) -> dict[str, Any]:
    """Models of a number of decoder layers, by kind and bits."""
    task = random_task(preset, 1, vocabulary)
    sizes = {"decoder_layers": layers, "encoder_layers": 1, "max_source_positions": longest}
    return {
        name: random_model(arch, preset, task, **options, **sizes).model
        for name, (arch, options) in cases(d).items()
    }


@torch.inference_mode()
def step_seconds(model: Any, length: int, number: int) -> float:
    """Seconds of one of ``number`` steps of one sentence, beam 5, after the first ones.

    They are those of the processor, of one thread: a busy machine changes them little.
    """
    words = torch.randint(4, 40, (1, length), generator=torch.Generator().manual_seed(1))
    source = {"src_tokens": words, "src_lengths": torch.tensor([length])}
    decoding = ModelDecoding(model, source, 1.0)
    tokens = torch.full((BEAM, number + 2), 5)
    for steps in (1, 2):  # they allocate
        decoding.step(tokens[:, :steps])
    start = time.process_time()
    for steps in range(3, number + 3):
        decoding.step(tokens[:, :steps])
    return (time.process_time() - start) / number
