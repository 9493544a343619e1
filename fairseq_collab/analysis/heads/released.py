"""Relevance as the released code of Voita et al. 2019 hands it on (lena-voita/the-story-of-heads).

The code came after the paper, and has another rule than its appendix: every step is linearised, and
the contributions ``z_uv`` to a neuron ``v`` share its relevance, those of either sign one half:

    R_u = sum_v (z+_uv / (2 sum_u' z+_u'v) + z-_uv / (2 sum_u' z-_u'v)) R_v
    z_uv = (dv / du) u + v(0) / n,      n the number of neurons u; v(0) is a bias

Then the relevance of all ``u`` is scaled so that it adds up to that of all ``v``: for single
positions, and in attention for single heads.  So it is never negative.  Attention is one step, from
queries, keys and values to the outputs of a head; its derivatives, and those of layer norm, are all
taken: who scores gets relevance, too.  Queries, keys and values of a position come from its input
in one step.

In the backward pass, gradients *are* relevance.  All rows of a batch are the same sentence, each
with a step of its own; so ``z`` is that of the first row.

Shapes: ``B`` rows, ``T`` queries, ``S`` keys, ``H`` heads, ``e`` size of queries and keys, ``h``
size of values; in ``einsum`` b, t, s, n, e, h; o and i are neurons after and before a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_collab.analysis.heads.parts import parts
from fairseq_collab.analysis.scores import matrix_of, projections
from fairseq_collab.attention.scores import for_each_head

#: Added to what is divided by, as in the released code.
EPSILON = 1e-5

#: From the relevance of an output to that of its inputs.
Handing = Callable[[Tensor], tuple[Tensor, ...]]


class Handed(torch.autograd.Function):
    """``Handed.apply(handing, output, *inputs)`` is the output; relevance goes as handed."""

    @staticmethod
    def forward(ctx: Any, handing: Handing, output: Tensor, *inputs: Tensor) -> Tensor:
        ctx.handing = handing
        return output.detach().clone()

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Any, ...]:
        return None, None, *ctx.handing(relevance)


def shares_of(z: Tensor) -> Tensor:
    """Which share of a neuron's relevance each of its contributions ``(..., i)`` gets."""
    positive, negative = z.clamp_min(0), z.clamp_max(0)
    positive = positive / (positive.sum(-1, keepdim=True) + EPSILON)
    return (positive + negative / (negative.sum(-1, keepdim=True) - EPSILON)) / 2


def scaled(found: Tensor, given: Tensor, axes: tuple[int, ...] = (-1,)) -> Tensor:
    """``found`` with the sum that ``given`` has over the axes."""
    return found * (given.sum(axes, keepdim=True) / (found.sum(axes, keepdim=True) + EPSILON))


def linear(jacobian: Tensor, bias: Tensor | None, x: Tensor, relevance: Tensor) -> Tensor:
    """Through a linear map, position by position: ``(T, B, o) -> (T, B, i)``.

    Shapes: ``jacobian (o, i)`` or ``(T, o, i)``, ``bias (o)``, ``x (T, i)``.
    """
    z = jacobian * x[:, None]  # (T, o, i)
    if bias is not None:
        z = z + bias[:, None] / x.size(-1)
    return scaled(torch.einsum("tbo,toi->tbi", relevance, shares_of(z)), relevance)


def by_position(step: Callable[[Tensor, Tensor], Tensor], x: Tensor, relevance: Tensor) -> Tensor:
    """``step(x, relevance)``, which forms ``(T, o, i)``, of some positions at a time."""
    each = relevance.size(-1) * x.size(-1) * x.element_size()
    return torch.cat([step(x[part], relevance[part]) for part in parts(len(x), each)])


def through_linear(module: nn.Linear, args: tuple[Tensor], output: Tensor) -> Tensor:
    """A hook of linear maps."""
    (x,) = args

    def handing(relevance: Tensor) -> tuple[Tensor]:
        step = partial(linear, module.weight.detach(), module.bias)
        return (by_position(step, x[:, 0].detach(), relevance),)

    return Handed.apply(handing, output, x)


