"""Relevance of heads to what a model predicts (Voita et al. 2019, arXiv 1905.09418, section 4).

    R_h = sum over steps, positions and neurons of head h of their relevance to the top-1 logit,
    relevance of h = R_h / sum_h' |R_h'|,      h' the heads of its layer

Every step of generation (the model's prediction after a prefix of the reference) starts with
relevance 1 at its highest logit and hands it back to the inputs.  On the way it passes the heads.
A head's relevance can be negative: it then speaks against what is predicted.  The paper normalises
over the heads of a layer and averages over steps; here steps are added first, so that one backward
pass does for all steps of a batch.  Since all start with the same relevance, each counts alike.

The rule, by which nothing is lost, is the ratio rule of Ding et al. (ACL 2017), as in the paper: a
neuron ``v`` hands its relevance to the neurons ``u`` that it is computed from, to each its share:

    R_u = sum_v w_{u->v} R_v,      w_{u->v} = W_uv u / (sum_u' W_u'v u' + b_v)

Relevance per unit of activation, ``r = R / activation``, goes the way of gradients:
``r_u = sum_v W_uv r_v``.  So where a model is linear, torch's backward pass *is* the ratio rule,
through residual connections and scaling, too, and no activation is divided by that may be near
zero.  The rest is computed, in the forward pass, as linear with coefficients that are constants for
the backward pass:

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
7,907 target tokens in two halves, double precision): with biases as neurons, |R| of the inputs adds
up to 7 a step, and the heads' R of the two halves correlate with 0.999.  Left out, with
denominators of 1e-9 at least, to 2e14 and more (correlation -0.32); of 1e-2 at least, to 42 to 244
(0.23), and 6 to 32 % is lost.

Conservation is checked on every batch: the relevance of the inputs (embeddings of tokens and
positions, on both sides) and of the biases must add up to that of the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from collab_common.errors import UserError
from fairseq_collab.analysis.heads.weights import Means, head_outputs, per_head
from fairseq_collab.checkpoints.attentions import attentions
from fairseq_collab.models.layers import Site

#: Added to the size of a logit that relevance is divided by.
EPSILON = 1e-9
#: From this share of all relevance on, what was lost or made is not rounding (float32: some 1e-6).
TOLERANCE = 1e-3

Activation = Callable[[Tensor], Tensor]


class Relevance:
    """Adds up the relevance of all heads over batches.

    Args:
        model: an encoder-decoder transformer in eval mode.

    Raises:
        UserError: the model has no logits.
    """

    def __init__(self, model: Any):
        if model.decoder.adaptive_softmax is not None:
            raise UserError(
                "relevance starts from logits, which a model with adaptive softmax does not have",
                todo="give --no-relevance",
            )
        self.model = model
        self.means = Means()
        #: The largest share of a batch's relevance that was lost or made on the way.
        self.deviation = 0.0

    def add(self, sample: dict[str, Any]) -> None:
        """Count a batch of fairseq's, on the model's device.

        Raises:
            UserError: relevance is not conserved, by far.
        """
        net_input = sample["net_input"]
        biases = [x for name, x in self.model.named_parameters() if name.endswith("bias")]
        with (
            torch.enable_grad(),
            relevance_rules(self.model),
            embeddings(self.model) as inputs,
            head_outputs(self.model) as outputs,
        ):
            top = self.model(**net_input)[0].amax(dim=-1)  # (B, T)
            is_step = net_input["prev_output_tokens"].ne(self.model.decoder.padding_idx)
            start = per_unit(top.detach()) * is_step
            heads = list(outputs.values())
            # Some have no effect, such as the biases of queries and keys: their gradient is 0.
            found = torch.autograd.grad(
                top, [*heads, *inputs, *biases], start, allow_unused=True, materialize_grads=True
            )
        for (attention, output), unit in zip(outputs.items(), found, strict=False):
            shares = per_head(output.detach() * unit, attention.module.num_heads)  # (T, B, H)
            self.means.add(attention.site, attention.layer, shares.sum((0, 1)), is_step.sum())
        arrived = zip([*inputs, *biases], found[len(heads) :], strict=True)
        self._check(_total([(top, start)]), _total(arrived))

    def _check(self, started: float, arrived: float) -> None:
        deviation = abs(arrived - started) / abs(started)
        if not deviation < TOLERANCE:
            raise UserError(
                f"of {started:.6g} relevance {arrived:.6g} arrived at the inputs: the model "
                "computes something that relevance propagation has no rule for"
            )
        self.deviation = max(self.deviation, deviation)

    def result(self) -> dict[Site, list[list[float]]]:
        """The relevance of each head among those of its layer; absolute values add up to 1."""
        return {site: [*map(_shares, layers)] for site, layers in self.means.result().items()}


def per_unit(logits: Tensor) -> Tensor:
    """Relevance 1 for each, per unit of activation."""
    return 1 / (logits + torch.where(logits < 0, -EPSILON, EPSILON))


def _shares(relevance: list[float]) -> list[float]:
    """Of a layer's heads, over the sum of absolute values; 0 stays 0."""
    total = sum(map(abs, relevance))
    return [one / total if total else one for one in relevance]


def _total(pairs: Iterable[tuple[Tensor, Tensor]]) -> float:
    """All relevance of pairs of an activation and its relevance per unit."""
    return sum(float((x.detach().double() * unit).sum()) for x, unit in pairs)


@contextmanager
def embeddings(model: Any) -> Iterator[list[Tensor]]:
    """While it lasts, a forward pass fills the list with embeddings of tokens and positions."""
    seen: list[Tensor] = []

    def keep(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        seen.append(output.detach().requires_grad_())
        return seen[-1]

    sides = (model.encoder, model.decoder)
    found = {getattr(side, name) for side in sides for name in ("embed_tokens", "embed_positions")}
    with ExitStack() as hooks:
        for module in found - {None}:
            hooks.enter_context(module.register_forward_hook(keep))
        yield seen


@contextmanager
def relevance_rules(model: nn.Module) -> Iterator[None]:
    """While it lasts, backward passes through ``model`` hand on relevance per unit of activation.

    Forward passes give what they always give, up to rounding.
    """
    with ExitStack() as undo:
        for attention in attentions(model):
            weights = attention.module.dropout_module  # called with them, after the softmax
            undo.enter_context(weights.register_forward_hook(_constant))
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
