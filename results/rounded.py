"""Attention of a decoding step over a rounded KV cache next to float32.

Keys and values are random, with the sizes of a model of d = 512 with 8 heads of 64.  The queries of
the beams of a sentence attend to the slots of the hypotheses that they descend from.  Nothing is
timed before a rounded cache has given the numbers of its unpacked one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from collab_lab.clock.turns import clock
from fairseq_collab.attention.cache import BeamHistory, Cache, PackedContext
from fairseq_collab.attention.separate import SeparateAttention
from fairseq_collab.cpu_kernels.rounded import kernel
from results.records import Content
from results.seconds import in_turns, threads_set

D, HEADS = 512, 8
#: Key heads, size of a query, and whether one tensor is keys and values.
KINDS = {
    "standard heads": (HEADS, D // HEADS, False),
    "grouped query, 2 heads": (2, D // HEADS, False),
    "latents, a quarter": (1, D // 2, True),
}
#: Sentences by beam: 16 or 20 queries.
SENTENCES = {1: 16, 5: 4}
BITS = (0, 8, 4)
#: The greatest difference from the unpacked cache, as a share of the greatest number.
TOLERANCE = 1e-5


class Case(NamedTuple):
    """What is timed, with caches of all :data:`BITS`."""

    kind: str
    beam: int
    slots: int


def context_of(case: Case, bits: int) -> Any:
    """Keys, values and mask ``(B, 1, beam, slots)`` as a decoder has them after ``slots`` slots."""
    torch.manual_seed(1)
    heads, size, is_latent = KINDS[case.kind]
    sentences, beam = SENTENCES[case.beam], case.beam
    keys, values = torch.randn(2, sentences, heads, case.slots, size).unbind()
    return Cache(keys, keys if is_latent else values, bits=bits).context(
        beams(case, sentences, beam)
    )


def beams(case: Case, sentences: int, beam: int) -> Tensor:
    """A search in which each step continues random hypotheses."""
    history = BeamHistory(sentences, beam, torch.empty(0))
    first = torch.arange(0, sentences * beam, beam).repeat_interleave(beam)
    while history.mask.size(-1) < case.slots:  # it drops slots that no beam sees
        history.extend(torch.zeros(sentences * beam, 1))
        history.reorder(first + torch.randint(beam, (sentences * beam,)), None)
    return history.mask[..., -case.slots :]


def programs(case: Case) -> dict[str, Callable[[], Tensor]]:
    """Attend once, by the number of bits.

    Raises:
        AssertionError: a rounded cache gives other numbers than when it is unpacked.
    """
    attention = SeparateAttention(D, HEADS).eval()
    _, size, _ = KINDS[case.kind]
    q = torch.randn(SENTENCES[case.beam], HEADS, case.beam, size) / size**0.5

    def attend(context: Any) -> Tensor:
        return attention._attend(q, context, None, False)[0]  # without the projections

    contexts = {bits: context_of(case, bits) for bits in BITS}
    for context in contexts.values():
        if isinstance(context, PackedContext):
            expected = attend(context.unpacked())
            within = TOLERANCE * float(expected.abs().max())
            torch.testing.assert_close(attend(context), expected, rtol=0, atol=within)
    return {str(bits): partial(attend, context) for bits, context in contexts.items()}


@torch.no_grad()
def attention(kind: str, beam: int, slots: int, threads: int, turns: int, least: float) -> Content:
    """Seconds of one attention by the number of bits, in turns, and bytes of the cache.

    Args:
        least: seconds of a program in a turn; it repeats the attention.
    """
    case = Case(kind, beam, slots)
    with threads_set(threads):
        attend = programs(case)
        start = clock()
        attend["0"]()
        repeats = max(1, round(least / (clock() - start)))

        def repeated(once: Callable[[], Tensor], _: Any) -> None:
            for _ in range(repeats):
                once()

        found = in_turns({bits: partial(repeated, once) for bits, once in attend.items()}, turns)
    return {
        "turns": [{bits: round(one / repeats, 7) for bits, one in turn.items()} for turn in found],
        "bytes": {str(bits): read_bytes(case, bits) for bits in BITS},
        "kernel": "compiled" if kernel() else "torch's operators",
    }


def read_bytes(case: Case, bits: int) -> int:
    """Bytes of the cache."""
    context = context_of(case, bits)
    kept = [x.filled if bits else x for x in (context.keys, context.values)]
    return sum({x.data_ptr(): x.nbytes for x in kept}.values())
