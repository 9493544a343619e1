"""Relevance of heads to what a model predicts (Voita et al. 2019, arXiv 1905.09418, section 4).

    R_h = sum over positions and neurons of head h of their relevance to the top-1 logit
    relevance of h = mean over steps of R_h / sum_h' |R_h'|,      h' the heads of its layer (A.3)

A step is the model's prediction after a prefix of the reference; first targets that the training
left out (``--ignore-prefix-size``) are none.  It starts with relevance 1 at its highest logit and
propagates it to the inputs.  A head with negative relevance speaks against the prediction.  The
relevance of the inputs (embeddings of tokens and positions, on both sides) and of the biases must
add up to that of the output, which is checked.

The rule (appendix A.2): a neuron ``v`` hands its relevance to the neurons ``u`` that it is computed
from, each its share:

    sum      R_u = W_uv u / (sum_u' W_u'v u' + b_v) R_v        (Ding et al., ACL 2017)
    a(x)     R_x = R_a                                         non-linearities are ignored
    u u'     R_u = u / (u + u') R,   R_u' = u' / (u + u') R

Attention ``sum_s A_ts v_s`` with ``A = softmax(q k^T)`` has two products: weights and values,
queries and keys.  ``u / (u + u')`` depends on where the scale of the scores sits, and the paper
does not say.  Here it is part of the query, which moves normalised relevance by up to 0.06 on a
trained model.

Per unit of activation, ``r = R / activation``, relevance propagates as gradients do:
``r_u = sum_v W_uv r_v``.  So where a model is linear, torch's backward pass *is* the rule, and no
activation near zero is a divisor.  The rest is computed as linear, with coefficients [c] that the
backward pass does not enter:

    activation    a(x) = x [a(x) / x]
    layer norm    (x - mean(x)) [1 / std]                      not in the paper
    product       u u' = [c] (u + u'),   c = u u' / (u + u')

**Biases** are neurons that are always 1, and get their share.  Without it, all relevance would stay
with the inputs; but a sum without its bias can vanish where the sum with it does not.  On a trained
Multi30k transformer, with attention weights as constants, the heads' relevance on two halves of a
text correlates with 0.999 with that share, and with -0.32 without.

Shapes: ``B`` rows of a batch, ``H`` heads, ``T`` queries, ``S`` keys.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from collab_common.errors import UserError
from collab_lab.heads.attention_weights import Means, head_outputs, per_head
from collab_lab.trained.attentions import Attention, hooked, inputs_of, projections
from collab_lab.trained.sentences import IGNORED
from fairseq_collab.attention.scores import for_each_head

#: Added to divisors, so that none is 0.  A larger number would lose relevance at small sums.
EPSILON = 1e-30
#: The largest share of relevance that may be lost or made on the way.
TOLERANCE = 1e-3
#: Shares of either sign can be 1e9 times their sum; this share of their sizes may be rounding.
ROUNDING = 1e-9
#: Bytes of the largest tensor, from which the number of steps at once follows.
LARGEST = 2**28


class Relevance:
    """The relevance of all heads, over batches.

    Args:
        model: an encoder-decoder transformer in eval mode.
    """

    def __init__(self, model: Any):
        if model.decoder.adaptive_softmax is not None:
            problem = (
                "relevance starts from logits, which a model with adaptive softmax does not have"
            )
            raise UserError(problem, todo="give --relevance-sentences 0")
        # Where sums nearly vanish, single precision would lose relevance.
        self.model = copy.deepcopy(model).double()
        #: The relevance of each head among those of its layer.
        self.means = Means()
        #: The largest share of relevance that was lost or made on the way.
        self.deviation = 0.0

    def add(self, sample: dict[str, Any]) -> None:
        """Add a batch of fairseq; raise UserError if relevance is not conserved."""
        net_input = sample["net_input"]
        for row in range(len(net_input["src_tokens"])):
            steps = single_steps(self.model, net_input, row)
            longest = max(steps[side].size(1) for side in ("src_tokens", "prev_output_tokens"))
            row_bytes = 8 * longest**2 * self.model.decoder.output_projection.in_features  # bytes
            step_of_row = torch.ones_like(steps["src_lengths"]).diag().bool()  # (T, T)
            unlearnt = sample.get(IGNORED, 0)  # a training may leave first targets out
            step_of_row = step_of_row[unlearnt:]
            steps = {name: x[unlearnt:] for name, x in steps.items()}
            if not len(step_of_row):
                continue
            for rows in torch.arange(len(step_of_row)).split(max(1, LARGEST // row_bytes)):
                self._propagate({name: x[rows] for name, x in steps.items()}, step_of_row[rows])

    def _propagate(self, net_input: dict[str, Any], steps: Tensor) -> None:
        """Count the steps ``(B, T)`` that are true, one in each row."""
        inputs = [x for name, x in self.model.named_parameters() if name.endswith(".bias")]
        with (
            torch.enable_grad(),
            requiring_gradients(inputs),
            rules(self.model),
            embeddings(self.model, inputs),
            shared_relevance(self.model, inputs),
            head_outputs(self.model) as outputs,
        ):
            features = self.model.extract_features(**net_input)[0]  # (B, T, d)
            start = torch.zeros_like(features)
            start[steps] = self._start(features.detach()[steps])
            heads = list(outputs.values())
            # The gradient of inputs without effect, as biases of keys, is 0.
            gradients = torch.autograd.grad(
                features, [*heads, *inputs], start, allow_unused=True, materialize_grads=True
            )
        for (attention, output), unit in zip(outputs.items(), gradients, strict=False):
            shares = per_head(output.detach() * unit, attention.module.num_heads).sum(0)  # (B, H)
            self.means.add(attention.type, attention.layer, normalised(shares).sum(0), steps.sum())
        handed_on = zip(inputs, gradients[len(heads) :], strict=True)
        arrived = torch.cat([(x.detach() * unit).flatten() for x, unit in handed_on])
        self._check(float(steps.sum()), arrived)

    def _start(self, features: Tensor) -> Tensor:
        """Relevance per unit of the features ``(n, d)``, of 1 at each highest logit."""
        decoder = self.model.decoder
        top = decoder.output_layer(features).argmax(-1)  # (n)
        weight = decoder.output_projection.weight[top].detach()  # (n, d)
        return weight / away_from_zero((weight * features).sum(-1, keepdim=True))

    def _check(self, started: float, arrived: Tensor) -> None:
        total = float(arrived.sum())
        deviation = abs(total - started) / (started + ROUNDING * float(arrived.abs().sum()))
        if not deviation < TOLERANCE:
            raise UserError(
                f"of {started:.6g} relevance {total:.6g} arrived at the inputs: the model "
                "computes something that relevance propagation has no rule for",
                todo="give --relevance-sentences 0",
            )
        self.deviation = max(self.deviation, deviation)


def single_steps(model: Any, net_input: dict[str, Any], row: int) -> dict[str, Any]:
    """Repeat a sentence for each of its ``T`` steps: ``T`` equal rows without padding."""
    source, read = net_input["src_tokens"][row], net_input["prev_output_tokens"][row]
    source = source[source.ne(model.encoder.padding_idx)]
    read = read[read.ne(model.decoder.padding_idx)]
    return {
        "src_tokens": source.expand(len(read), -1),
        "src_lengths": torch.full_like(read, len(source)),
        "prev_output_tokens": read.expand(len(read), -1),
    }


def normalised(relevance: Tensor) -> Tensor:
    """A layer's relevance ``(..., H)`` divided by the sum of its absolute values; 0 stays 0."""
    total = relevance.abs().sum(-1, keepdim=True)
    return relevance / total.masked_fill(total == 0, 1)


