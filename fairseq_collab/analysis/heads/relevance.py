"""Relevance of heads to what a model predicts (Voita et al. 2019, arXiv 1905.09418, section 4).

    R_h = sum over positions and neurons of head h of their relevance to the top-1 logit
    relevance of h = mean over steps of R_h / sum_h' |R_h'|,      h' the heads of its layer (A.3)

A step is the model's prediction after a prefix of the reference.  It starts with relevance 1 at its
highest logit and hands it back to the inputs.  On the way it passes the heads.  A head's relevance
can be negative: it then speaks against what is predicted.

How relevance is handed on is a matter of rules:

paper      of the paper's appendix (A.2), see :mod:`fairseq_collab.analysis.heads.ratio`
ours       the same, but for attention, whose weights are coefficients.  And steps are added before
           heads are compared, so that one backward pass does for a whole batch
released   of the paper's code, see :mod:`fairseq_collab.analysis.heads.released`

Conservation is checked: the relevance of the inputs (embeddings of tokens and positions, on both
sides) and of the biases must add up to that of the output.

Shapes: ``B`` rows of a batch, ``H`` heads, ``T`` queries, ``S`` keys.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from collab_common.errors import UserError
from fairseq_collab.analysis.heads import ratio, released
from fairseq_collab.analysis.heads.parts import parts
from fairseq_collab.analysis.heads.weights import Means, head_outputs, per_head
from fairseq_collab.analysis.scores import hooked, inputs_of
from fairseq_collab.models.layers import Site
from fairseq_collab.trained.attentions import Attention

#: Names of rules; the first is the paper's.
RULES = ("paper", "ours", "released")
#: From this share of all relevance on, what was lost or made is not rounding (float32: some 1e-6).
TOLERANCE = 1e-3

#: What an attention computes from ``x (T, B, d)``, ``y (S, B, d_y)`` and weights ``(B, H, T, S)``:
#: the outputs of its heads, ``(B, H, T, h_v)``.  It may add constants to the list of inputs.
Core = Callable[[Any, Tensor, Tensor, Tensor, list[Tensor]], Tensor]


class Relevance:
    """The relevance of all heads, over batches, by one of :data:`RULES`.

    Args:
        model: an encoder-decoder transformer in eval mode.

    Raises:
        UserError: the model has no logits.
    """

    def __init__(self, model: Any, rule: str = "paper"):
        if model.decoder.adaptive_softmax is not None:
            what = "relevance starts from logits, which a model with adaptive softmax does not have"
            raise UserError(what, todo="give --no-relevance")
        self.rule = rule
        # Where sums nearly vanish, single precision would lose relevance.
        self.model = model if rule == "ours" else copy.deepcopy(model).double()
        self.means = Means()
        #: The largest share of a batch's relevance, signs apart, that was lost or made on the way.
        self.deviation = 0.0

    def add(self, sample: dict[str, Any]) -> None:
        """Count a batch of fairseq's; raises UserError where relevance is not conserved, by far."""
        net_input = sample["net_input"]
        if self.rule == "ours":
            read = net_input["prev_output_tokens"].ne(self.model.decoder.padding_idx)
            self._propagate(net_input, read)
            return
        for row in range(len(net_input["src_tokens"])):
            steps = single_steps(self.model, net_input, row)
            one_each = torch.ones_like(steps["src_lengths"]).diag().bool()  # (T, T)
            for part in parts(len(one_each), self._bytes_of(steps)):
                self._propagate({name: x[part] for name, x in steps.items()}, one_each[part])

    def _bytes_of(self, steps: dict[str, Any]) -> int:
        """The largest tensor that one row needs, in double precision."""
        source, target = steps["src_tokens"].size(1), steps["prev_output_tokens"].size(1)
        longest = max(source, target)
        if self.rule == "paper":  # products of weights and values
            return 8 * longest**2 * self.model.decoder.output_projection.in_features
        layers = [*self.model.encoder.layers, *self.model.decoder.layers]
        units = max(layer.fc1.out_features for layer in layers)
        heads = max(layer.self_attn.num_heads for layer in layers)
        return 8 * longest * max(units, longest * heads)

    def _propagate(self, net_input: dict[str, Any], steps: Tensor) -> None:
        """Count the steps ``(B, T)`` that are true."""
        handing, core = _HANDING[self.rule]
        inputs = [x for name, x in self.model.named_parameters() if name.endswith(".bias")]
        with (
            torch.enable_grad(),
            handing(self.model),
            embeddings(self.model, inputs),
            computed_heads(self.model, core, inputs),
            head_outputs(self.model) as outputs,
        ):
            features = self.model(**net_input, features_only=True)[0]  # (B, T, d)
            start = torch.zeros_like(features)
            start[steps] = self._start(features.detach()[steps])
            heads = list(outputs.values())
            # Some have no effect, such as the biases of queries and keys: their gradient is 0.
            found = torch.autograd.grad(
                features, [*heads, *inputs], start, allow_unused=True, materialize_grads=True
            )
        for (attention, output), handed in zip(outputs.items(), found, strict=False):
            relevance = handed if self.rule == "released" else output.detach() * handed
            shares = per_head(relevance, attention.module.num_heads).sum(0)  # (B, H)
            if self.rule != "ours":  # each row is one step
                shares = normalised(shares)
            self.means.add(attention.site, attention.layer, shares.sum(0), steps.sum())
        if self.rule != "released":  # which has no biases, and scales what it hands on
            handed_on = zip(inputs, found[len(heads) :], strict=True)
            arrived = torch.cat([(x.detach().double() * unit).flatten() for x, unit in handed_on])
            self._check(float(steps.sum()), arrived)

    def _start(self, features: Tensor) -> Tensor:
        """What the features of steps ``(n, d)`` get of the relevance 1 of each highest logit."""
        decoder = self.model.decoder
        top = decoder.output_layer(features).argmax(-1)  # (n)
        weight = decoder.output_projection.weight[top].detach()  # (n, d)
        products = weight * features
        if self.rule == "released":
            return released.shares_of(products)
        return weight * ratio.per_unit(products.sum(-1, keepdim=True))

    def _check(self, started: float, arrived: Tensor) -> None:
        total = float(arrived.sum())
        deviation = abs(total - started) / max(float(arrived.abs().sum()), started)
        if not deviation < TOLERANCE:
            raise UserError(
                f"of {started:.6g} relevance {total:.6g} arrived at the inputs: the model "
                "computes something that relevance propagation has no rule for"
            )
        self.deviation = max(self.deviation, deviation)

    def result(self) -> dict[Site, list[list[float]]]:
        """The relevance of each head among those of its layer."""
        found = self.means.result()
        if self.rule != "ours":
            return found
        return {
            site: [normalised(torch.tensor(layer).double()).tolist() for layer in layers]
            for site, layers in found.items()
        }