def through_norm(module: nn.LayerNorm, args: tuple[Tensor], output: Tensor) -> Tensor:
    """A hook of layer norms: ``dy_o / dx_i = w_o ((o = i) - 1/d - x^_o x^_i / d) / std``."""
    (x,) = args

    def step(row: Tensor, relevance: Tensor) -> Tensor:
        d, deviation = row.size(-1), (row.var(-1, unbiased=False) + module.eps).sqrt()
        unit = (row - row.mean(-1, keepdim=True)) / deviation[:, None]
        centre = torch.eye(d).to(row) - 1 / d
        jacobian = (centre - unit[:, :, None] * unit[:, None] / d) / deviation[:, None, None]
        return linear(module.weight.detach()[:, None] * jacobian, module.bias, row, relevance)

    def handing(relevance: Tensor) -> tuple[Tensor]:
        return (by_position(step, x[:, 0].detach(), relevance),)

    return Handed.apply(handing, output, x)


def added(x: Tensor, residual: Tensor) -> Tensor:
    """In place of fairseq's residual connection: ``(T, B, d)`` each."""

    def handing(relevance: Tensor) -> tuple[Tensor, Tensor]:
        parts = shares_of(torch.stack([x, residual], -1).detach()) * relevance[..., None]
        found = scaled(parts, relevance[..., None], (-2, -1))
        return found[..., 0], found[..., 1]

    return Handed.apply(handing, x + residual, x, residual)


