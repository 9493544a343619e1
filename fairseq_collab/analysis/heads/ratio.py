"""Relevance per unit of activation, which gradients hand on by the ratio rule.

A neuron ``v`` hands its relevance to the neurons ``u`` that it is computed from, each its share:

    sum      R_u = W_uv u / (sum_u' W_u'v u' + b_v) R_v        (Ding et al., ACL 2017)
    a(x)     R_x = R_a                                         non-linearities are ignored
    u u'     R_u = u / (u + u') R,   R_u' = u' / (u + u') R    (Voita et al. 2019, A.2)

Two rules differ in attention, ``sum_s A_ts v_s`` with ``A = softmax(q k^T)``.  The paper's shares
both products: weights and values, queries and keys.  It divides by sums that can vanish, so that
much relevance of either sign can arise.  For ours ``A`` is a coefficient: all relevance goes to the
values, none to who scores.

Per unit of activation, ``r = R / activation``, relevance goes the way of gradients:
``r_u = sum_v W_uv r_v``.  So where a model is linear, torch's backward pass *is* the ratio rule,
through residual connections and scaling, too, and no activation is divided by that may be near
zero.  The rest is computed as linear, with coefficients [c] that the backward pass does not enter:

    activation    a(x) = x [a(x) / x]
    layer norm    (x - mean(x)) [1 / std]                      the paper does not speak of it
    product       u u' = [c] (u + u'),   c = u u' / (u + u')

**Biases** are neurons that are always 1, and take their share.  To leave them out of the
denominators would keep all relevance with the inputs; but a sum without its bias can vanish where
the sum with it does not.  Measured on a Multi30k transformer (3+3 layers of 4 heads, 39.8 BLEU,
7,907 target tokens in two halves, double precision, our rule): with biases as neurons, |R| of the
inputs adds up to 7 a step, and the heads' R of the two halves correlate with 0.999.  Left out, with
denominators of 1e-9 at least, to 2e14 and more (correlation -0.32).

Shapes: ``B`` rows of a batch, ``H`` heads, ``T`` queries, ``S`` keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_collab.analysis.heads.parts import parts
from fairseq_collab.analysis.scores import projections
from fairseq_collab.attention.scores import for_each_head, weighted_values

#: Added to the size of what relevance is divided by, so that 0 is not: anything more would lose
#: relevance where sums nearly vanish.
EPSILON = 1e-30

Activation = Callable[[Tensor], Tensor]


def per_unit(logits: Tensor) -> Tensor:
    """Relevance 1 for each, per unit of activation."""
    return 1 / away_from_zero(logits)


def away_from_zero(x: Tensor) -> Tensor:
    return x + torch.where(x < 0, -EPSILON, EPSILON)


# ---- in attention --------------------------------------------------------------------------------


def to_values(module: Any, x: Tensor, y: Tensor, weights: Tensor, inputs: list[Tensor]) -> Tensor:
    """Our rule: all relevance goes to the values."""
    return weighted_values(weights, projections(module)[2](y))


def shared(module: Any, x: Tensor, y: Tensor, weights: Tensor, inputs: list[Tensor]) -> Tensor:
    """The paper's rule: weights and values share relevance, and so do queries and keys."""
    query, key, value = projections(module)
    heads = weights.size(1)
    # What of queries and keys is constant, biases and the column of a content score, is an input.
    q, k = (_with_constant(project, z, inputs) for project, z in ((query, x), (key, y)))
    scores = SharedProduct.apply(q, for_each_head(k, heads).transpose(2, 3))  # (B, H, T, S)
    # The softmax is a non-linearity; where a score is 0, relevance is 0 on both sides.
    coefficient = (weights / scores.detach()).masked_fill(scores == 0, 0)
    passed = weights + (scores - scores.detach()) * coefficient
    return SharedProduct.apply(passed, for_each_head(value(y), heads))


def _with_constant(project: Callable[[Tensor], Tensor], z: Tensor, inputs: list[Tensor]) -> Tensor:
    """The projection of ``z``, whose constant part is one more of the inputs."""
    constant = project(torch.zeros_like(z[:1, :1]))
    inputs.append(constant.detach().requires_grad_())
    return project(z) - constant + inputs[-1]


class SharedProduct(torch.autograd.Function):
    """``a b``, whose backward pass is that of ``sum_n [c] (a + b)`` with ``c = a b / (a + b)``.

    Shapes: ``(..., T, n), (..., n, S) -> (..., T, S)``.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx: Any, unit: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        of_a, of_b = torch.zeros_like(a), torch.zeros_like(b)
        b = b.unsqueeze(-3)  # (..., 1, n, S)
        each = b.numel() * b.element_size()
        for part in parts(a.size(-2), each):
            some = a[..., part, :, None]  # (..., t, n, 1)
            found = some * b / away_from_zero(some + b)
            found *= unit[..., part, None, :]  # (..., t, n, S)
            of_a[..., part, :] = found.sum(-1)
            of_b += found.sum(-3)
        return of_a, of_b


# ---- elsewhere -----------------------------------------------------------------------------------


@contextmanager
def rules(model: nn.Module) -> Iterator[None]:
    """While it lasts, backward passes through ``model`` hand on relevance per unit of activation.

    Forward passes give what they always give, up to rounding.
    """
    with ExitStack() as undo:
        parts: list[Any] = list(model.modules())
        for module in parts:
            if isinstance(module, nn.LayerNorm):
                undo.enter_context(module.register_forward_hook(_with_constant_deviation))
            if hasattr(module, "activation_fn"):
                undo.callback(setattr, module, "activation_fn", module.activation_fn)
                module.activation_fn = ignored(module.activation_fn)
        yield


def ignored(activation: Activation) -> Activation:
    """``activation`` as a product of its input with a constant, so that relevance passes it."""

    def scale(x: Tensor) -> Tensor:
        given = x.detach()
        # Where x is 0, relevance is 0 on both sides.
        return x * (activation(given) / given).masked_fill(given == 0, 0)

    return scale


def _with_constant_deviation(norm: nn.LayerNorm, inputs: tuple[Tensor], output: Tensor) -> Tensor:
    """The output ``(..., d)`` again, by a graph in which the standard deviation is a constant."""
    (x,) = inputs
    axes = tuple(range(-len(norm.normalized_shape), 0))
    deviation = torch.sqrt(x.detach().var(axes, unbiased=False, keepdim=True) + norm.eps)
    y = (x - x.mean(axes, keepdim=True)) / deviation
    if norm.weight is not None:
        y = y * norm.weight
    return y if norm.bias is None else y + norm.bias
