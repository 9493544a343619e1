"""Attention alone: decoding step by step with beams, and forward and backward at many lengths.

Decoding is driven as each decoder drives it.  fairseq's: rows as a batch, cached keys and values
reordered at every step.  The authors' form: likewise, with mixed keys of each head.  Ours: a step
of a sentence's beams is laid out as query positions, and a table of who sees what is reordered
(:class:`fairseq_collab.attention.beams.BeamHistory`, which a real model keeps once for all layers,
and this benchmark for its only one).

Shapes: ``d`` 512, ``H`` 8, beam 5, ``rows`` sentences times beams, time first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from fairseq_collab.attention import CollaborativeAttention, ConcatenatedAttention, HeadAttention
from fairseq_collab.attention.beams import (
    beam_history,
    fold_beams,
    start_beam_history,
    unfold_beams,
)
from fairseq_collab.attention.cache import IncrementalState
from fairseq_collab.bench.authors import AuthorsAttention
from fairseq_collab.bench.models import COLLAB, HEADSIZE, STOCK, Variant
from fairseq_collab.bench.settings import BEAM, Budget, Record, Settings
from fairseq_collab.bench.timing import timed, unequal
from fairseq_collab.kernels.onednn import swap_linear

DIM, HEADS = 512, 8
#: d/K of the collaborative heads, and those that the authors' form is timed at, too.
REDUCTIONS, AUTHORS_REDUCTIONS = (1, 2, 4, 8), (4, 8)
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.1}
#: Pairs whose outputs must agree; the authors' form is not only compared with stock.
SAME = [
    (STOCK, Variant(HEADSIZE).name),
    *((f"authors' form K=d/{r}", Variant(COLLAB, r).name) for r in AUTHORS_REDUCTIONS),
]
#: Rows and steps of decoding, the first few also in a second measurement.
DECODING = [
    (40, 32, (3.0, 5)), (320, 32, (4.0, 4)), (40, 128, (4.0, 3)), (320, 128, (4.0, 2)),
]  # fmt: skip
#: Lengths and sequences: about 4,096 tokens, and one long sequence.
LENGTHS = [(32, 128), (128, 32), (512, 8), (2048, 2), (2048, 1)]
MAIN_LENGTHS = LENGTHS[1:3]

Core = dict[str, nn.Module]


def run(settings: Settings) -> Iterator[Record]:
    """All cases: a record for every form against stock, and against the authors' at the same K."""
    cores = build(settings)
    decoding_cases = DECODING[: 2 if settings.main_only else None]
    length_cases = MAIN_LENGTHS if settings.main_only else LENGTHS
    length_budget = (2.0, 3)
    if settings.quick:
        decoding_cases, length_cases, length_budget = [(40, 8, (0.5, 2))], [(32, 8)], (0.5, 2)
    for rows, steps, budget in decoding_cases:
        yield from decoding(cores, rows, steps, budget, settings)
    for length, batch in length_cases:
        yield from training(cores, length, batch, length_budget, settings)