@contextmanager
def shared_relevance(model: nn.Module, inputs: list[Tensor]) -> Iterator[None]:
    """Context in which :func:`head_outputs_of` computes the heads of each attention."""
    seen: dict[str, Any] = {}

    def called(attention: Attention) -> Any:
        def before(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
            seen["inputs"] = inputs_of(module, args, kwargs)

        return attention.module.register_forward_pre_hook(before, with_kwargs=True)

    def weighed(attention: Attention) -> Any:  # called with the weights, after the softmax
        def after(module: nn.Module, args: Any, weights: Tensor) -> None:
            of_heads = weights.detach().reshape(-1, attention.module.num_heads, *weights.shape[-2:])
            seen["weights"] = of_heads

        return attention.module.dropout_module.register_forward_hook(after)

    def joined(attention: Attention) -> Any:
        def before(module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
            x, y = seen["inputs"]
            heads = head_outputs_of(attention.module, x, y, seen["weights"], inputs)
            return (heads.permute(2, 0, 1, 3).flatten(2),)  # (B, H, T, h_v) -> (T, B, H * h_v)

        return attention.module.out_proj.register_forward_pre_hook(before)

    with hooked(model, called), hooked(model, weighed), hooked(model, joined):
        yield


@contextmanager
def requiring_gradients(parameters: Sequence[Tensor]) -> Iterator[None]:
    """Context in which frozen parameters also have gradients."""
    frozen = [parameter for parameter in parameters if not parameter.requires_grad]
    for parameter in frozen:
        parameter.requires_grad_()
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)


@contextmanager
def embeddings(model: Any, inputs: list[Tensor]) -> Iterator[None]:
    """Context in which a forward pass appends embeddings of tokens and positions to ``inputs``."""

    def collect(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        inputs.append(output.detach().requires_grad_())
        return inputs[-1]

    sides = (model.encoder, model.decoder)
    modules = {
        getattr(side, name) for side in sides for name in ("embed_tokens", "embed_positions")
    }
    with ExitStack() as hooks:
        for module in modules - {None}:
            hooks.enter_context(module.register_forward_hook(collect))
        yield


def away_from_zero(x: Tensor) -> Tensor:
    """Move numbers away from 0, so that one can divide by them."""
    return x + torch.where(x < 0, -EPSILON, EPSILON)


# ---- the rule -----------------------------------------------------------------------------------


def head_outputs_of(
    module: Any, x: Tensor, y: Tensor, weights: Tensor, inputs: list[Tensor]
) -> Tensor:
    """The heads' outputs ``(B, H, T, h_v)``, whose backward pass propagates relevance.

    Shapes: ``x (T, B, d)``, ``y (S, B, d_y)``, ``weights (B, H, T, S)``.  The constant parts of
    queries and keys (biases and content scores) are appended to ``inputs``.
    """
    query, key, value = projections(module)
    heads = weights.size(1)
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
    """The product ``a b``, with the backward pass of ``sum_n [c] (a + b)``, ``c = a b / (a + b)``.

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
        for t in range(a.size(-2)):  # all queries at once would take T times the memory
            some = a[..., t, :, None]  # (..., n, 1)
            shares = some * b / away_from_zero(some + b) * unit[..., t, None, :]  # (..., n, S)
            of_a[..., t, :] = shares.sum(-1)
            of_b += shares
        return of_a, of_b


@contextmanager
def rules(model: nn.Module) -> Iterator[None]:
    """Context in which backward passes propagate relevance per unit of activation.

    Forward passes give the same results up to rounding.
    """
    with ExitStack() as undo:
        modules: list[Any] = list(model.modules())
        for module in modules:
            if isinstance(module, nn.LayerNorm):
                undo.enter_context(module.register_forward_hook(_with_constant_deviation))
            if hasattr(module, "activation_fn"):
                undo.callback(setattr, module, "activation_fn", module.activation_fn)
                module.activation_fn = partial(as_product, module.activation_fn)
        yield


def as_product(activation: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """``activation(x)`` as ``x`` times a constant; if ``x`` is 0, its relevance is also 0."""
    return x * (activation(x) / x).detach().masked_fill(x == 0, 0)


def _with_constant_deviation(norm: nn.LayerNorm, inputs: tuple[Tensor], output: Tensor) -> Tensor:
    """The output ``(..., d)`` again, by a graph in which the standard deviation is a constant."""
    (x,) = inputs
    axes = tuple(range(-len(norm.normalized_shape), 0))
    deviation = torch.sqrt(x.detach().var(axes, unbiased=False, keepdim=True) + norm.eps)
    y = (x - x.mean(axes, keepdim=True)) / deviation
    if norm.weight is not None:
        y = y * norm.weight
    return y if norm.bias is None else y + norm.bias
