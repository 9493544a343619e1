"""Attention alone: decoding step by step with beams, and forward and backward at many lengths.

Decoding is driven as each decoder drives it.  fairseq's: rows as a batch, cached keys and values
reordered at every step.  The authors' form: likewise, with mixed keys of each head.  Ours: a step
of a sentence's beams is laid out as query positions, and a table of who sees what is reordered
(:class:`fairseq_collab.attention.beams.BeamHistory`, which a real model keeps once for all layers,
and this benchmark for its only one).

Shapes: ``d`` 512, ``H`` 8, beam 5, ``rows`` sentences times beams, time first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from collab_common.errors import UserError
from fairseq_collab.attention import CollaborativeAttention, ConcatenatedAttention, HeadAttention
from fairseq_collab.attention.beams import (
    fold_beams,
    start_beam_history,
    unfold_beams,
)
from fairseq_collab.attention.cache import IncrementalState
from fairseq_collab.bench import authors
from fairseq_collab.bench.models import COLLAB, HEADSIZE, STOCK, Variant
from fairseq_collab.bench.settings import (
    BEAM,
    DecodeCase,
    LengthCase,
    Settings,
    decode_cases,
    length_cases,
)
from fairseq_collab.bench.timing import compare, in_turn
from fairseq_collab.kernels.onednn import swap_linear

DIM, HEADS = 512, 8
#: d/K of the collaborative heads, and those that the authors' form is timed at, too.
REDUCTIONS, AUTHORS_REDUCTIONS = (1, 2, 4, 8), (4, 8)
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.1}
CONCATENATED = Variant(HEADSIZE).name

Core = dict[str, nn.Module]


def authors_name(reduction: int) -> str:
    """As in tables."""
    return f"authors' form K=d/{reduction}"


def build(settings: Settings) -> Core:
    """One attention of each kind, by name; those that can have the same weights have them."""
    torch.manual_seed(settings.seed)
    cores: Core = {STOCK: MultiheadAttention(DIM, HEADS, self_attention=True)}
    cores[CONCATENATED] = ConcatenatedAttention(DIM, HEADS, self_attention=True)
    own = cores[CONCATENATED].state_dict()
    cores[CONCATENATED].load_state_dict({**own, **cores[STOCK].state_dict()})
    for reduction in REDUCTIONS:
        ours = CollaborativeAttention(DIM, HEADS, DIM // reduction, self_attention=True)
        cores[Variant(COLLAB, reduction).name] = ours
        if reduction in AUTHORS_REDUCTIONS:
            theirs = authors.AuthorsAttention(DIM, HEADS, DIM // reduction)
            state = ours.state_dict()
            theirs.load_state_dict({name: state[name] for name in theirs.state_dict()})
            cores[authors_name(reduction)] = theirs
    for core in cores.values():
        if isinstance(core, HeadAttention):
            swap_linear(core)  # as in a model of ours
    dtype = getattr(torch, settings.dtype)
    return {name: core.to(settings.device, dtype) for name, core in cores.items()}


def same_function() -> list[tuple[str, str]]:
    """Pairs whose outputs must agree."""
    pairs = [(STOCK, CONCATENATED)]
    return pairs + [(authors_name(r), Variant(COLLAB, r).name) for r in AUTHORS_REDUCTIONS]


def run(settings: Settings, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """All cases: a record for every form against stock, and against the authors' at the same K."""
    records: list[dict[str, Any]] = []
    cores = build(settings)
    for decode_case in decode_cases(settings):
        say(f"core, decoding {decode_case.rows} rows, {decode_case.steps} steps")
        records += decoding(cores, decode_case, settings)
    for length_case in length_cases(settings):
        say(f"core, forward and backward at length {length_case.length}, {length_case.batch} rows")
        records += training(cores, length_case, settings)
    return records


def decoding(cores: Core, case: DecodeCase, settings: Settings) -> list[dict[str, Any]]:
    """Self-attention over ``case.steps`` steps, with a reorder of beams after each."""
    for core in cores.values():
        core.eval()
    x = inputs(case.steps, case.rows, settings)
    orders = beam_orders(case.rows, case.steps, settings)
    programs: dict[str, Callable[[int], Tensor]] = {
        name: partial(decode_steps, core, x, orders) for name, core in cores.items()
    }
    with torch.no_grad():
        few = min(case.steps, 6)
        check_outputs({name: program(few) for name, program in programs.items()}, settings.dtype)
        times = in_turn(
            list(programs.values()), [case.steps], case.seconds, case.least, settings.device
        )
    described = f"decoding, {case.rows} rows (beam {BEAM}), {case.steps} steps"
    return _records(list(cores), times, described, case.steps, "steps")


def inputs(steps: int, rows: int, settings: Settings) -> Tensor:
    """``(steps, rows, d)``."""
    chance = torch.Generator().manual_seed(settings.seed)
    x = torch.randn(steps, rows, DIM, generator=chance)
    return x.to(settings.device, getattr(torch, settings.dtype))


