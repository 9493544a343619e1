"""Attention to a rounded cache in times of float32: ``python -m device_checks.rounded``.

In ``tests/``.  Float32, all numbers unpacked first, blocks of them, and the kernel in C take turns
with one set of queries.  A time is the median of the thread's own time, in which other programs
count less; ``GB/s`` are bytes of the rounded cache by the kernel's time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import torch
from torch import Tensor

from fairseq_collab.attention.cache import BeamHistory, Cache, Context, PackedContext
from fairseq_collab.attention.packed import packed_heads, use_kernel
from fairseq_collab.attention.scores import head_scores, mask_scores, weighted_values
from fairseq_collab.cpu_kernels.rounded import compiled_heads, in_use

TURNS, STEPS = 15, (512, 2048)
#: Name: sentences, heads of queries, of keys and values, their size; a latent is keys and values.
KINDS = {
    "standard, d = 512": (4, 8, 8, 64),
    "standard, d = 256": (4, 4, 4, 64),
    "grouped query, 2 of 8, d = 512": (4, 8, 2, 64),
    "latent, r = 256, 8 heads": (4, 8, 1, 256),
}


def unrounded(q: Tensor, context: Context) -> Tensor:
    scores = mask_scores(head_scores(q, context.keys), context.mask)
    return weighted_values(scores.softmax(-1), context.values)


def unpacked_first(q: Tensor, context: PackedContext) -> Tensor:
    return unrounded(q, context.unpacked())


def history(sentences: int, beam: int, slots: int) -> Tensor:
    """The mask of a search whose beams descend from random ones."""
    found = BeamHistory(sentences, beam, torch.zeros(()))
    while found.mask.size(-1) < slots:  # it drops slots that no beam sees
        found.reorder(
            (
                torch.arange(sentences).mul(beam)[:, None] + torch.randint(beam, (sentences, beam))
            ).flatten(),
            None,
        )
        found.extend(torch.zeros(sentences * beam, 1))
    return found.mask[..., -slots:]


def medians(programs: dict[str, Callable[[], object]]) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(TURNS):
        for name in [*programs][:: -1 if turn % 2 else 1]:
            begin = time.thread_time()
            programs[name]()
            times[name].append(time.thread_time() - begin)
    return {name: statistics.median(own[2:]) for name, own in times.items()}


def rows() -> Iterator[list[str]]:
    for (kind, sizes), slots, beam, bits in product(KINDS.items(), STEPS, (1, 5), (8, 4)):
        sentences, heads, groups, size = sizes
        torch.manual_seed(1)
        mask = history(sentences, beam, slots)
        q = torch.randn(sentences, heads, beam, size) / size**0.5
        keys = torch.randn(sentences, groups, mask.size(-1), size)
        values = keys if groups == 1 else torch.randn_like(keys)
        context = Cache(keys, values, bits=bits).context(mask)
        assert isinstance(context, PackedContext)
        ways = {
            "float32": partial(unrounded, q, Context(keys, values, mask)),
            "unpacked": partial(unpacked_first, q, context),
            "blocks": partial(attend, q, context, None),
            "kernel": partial(attend, q, context, compiled_heads),
        }
        torch.testing.assert_close(ways["kernel"](), ways["unpacked"](), rtol=0, atol=1e-5)
        found = medians(ways)
        read = context.keys.filled.nbytes * (1 if values is keys else 2)
        yield [
            kind, str(slots), str(beam), str(bits), f"{1e3 * found['float32']:.2f}",
            *(f"{found[name] / found['float32']:.2f}" for name in ("unpacked", "blocks", "kernel")),
            f"{read / found['kernel'] / 1e9:.1f}",
        ]  # fmt: skip


def attend(q: Tensor, context: PackedContext, kernel: object) -> Tensor:
    use_kernel(kernel or (lambda *_: None))  # type: ignore[arg-type]
    return packed_heads(q, context, None, False)[0]


def main() -> None:
    torch.set_num_threads(1)
    print(f"{in_use()}; times of float32's time")
    titles = [
        "heads",
        "slots",
        "beam",
        "bits",
        "float32, ms",
        "unpacked",
        "blocks",
        "kernel",
        "GB/s",
    ]
    print("| " + " | ".join(titles) + " |")
    for row in rows():
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    with torch.no_grad():
        main()
