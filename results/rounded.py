"""Attention of a decoding step over a rounded KV cache next to float32: writes rounded.json.

    python results/rounded.py results/rounded.json

Keys and values are random, with the sizes of a model of d = 512 with 8 heads of 64.  The queries of
the beams of a sentence attend to the slots of the hypotheses that they descend from.  Float32, 8
bits and 4 bits take turns (A B C, C B A, ...); each turn is a hundredth of a second or more.
Nothing is timed before a rounded cache has given the numbers of its unpacked one.  Close all other
programs first.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from collab_common.files import write_json
from collab_common.progress import say
from collab_common.provenance import circumstances
from collab_lab.clock.turns import times_as_fast
from fairseq_collab.attention.cache import BeamHistory, Cache, PackedContext
from fairseq_collab.attention.separate import SeparateAttention
from fairseq_collab.cpu_kernels.rounded import kernel

D, HEADS = 512, 8
#: Key heads, size of a query, and whether one tensor is keys and values.
KINDS = {
    "standard heads": (HEADS, D // HEADS, False),
    "grouped query, 2 heads": (2, D // HEADS, False),
    "latents, a quarter": (1, D // 2, True),
}
#: Sentences by beam: 16 or 20 queries.
SENTENCES = {1: 16, 5: 4}
SLOTS, BITS, TURNS, LEAST = (512, 2048), (0, 8, 4), 30, 0.01
#: The greatest difference from the unpacked cache, as a share of the greatest number.
TOLERANCE = 1e-5


class Case(NamedTuple):
    """What is timed, with caches of all :data:`BITS`."""

    kind: str
    beam: int
    slots: int
    threads: int


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


def turns(case: Case, number: int) -> Iterator[dict[str, float]]:
    """Seconds of one attention, by the number of bits."""
    torch.set_num_threads(case.threads)
    run = programs(case)
    start = time.perf_counter()
    run["0"]()
    repeats = max(1, round(LEAST / (time.perf_counter() - start)))
    for turn in range(number):
        seconds = {}
        for bits in [*run][:: -1 if turn % 2 else 1]:
            start = time.perf_counter()
            for _ in range(repeats):
                run[bits]()
            seconds[bits] = (time.perf_counter() - start) / repeats
        yield seconds


def read_bytes(case: Case, bits: int) -> int:
    """Bytes of the cache."""
    context = context_of(case, bits)
    kept = [x.filled if bits else x for x in (context.keys, context.values)]
    return sum({x.data_ptr(): x.nbytes for x in kept}.values())


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path, help="results/rounded.json")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    args = parser.parse_args(argv)
    how = "compiled" if kernel() else "torch's operators"
    records = []
    with torch.no_grad():
        for case in (Case(*x) for x in product(KINDS, SENTENCES, SLOTS, args.threads)):
            found = [*turns(case, args.turns)]
            records.append({
                **case._asdict(),
                "turns": [{bits: round(one, 7) for bits, one in turn.items()} for turn in found],
                "bytes": {str(bits): read_bytes(case, bits) for bits in BITS},
            })  # fmt: skip
            ratios = ", ".join(
                f"{b} bits: {1 / times_as_fast(found, str(b), '0').mean:.2f}" for b in BITS[1:]
            )
            say(f"{case}: {ratios} of float32's time")
    command = f"python results/rounded.py {' '.join(argv)}"
    write_json(
        args.out, {"command": command, **circumstances(cpu=True), "kernel": how, "records": records}
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