def single_steps(model: Any, net_input: dict[str, Any], row: int) -> dict[str, Any]:
    """A sentence, as often as it has steps: ``T`` equal rows without padding."""
    source, read = net_input["src_tokens"][row], net_input["prev_output_tokens"][row]
    source = source[source.ne(model.encoder.padding_idx)]
    read = read[read.ne(model.decoder.padding_idx)]
    return {
        "src_tokens": source.expand(len(read), -1),
        "src_lengths": torch.full_like(read, len(source)),
        "prev_output_tokens": read.expand(len(read), -1),
    }


def normalised(relevance: Tensor) -> Tensor:
    """Of a layer's heads ``(..., H)``, over the sum of absolute values; 0 stays 0."""
    total = relevance.abs().sum(-1, keepdim=True)
    return relevance / total.masked_fill(total == 0, 1)


@contextmanager
def computed_heads(model: nn.Module, core: Core, inputs: list[Tensor]) -> Iterator[None]:
    """While it lasts, what the heads of each attention give is what ``core`` computes."""
    seen: dict[str, Any] = {}

    def called(found: Attention) -> Any:
        def before(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
            seen["inputs"] = inputs_of(module, args, kwargs)

        return found.module.register_forward_pre_hook(before, with_kwargs=True)

    def weighed(found: Attention) -> Any:  # called with the weights, after the softmax
        def after(module: nn.Module, args: Any, weights: Tensor) -> None:
            of_heads = weights.detach().reshape(-1, found.module.num_heads, *weights.shape[-2:])
            seen["weights"] = of_heads

        return found.module.dropout_module.register_forward_hook(after)

    def joined(found: Attention) -> Any:
        def before(module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
            x, y = seen["inputs"]
            heads = core(found.module, x, y, seen["weights"], inputs)
            return (heads.permute(2, 0, 1, 3).flatten(2),)  # (B, H, T, h_v) -> (T, B, H * h_v)

        return found.module.out_proj.register_forward_pre_hook(before)

    with hooked(model, called), hooked(model, weighed), hooked(model, joined):
        yield


@contextmanager
def embeddings(model: Any, inputs: list[Tensor]) -> Iterator[None]:
    """While it lasts, a forward pass adds embeddings of tokens and positions to the inputs."""

    def keep(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        inputs.append(output.detach().requires_grad_())
        return inputs[-1]

    sides = (model.encoder, model.decoder)
    found = {getattr(side, name) for side in sides for name in ("embed_tokens", "embed_positions")}
    with ExitStack() as hooks:
        for module in found - {None}:
            hooks.enter_context(module.register_forward_hook(keep))
        yield


#: How a model hands relevance on outside of attention, and what its attentions compute.
_HANDING: dict[str, tuple[Callable[[Any], AbstractContextManager[None]], Core]] = {
    "paper": (ratio.rules, ratio.shared),
    "ours": (ratio.rules, ratio.to_values),
    "released": (released.rules, released.attend),
}
