"""The rules by which relevance goes from a model's output back to its inputs.

    R_u = sum_v w_{u->v} R_v,      w_{u->v} = W_uv u / (sum_u' W_u'v u' + b_v)

The ratio rule of Ding et al. (ACL 2017), which Voita et al. (2019, arXiv 1905.09418) use: a neuron
``v`` hands its relevance to the neurons ``u`` that it is computed from, to each its share of the
sum.  Nothing is lost: the relevance of the inputs adds up to that of the output.

Relevance per unit of activation, ``r = R / activation``, goes the way of gradients:

    r_u = sum_v W_uv r_v

So where a model is linear, torch's backward pass *is* the ratio rule, through residual connections
and scaling, too, and no activation is divided by that may be near zero.  The rest is computed, in
the forward pass, as linear with coefficients that are constants for the backward pass:

==================  ==============================  ================================================
activation          ``a(x) = x * [a(x) / x]``       ``R_x = R_a``: non-linearities are ignored
layer norm          ``(x - mean(x)) * [1 / std]``   the mean is linear, the deviation a coefficient
attention           ``sum_s [A_ts] v_s``            all relevance to the values, none to who scores
==================  ==============================  ================================================

Two of these are choices.  **Attention**: Ding's rule for a product, ``u / (u + u')``, would share
between a weight and a value as if they were summed, and divides by a sum that can vanish; half to
each would conserve relevance, too, but half of it would reach the inputs through scores.  With
weights as coefficients an output is explained by what its heads carry to it.

**Biases** are neurons that are always 1, and take their share.  To leave them out of the
denominators would keep all relevance with the inputs; but a sum without its bias can vanish where
the sum with it does not.  Measured on a Multi30k transformer (3+3 layers of 4 heads, 39.8 BLEU,
7,907 target tokens in two halves, double precision, each step starting with relevance 1):

=====================================  ============================  ==============================
biases                                 sum of |R| of inputs, a step  correlation of heads' R between
                                                                     the two halves
=====================================  ============================  ==============================
neurons                                7                             0.999
left out, denominators at least 1e-9   2e14 or more                  -0.32
left out, denominators at least 1e-2   42 to 244; 6 to 32 % is lost  0.23
=====================================  ============================  ==============================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_collab.analysis.scores import attentions

Activation = Callable[[Tensor], Tensor]


@contextmanager
def relevance_rules(model: nn.Module) -> Iterator[None]:
    """While it lasts, backward passes through ``model`` hand on relevance per unit of activation.

    Forward passes give what they always give, up to rounding.

    Raises:
        TypeError: see :func:`fairseq_collab.analysis.scores.attentions`.
    """
    with ExitStack() as undo:
        for attention in attentions(model):
            weights = attention.module.dropout_module  # called with them, after the softmax
            undo.callback(weights.register_forward_hook(_constant).remove)
        parts: list[Any] = list(model.modules())
        for module in parts:
            if isinstance(module, nn.LayerNorm):
                undo.callback(module.register_forward_hook(_with_constant_deviation).remove)
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


def _constant(module: nn.Module, inputs: Any, weights: Tensor) -> Tensor:
    return weights.detach()


def _with_constant_deviation(norm: nn.LayerNorm, inputs: tuple[Tensor], output: Tensor) -> Tensor:
    """The output ``(..., d)`` again, by a graph in which the standard deviation is a constant."""
    (x,) = inputs
    axes = tuple(range(-len(norm.normalized_shape), 0))
    deviation = torch.sqrt(x.detach().var(axes, unbiased=False, keepdim=True) + norm.eps)
    y = (x - x.mean(axes, keepdim=True)) / deviation
    if norm.weight is not None:
        y = y * norm.weight
    return y if norm.bias is None else y + norm.bias
