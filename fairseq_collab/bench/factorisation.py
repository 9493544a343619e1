"""Time and memory of the factorisation against TensorLy's, at the size of larger models.

The score maps are made up, with spectra that are not: each head has the mean spectrum of the heads
of a checkpoint (a trained transformer with heads of 64), on random directions, some of which all
heads share.  Sizes are those of one attention of ``transformer_wmt_en_de`` (d = 512, 8 heads; 18
attentions) and of BERT-base (d = 768, 12 heads; 12 attentions); a model takes so many times as
long.  Each measurement is a process of its own, on one thread of the CPU; times are processor
time, memory is what the process grew by.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from collab_common.errors import UserError
from collab_common.progress import say
from fairseq_collab.attention import ConcatenatedAttention
from fairseq_collab.bench.memory import in_own_process, resident
from fairseq_collab.convert.factorise import MAX_STEPS, Problem, factorise
from fairseq_collab.convert.tensorly_reference import tensorly_factors
from fairseq_collab.metrics.cost import load_architecture
from fairseq_collab.trained.attentions import attentions
from fairseq_compat import checkpoints


class Size(NamedTuple):
    """``d``, ``H``, and how many attentions the model has."""

    dim: int
    heads: int
    attentions: int


SIZES = {"wmt_en_de": Size(512, 8, 18), "bert_base": Size(768, 12, 12)}
#: ``start``: ours without a step; ``ours``: with the default number of them.
METHODS = ("tensorly", "start", "ours")
#: Whose heads have queries and keys of their own.
OWN_KEYS = (MultiheadAttention, ConcatenatedAttention)
#: Share of a head's directions that lie in a space of ``d/2`` directions common to all heads.
COMMON = 0.5


def mean_spectrum(checkpoint: Path, head_size: int = 64) -> Tensor:
    """Singular values ``(h)`` of ``Wq_i^T Wk_i``, norm 1, mean over all heads of a checkpoint.

    Only heads of this size with keys of their own count.

    Raises:
        UserError: there are none, or it is no checkpoint of a translation or language model.
    """
    weights = checkpoints.read(checkpoint)["model"]
    found = []
    for one in attentions(load_architecture(checkpoint)):
        heads = one.module.num_heads if isinstance(one.module, OWN_KEYS) else 0
        if not heads or one.module.q_proj.out_features != heads * head_size:
            continue
        wq, wk = (weights[f"{one.name}.{p}_proj.weight"].double() for p in "qk")
        for q, k in zip(wq.split(head_size), wk.split(head_size), strict=True):
            values = torch.linalg.svdvals(q.T @ k)[:head_size]
            found.append(values / values.norm())
    if not found:
        raise UserError(f"has no heads of size {head_size}", checkpoint, "give another model")
    return torch.stack(found).mean(0)


def made_up(size: Size, spectrum: Tensor) -> tuple[Tensor, Tensor]:
    """Weights ``Wq (H, h, d)`` and ``Wk (H, h, d)`` of heads with this spectrum."""
    generator = torch.Generator().manual_seed(1)
    sides = []
    for _ in range(2):
        common = torch.randn(size.dim // 2, size.dim, generator=generator).double()
        shape = (size.heads, len(spectrum), size.dim)
        own = torch.randn(shape, generator=generator).double()
        mixed = torch.randn(*shape[:2], len(common), generator=generator).double() @ common
        mixed *= own.norm() / mixed.norm()
        directions = COMMON**0.5 * mixed + (1 - COMMON) ** 0.5 * own
        basis, _ = torch.linalg.qr(directions.mT)  # (H, d, h)
        sides.append(basis.mT * spectrum.to(basis).sqrt().unsqueeze(1))
    return sides[0], sides[1]


def once(method: str, size: Size, key_dim: int, spectrum: Tensor) -> dict[str, Any]:
    """Factorise one attention in this process, on one thread; its error, seconds and MiB."""
    torch.set_num_threads(1)
    wq, wk = made_up(size, spectrum)
    before = resident("VmHWM")
    began = time.process_time()
    problem = Problem(wq, wk)
    if method == "tensorly":
        factors = tensorly_factors(problem, key_dim)
    else:
        steps = MAX_STEPS if method == "ours" else 0
        factors = factorise(problem, key_dim, max_steps=steps)
    return {
        "method": method,
        "key_dim": key_dim,
        "error": factors.error,
        "steps": factors.steps,
        "seconds": time.process_time() - began,
        "mib": (resident("VmHWM") - before) / 2**20,
    }


def measure(name: str, spectrum: Tensor, methods: Sequence[str]) -> list[dict[str, Any]]:
    """Each method at ``K = d/2``, each in a process of its own."""
    size, rows = SIZES[name], []
    for method in methods:
        row = in_own_process(f"{name}, {method}", once, method, size, size.dim // 2, spectrum)
        rows.append({"size": name, **size._asdict(), **row})
        say(str(row))
    return rows
