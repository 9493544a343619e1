"""Attention alone: decoding step by step with beams, and forward and backward at many lengths.

Decoding is driven as each decoder drives it.  fairseq's: rows as a batch, cached keys and values
reordered at every step.  The authors' form: likewise, with mixed keys of each head.  Ours: a step
of a sentence's beams is laid out as query positions, and a table of who sees what is reordered
(:class:`fairseq_collab.attention.beams.BeamHistory`, which a real model keeps once for all layers,
and this benchmark for its only one).

Shapes: ``d`` 512, ``H`` 8, beam 5, ``rows`` sentences times beams, time first; ``T`` queries,
``S`` keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from fairseq_collab.attention import CollaborativeAttention, ConcatenatedAttention, beams
from fairseq_collab.attention.cache import IncrementalState
from fairseq_collab.bench.models import COLLAB, HEADSIZE, STOCK, Variant
from fairseq_collab.bench.settings import BEAM, Budget, Record, Settings
from fairseq_collab.bench.timing import Programs, timed, unequal
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


class AuthorsAttention(CollaborativeAttention):
    """Collaborative heads as their authors' translation code has them (arXiv 2006.16362).

        head_i = softmax((d/H)^-0.5 (x Wq^T + bq) ((y Wk^T + bk) diag(m_i))^T)(y Wv_i^T + bv_i)

    A baseline, written from a description of that code: the mixing multiplies the *keys*, and the
    cache of a decoder holds the mixed keys of every head, ``H K`` numbers a token, for every beam.
    The function and the parameters are those of the base class, which mixes the query and caches
    ``K``.
    """

    def forward(  # type: ignore[override]  # the benchmark gives no more
        self, query: Tensor, key: Tensor, value: Tensor, incremental_state: Any = None,
        attn_mask: Tensor | None = None, need_weights: bool = False,
    ) -> tuple[Tensor, None]:  # fmt: skip
        """Attend from ``query (T, B, d)`` to itself and to earlier steps: ``(T, B, d)``.

        Args:
            incremental_state: ``key (B, H, S, K)`` and ``value (B, H, S, d/H)`` of steps so far.
            attn_mask: ``(T, S)``, added to the scores.
        """
        q = (self.q_proj(query) * self.scaling).transpose(0, 1)  # (B, T, K)
        k = self.k_proj(query).transpose(0, 1).unsqueeze(1) * self.mixing[:, None, :]
        v = self.v_proj(query).unflatten(2, (self.num_heads, -1)).permute(1, 2, 0, 3)
        if incremental_state:
            k = torch.cat([incremental_state["key"], k], dim=2)  # (B, H, S, K)
            v = torch.cat([incremental_state["value"], v], dim=2)  # (B, H, S, d/H)
        if incremental_state is not None:
            incremental_state.update(key=k, value=v)
        scores = torch.einsum("bqd,bhkd->bhqk", q, k)  # (B, H, T, S)
        if attn_mask is not None:
            scores = scores + attn_mask
        heads = scores.softmax(dim=-1) @ v  # (B, H, T, d/H)
        return self.out_proj(heads.permute(2, 0, 1, 3).flatten(2)), None

    def reorder_incremental_state(self, incremental_state: Any, new_order: Tensor) -> Any:
        """Make row ``i`` of the cache what row ``new_order[i]`` is now (beam search)."""
        for name, tensor in incremental_state.items():
            incremental_state[name] = tensor.index_select(0, new_order)
        return incremental_state


#: These cache keys and values of every row; our own decoder keeps the beams of its attentions.
ROW_BY_ROW = (MultiheadAttention, AuthorsAttention)


def run(settings: Settings) -> Iterator[Record]:
    """All cases: a record for every form against stock, and against the authors' at the same K."""
    cores = build(settings)
    steps_cases = DECODING[: 2 if settings.main_only else None]
    length_cases = MAIN_LENGTHS if settings.main_only else LENGTHS
    length_budget = (2.0, 3)
    if settings.quick:
        steps_cases, length_cases, length_budget = [(40, 8, (0.5, 2))], [(32, 8)], (0.5, 2)
    for rows, steps, budget in steps_cases:
        # Self-attention over so many steps, with a reorder of beams after each.
        x, orders = inputs(steps, rows, settings), beam_orders(rows, steps, settings)
        decoders = {name: partial(decode_steps, core, x, orders) for name, core in cores.items()}
        labels: Record = {"case": f"decoding, {rows} rows (beam {BEAM}), {steps} steps"}
        labels |= {"work": steps, "unit": "steps"}
        yield from compared(decoders, min(steps, 6), steps, budget, labels, settings)
    for length, batch in length_cases:
        # Causal self-attention, without dropout.
        x = inputs(length, batch, settings)
        future = torch.full((length, length), float("-inf"), dtype=x.dtype, device=x.device).triu(1)
        passes = {name: partial(forward_backward, core, future) for name, core in cores.items()}
        labels = {"case": f"forward and backward, {batch} sequences of length {length}"}
        labels |= {"work": length * batch, "unit": "tokens"}
        yield from compared(passes, x, x, length_budget, labels, settings)