def beam_orders(rows: int, steps: int, settings: Settings) -> Tensor:
    """Which row each row continues, after each step, within its sentence: ``(steps, rows)``."""
    chance = torch.Generator().manual_seed(settings.seed)
    first = torch.arange(rows) // BEAM * BEAM
    return (first + torch.randint(BEAM, (steps, rows), generator=chance)).to(settings.device)


def decode_steps(core: nn.Module, x: Tensor, orders: Tensor, steps: int) -> Tensor:
    """Outputs of so many steps ``(steps, rows, d)``, each attending to the steps so far."""
    x = x[:steps]
    step = step_of_authors(core) if isinstance(core, authors.AuthorsAttention) else None
    step = step or (step_of_stock(core) if isinstance(core, MultiheadAttention) else None)
    step = step or step_of_ours(core, sentences=x.size(1) // BEAM, like=x)
    return torch.cat([step(x[t : t + 1], orders[t]) for t in range(len(x))])


Step = Callable[[Tensor, Tensor], Tensor]


def step_of_stock(core: MultiheadAttention) -> Step:
    """As fairseq's decoder layer calls it, and its generator reorders it."""
    state: IncrementalState = {}

    def step(x: Tensor, order: Tensor) -> Tensor:
        output, _ = core(x, x, x, incremental_state=state, need_weights=False)
        core.reorder_incremental_state(state, order)
        return output

    return step


def step_of_authors(core: authors.AuthorsAttention) -> Step:
    """As in the authors' decoder, which is fairseq's."""
    cache: authors.Cache = {}

    def step(x: Tensor, order: Tensor) -> Tensor:
        output = core(x, x, cache)
        authors.reorder(cache, order)
        return output

    return step


def step_of_ours(core: Any, sentences: int, like: Tensor) -> Step:
    """As :class:`fairseq_collab.models.decoder.Decoder` does."""
    state: IncrementalState = {}
    history = start_beam_history(state, sentences, like.size(1), like)

    def step(x: Tensor, order: Tensor) -> Tensor:
        history.extend()
        folded = fold_beams(x, history.beam)  # (beam, B, d)
        output, _ = core(folded, folded, folded, incremental_state=state, need_weights=False)
        history.reorder(order)
        core.reorder_incremental_state(state, order)
        return unfold_beams(output, 1)

    return step


def training(cores: Core, case: LengthCase, settings: Settings) -> list[dict[str, Any]]:
    """Forward and backward of causal self-attention, without dropout."""
    x = inputs(case.length, case.batch, settings)
    future = torch.full((case.length, case.length), float("-inf"), dtype=x.dtype, device=x.device)
    future = future.triu(1)
    programs: dict[str, Callable[[Tensor], Tensor]] = {
        name: partial(forward_backward, core, future) for name, core in cores.items()
    }
    check_outputs({name: program(x) for name, program in programs.items()}, settings.dtype)
    times = in_turn(list(programs.values()), [x], case.seconds, case.least, settings.device)
    described = f"forward and backward, {case.batch} sequences of length {case.length}"
    return _records(list(cores), times, described, case.length * case.batch, "tokens")


def forward_backward(core: nn.Module, future: Tensor, x: Tensor) -> Tensor:
    """One pass there and back; the output ``(T, B, d)``."""
    core.train()
    core.zero_grad()
    x = x.detach().requires_grad_()
    if isinstance(core, authors.AuthorsAttention):
        output = core(x, x, attn_mask=future)
    else:
        output, _ = core(x, x, x, attn_mask=future, need_weights=False)
    output.sum().backward()
    return output.detach()


def check_outputs(outputs: dict[str, Tensor], dtype: str) -> None:
    """Forms with the same weights must have the same outputs.

    Raises:
        UserError: they have not.
    """
    for one, other in same_function():
        apart = (outputs[one] - outputs[other]).abs().max().item()
        if not apart <= TOLERANCE[dtype]:
            raise UserError(
                f"outputs of {one} and {other} are {apart:.2g} apart",
                "the benchmark's check",
                "nothing was timed: they do not compute the same function",
            )


def _records(
    names: list[str], times: list[tuple[float, ...]], case: str, work: int, unit: str
) -> list[dict[str, Any]]:
    against = [(STOCK, name) for name in names if name != STOCK]
    against += same_function()[1:]
    records = []
    for first, second in against:
        a, b = names.index(first), names.index(second)
        pairs = [(turn[a], turn[b]) for turn in times]
        record: dict[str, Any] = {
            "part": "core",
            "preset": f"d={DIM}, H={HEADS}",
            "case": case,
            "model": second,
        }
        record |= {"against": first, "work": work, "unit": unit, **compare(pairs).as_dict()}
        records.append(record)
    return records