def build(settings: Settings) -> Core:
    """One attention of each kind, by name; those that can have the same weights have them."""
    torch.manual_seed(settings.seed)
    stock = MultiheadAttention(DIM, HEADS, self_attention=True)
    cores: Core = {STOCK: stock, SAME[0][1]: ConcatenatedAttention(DIM, HEADS, self_attention=True)}
    cores[SAME[0][1]].load_state_dict({**cores[SAME[0][1]].state_dict(), **stock.state_dict()})
    for reduction in REDUCTIONS:
        ours = CollaborativeAttention(DIM, HEADS, DIM // reduction, self_attention=True)
        cores[Variant(COLLAB, reduction).name] = ours
        if reduction in AUTHORS_REDUCTIONS:
            theirs = AuthorsAttention(DIM, HEADS, DIM // reduction)
            state = ours.state_dict()
            theirs.load_state_dict({name: state[name] for name in theirs.state_dict()})
            cores[f"authors' form K=d/{reduction}"] = theirs
    for core in cores.values():
        if isinstance(core, HeadAttention):
            swap_linear(core)  # as in a model of ours
    dtype = getattr(torch, settings.dtype)
    return {name: core.to(settings.device, dtype) for name, core in cores.items()}


def inputs(steps: int, rows: int, settings: Settings) -> Tensor:
    """``(steps, rows, d)``."""
    chance = torch.Generator().manual_seed(settings.seed)
    x = torch.randn(steps, rows, DIM, generator=chance)
    return x.to(settings.device, getattr(torch, settings.dtype))


def compared(
    programs: dict[str, Callable[[Any], Tensor]], first: Any, work: Any, budget: Budget,
    labels: Record, settings: Settings,
) -> Iterator[Record]:  # fmt: skip
    """Check outputs on ``first``, and time ``work``.

    Raises:
        UserError: forms with the same weights have other outputs.
    """
    check_outputs({name: program(first) for name, program in programs.items()}, settings.dtype)
    pairs = [(STOCK, name) for name in programs if name != STOCK] + SAME[1:]
    labels = {"part": "core", "preset": f"d={DIM}, H={HEADS}", **labels}
    yield from timed(labels, programs, [work], budget, pairs)


def check_outputs(outputs: dict[str, Tensor], dtype: str) -> None:
    """Forms with the same weights must have the same outputs.

    Raises:
        UserError: they have not.
    """
    for one, other in SAME:
        apart = (outputs[one] - outputs[other]).abs().max().item()
        if not apart <= TOLERANCE[dtype]:
            raise unequal(f"outputs of {one} and {other} are {apart:.2g} apart")


# ---- decoding ------------------------------------------------------------------------------------


@torch.no_grad()
def decoding(
    cores: Core, rows: int, steps: int, budget: Budget, settings: Settings
) -> Iterator[Record]:
    """Self-attention over so many steps, with a reorder of beams after each."""
    x, orders = inputs(steps, rows, settings), beam_orders(rows, steps, settings)
    programs: dict[str, Callable[[int], Tensor]] = {
        name: partial(decode_steps, core.eval(), x, orders) for name, core in cores.items()
    }
    case = f"decoding, {rows} rows (beam {BEAM}), {steps} steps"
    labels = {"case": case, "work": steps, "unit": "steps"}
    yield from compared(programs, min(steps, 6), steps, budget, labels, settings)


def beam_orders(rows: int, steps: int, settings: Settings) -> Tensor:
    """Which row each row continues, after each step, within its sentence: ``(steps, rows)``."""
    chance = torch.Generator().manual_seed(settings.seed)
    first = torch.arange(rows) // BEAM * BEAM
    return (first + torch.randint(BEAM, (steps, rows), generator=chance)).to(settings.device)


def decode_steps(core: Any, x: Tensor, orders: Tensor, steps: int) -> Tensor:
    """Outputs of so many steps ``(steps, rows, d)``, each attending to the steps so far."""
    step = step_of_ours if isinstance(core, HeadAttention) else step_of_rows
    state: IncrementalState = {}
    return torch.cat([step(core, x[t : t + 1], orders[t], state) for t in range(steps)])


def step_of_rows(core: Any, x: Tensor, order: Tensor, state: IncrementalState) -> Tensor:
    """As fairseq's decoder layer calls it, and its generator reorders it."""
    output, _ = core(x, x, x, incremental_state=state, need_weights=False)
    core.reorder_incremental_state(state, order)
    return output


def step_of_ours(core: Any, x: Tensor, order: Tensor, state: IncrementalState) -> Tensor:
    """As :class:`fairseq_collab.models.decoder.Decoder` does."""
    started = beam_history(state) if state else None
    history = started or start_beam_history(state, x.size(1) // BEAM, x.size(1), x)
    history.extend()
    folded = fold_beams(x, history.beam)  # (beam, B, d)
    output, _ = core(folded, folded, folded, incremental_state=state, need_weights=False)
    history.reorder(order)
    core.reorder_incremental_state(state, order)
    return unfold_beams(output, 1)


# ---- forward and backward ------------------------------------------------------------------------


def training(
    cores: Core, length: int, batch: int, budget: Budget, settings: Settings
) -> Iterator[Record]:
    """Forward and backward of causal self-attention, without dropout."""
    x = inputs(length, batch, settings)
    future = torch.full((length, length), float("-inf"), dtype=x.dtype, device=x.device).triu(1)
    programs: dict[str, Callable[[Tensor], Tensor]] = {
        name: partial(forward_backward, core, future) for name, core in cores.items()
    }
    case = f"forward and backward, {batch} sequences of length {length}"
    labels = {"case": case, "work": length * batch, "unit": "tokens"}
    yield from compared(programs, x, x, budget, labels, settings)


def forward_backward(core: nn.Module, future: Tensor, x: Tensor) -> Tensor:
    """One pass there and back; the output ``(T, B, d)``."""
    core.train()
    core.zero_grad()
    x = x.detach().requires_grad_()
    output, _ = core(x, x, x, attn_mask=future, need_weights=False)
    output.sum().backward()
    return output.detach()