def build(settings: Settings) -> dict[str, nn.Module]:
    """One attention of each kind, by name; those that can have the same weights have them."""
    torch.manual_seed(settings.seed)
    stock = MultiheadAttention(DIM, HEADS, self_attention=True)
    ordinary = ConcatenatedAttention(DIM, HEADS, self_attention=True)
    ordinary.load_state_dict({**ordinary.state_dict(), **stock.state_dict()})
    cores: dict[str, nn.Module] = {STOCK: stock, Variant(HEADSIZE).name: ordinary}
    for reduction in REDUCTIONS:
        ours = CollaborativeAttention(DIM, HEADS, DIM // reduction, self_attention=True)
        cores[Variant(COLLAB, reduction).name] = ours
        if reduction in AUTHORS_REDUCTIONS:
            theirs = AuthorsAttention(DIM, HEADS, DIM // reduction, self_attention=True)
            theirs.load_state_dict(ours.state_dict())
            cores[f"authors' form K=d/{reduction}"] = theirs
    for core in cores.values():
        if not isinstance(core, ROW_BY_ROW):
            swap_linear(core)  # as in a model of ours
    return {name: settings.placed(core) for name, core in cores.items()}


def inputs(steps: int, rows: int, settings: Settings) -> Tensor:
    """``(steps, rows, d)``."""
    chance = torch.Generator().manual_seed(settings.seed)
    return settings.placed(torch.randn(steps, rows, DIM, generator=chance))


def compared(
    programs: Programs, first: Any, work: Any, budget: Budget, labels: Record,
    settings: Settings,
) -> Iterator[Record]:  # fmt: skip
    """Check outputs on ``first``, and time ``work``."""
    check_outputs({name: program(first) for name, program in programs.items()}, settings.dtype)
    pairs = [(STOCK, name) for name in programs if name != STOCK] + SAME[1:]
    labels = {"part": "core", "preset": f"d={DIM}, H={HEADS}", **labels}
    yield from timed(labels, programs, [work], budget, pairs)


def check_outputs(outputs: dict[str, Tensor], dtype: str) -> None:
    """Forms with the same weights must have the same outputs; raises UserError otherwise."""
    for one, other in SAME:
        apart = (outputs[one] - outputs[other]).abs().max().item()
        if not apart <= TOLERANCE[dtype]:
            raise unequal(f"outputs of {one} and {other} are {apart:.2g} apart")


# ---- decoding ------------------------------------------------------------------------------------


def beam_orders(rows: int, steps: int, settings: Settings) -> Tensor:
    """Which row each row continues, after each step, within its sentence: ``(steps, rows)``."""
    chance = torch.Generator().manual_seed(settings.seed)
    first = torch.arange(rows) // BEAM * BEAM
    return (first + torch.randint(BEAM, (steps, rows), generator=chance)).to(settings.device)


@torch.no_grad()
def decode_steps(core: Any, x: Tensor, orders: Tensor, steps: int) -> Tensor:
    """Outputs of so many steps ``(steps, rows, d)``, each attending to the steps so far."""
    core.eval()
    step = step_of_rows if isinstance(core, ROW_BY_ROW) else step_of_ours
    state: IncrementalState = {}
    return torch.cat([step(core, x[t : t + 1], orders[t], state) for t in range(steps)])


def step_of_rows(core: Any, x: Tensor, order: Tensor, state: IncrementalState) -> Tensor:
    """As fairseq's decoder layer calls it, and its generator reorders it."""
    output, _ = core(x, x, x, incremental_state=state, need_weights=False)
    core.reorder_incremental_state(state, order)
    return output


def step_of_ours(core: Any, x: Tensor, order: Tensor, state: IncrementalState) -> Tensor:
    """As :class:`fairseq_collab.models.decoder.Decoder` does."""
    started = beams.beam_history(state) if state else None
    history = started or beams.start_beam_history(state, x.size(1) // BEAM, x.size(1), x)
    history.extend()
    folded = beams.fold_beams(x, history.beam)  # (beam, B, d)
    output, _ = core(folded, folded, folded, incremental_state=state, need_weights=False)
    history.reorder(order)
    core.reorder_incremental_state(state, order)
    return beams.unfold_beams(output, 1)


# ---- forward and backward ------------------------------------------------------------------------


def forward_backward(core: nn.Module, future: Tensor, x: Tensor) -> Tensor:
    """One pass there and back; the output ``(T, B, d)``."""
    core.train()
    core.zero_grad()
    x = x.detach().requires_grad_()
    output, _ = core(x, x, x, attn_mask=future, need_weights=False)
    output.sum().backward()
    return output.detach()