def passed(activation: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """An activation, which relevance passes unchanged."""
    return Handed.apply(lambda relevance: (relevance,), activation(x), x)


@contextmanager
def rules(model: Any) -> Iterator[None]:
    """While it lasts, backward passes through the layers of ``model`` hand on relevance."""
    with ExitStack() as undo:
        layers = [*model.encoder.layers, *model.decoder.layers]
        for part in [*layers, model.encoder.layer_norm, model.decoder.layer_norm]:
            for module in part.modules() if part is not None else ():
                if isinstance(module, nn.Linear):
                    undo.enter_context(module.register_forward_hook(through_linear))
                if isinstance(module, nn.LayerNorm):
                    undo.enter_context(module.register_forward_hook(through_norm))
        for layer in layers:
            undo.callback(setattr, layer, "activation_fn", layer.activation_fn)
            layer.activation_fn = partial(passed, layer.activation_fn)
            undo.callback(delattr, layer, "residual_connection")
            layer.residual_connection = added
        yield


# ---- attention -----------------------------------------------------------------------------------


def attend(module: Any, x: Tensor, y: Tensor, weights: Tensor, inputs: list[Tensor]) -> Tensor:
    """The outputs of the heads, ``(B, H, T, h)``."""
    value = for_each_head(projections(module)[2](y), module.num_heads)
    handing = partial(through_attention, module, x[:, 0].detach(), y[:, 0].detach(), weights[0])
    sources = (x,) if x is y else (x, y)
    return Handed.apply(handing, weights @ value, *sources)


def through_attention(
    module: Any, x: Tensor, y: Tensor, weights: Tensor, relevance: Tensor
) -> tuple[Tensor, ...]:
    """From the outputs of heads ``(B, H, T, h)`` to ``x (T, d)``, ``y (S, d_y)``, with rows."""
    matrices = [
        matrix_of(project, z.size(-1), module.k_proj.weight).detach()  # (H or G, d + 1, e)
        for project, z in zip(projections(module), (x, y, y), strict=True)
    ]
    q, k, v = (
        z @ m[:, :-1] + m[:, -1:] for z, m in zip((x, y, y), matrices, strict=True)
    )  # (H, T, e), (G, S, e), (G, S, h)
    handed = through_heads(q, k, v, weights, relevance)
    both = zip(handed, matrices, strict=True)
    # Outputs of the projections side by side: (B, H, T, e) -> (T, B, H * e), (H, d + 1, e) ->
    # (H * e, d + 1).
    sides = [(r.permute(2, 0, 1, 3).flatten(2), m.transpose(1, 2).flatten(0, 1)) for r, m in both]
    if module.self_attention:
        return (_projected(x, sides),)
    return _projected(x, sides[:1]), _projected(y, sides[1:])


def _projected(x: Tensor, sides: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Through projections of the same input: ``(T, d) -> (T, B, d)``."""
    relevance = torch.cat([r for r, _ in sides], -1)
    matrix = torch.cat([m for _, m in sides])
    return by_position(partial(linear, matrix[:, :-1], matrix[:, -1]), x, relevance)


def through_heads(
    q: Tensor, k: Tensor, v: Tensor, weights: Tensor, relevance: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """From the outputs of heads to queries, keys and values, each with a dimension of rows before.

    Shapes: ``q (H, T, e)``, ``k (G, S, e)``, ``v (G, S, h)`` (G of its own), ``weights (H, T, S)``,
    relevance ``(B, H, T, h)``.
    """
    heads, groups = len(q), (len(k), len(v))
    k, v = (for_each_head(shared[None], heads)[0] for shared in (k, v))
    each = max(k.numel(), v.numel()) * q.element_size()
    found = [
        _of_queries(q[:, part], k, v, weights[:, part], relevance[:, :, part])
        for part in parts(q.size(1), each)
    ]
    of_q, of_k, of_v = zip(*found, strict=True)
    to_q, to_k, to_v = torch.cat(of_q, 2), sum(of_k), sum(of_v)
    given = relevance.sum((2, 3), keepdim=True)
    total = sum(part.sum((2, 3), keepdim=True) for part in (to_q, to_k, to_v))
    to_q, to_k, to_v = (part * (given / (total + EPSILON)) for part in (to_q, to_k, to_v))
    # Of keys and values that heads share, all parts.
    to_k, to_v = (
        part.unflatten(1, (number, -1)).sum(2)
        for part, number in zip((to_k, to_v), groups, strict=True)
    )
    return to_q, to_k, to_v


def _of_queries(
    q: Tensor, k: Tensor, v: Tensor, weights: Tensor, relevance: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """What these queries hand on to themselves, to keys and to values, before it is scaled.

    With ``o_th = sum_s A_ts v_sh`` and ``c_ths = d o_th / d logit_ts = A_ts (v_sh - o_th)``:

        z of v_sh: A_ts v_sh;    of q_te: q_te sum_s c_ths k_se;    of k_se: c_ths q_te k_se

    The last is never formed: its positive part is c+ a+ + c- a-, with ``a_tse = q_te k_se``.
    """
    of_v = torch.einsum("nts,nsh->nths", weights, v)
    c = weights[:, :, None] * (v.transpose(1, 2)[:, None] - of_v.sum(-1, keepdim=True))
    of_q = torch.einsum("nths,nse->nthe", c, k) * q[:, :, None]
    a = q[:, :, None] * k[:, None]  # (H, T, S, e)
    v_up, q_up, up, right = (z.clamp_min(0) for z in (of_v, of_q, c, a))
    v_down, q_down, down, left = (z.clamp_max(0) for z in (of_v, of_q, c, a))

    def of_k(c: Tensor, a: Tensor) -> Tensor:
        return torch.einsum("nths,nts->nth", c, a.sum(-1))

    positive = v_up.sum(-1) + q_up.sum(-1) + of_k(up, right) + of_k(down, left) + EPSILON
    negative = v_down.sum(-1) + q_down.sum(-1) + of_k(up, left) + of_k(down, right) - EPSILON
    plus, minus = relevance / positive / 2, relevance / negative / 2  # (B, H, T, h)

    def gathered(form: str, of_plus: Tensor, of_minus: Tensor) -> Tensor:
        return torch.einsum(form, plus, of_plus) + torch.einsum(form, minus, of_minus)

    to_v = gathered("bnth,nths->bnsh", v_up, v_down)
    to_q = gathered("bnth,nthe->bnte", q_up, q_down)
    to_right = gathered("bnth,nths->bnts", up, down)
    to_left = gathered("bnth,nths->bnts", down, up)
    to_k = torch.einsum("bnts,ntse->bnse", to_right, right)
    to_k = to_k + torch.einsum("bnts,ntse->bnse", to_left, left)
    return to_q, to_k, to_v
