"""Relevance of heads to what a model predicts (Voita et al. 2019, arXiv 1905.09418, section 4).

    R_h = sum over steps, positions and neurons of head h of their relevance to the top-1 logit,
    relevance of h = R_h / sum_h' |R_h'|,      h' the heads of its layer

Every step of generation (the model's prediction after a prefix of the reference) starts with
relevance 1 at its highest logit and hands it back to the inputs by the rules of
:mod:`fairseq_collab.analysis.heads.lrp_rules`.  On the way it passes the heads.  A head's relevance
can be negative: it then speaks against what is predicted.

The paper normalises over the heads of a layer and averages over steps.  Here steps are added first,
so that one backward pass does for all steps of a batch; since all start with the same relevance,
each counts alike.  Where all heads of a layer have positive relevance, theirs adds up to 1.

Conservation is checked on every batch: the relevance of the inputs (embeddings of tokens and
positions, on both sides) and of the biases must add up to that of the output.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from collab_common.errors import UserError
from fairseq_collab.analysis.heads.head_outputs import (
    by_site,
    head_outputs,
    per_head,
    trained_alone,
)
from fairseq_collab.analysis.heads.lrp_rules import relevance_rules
from fairseq_collab.analysis.scores import Attention
from fairseq_collab.models.layers import Site

#: Added to the size of a logit that relevance is divided by.
EPSILON = 1e-9
#: From this share of all relevance on, what was lost or made is not rounding (float32: some 1e-6).
TOLERANCE = 1e-3


class Relevance:
    """Adds up the relevance of all heads over batches.

    Args:
        model: an encoder-decoder transformer in eval mode.

    Raises:
        TypeError: see :func:`fairseq_collab.analysis.scores.attentions`.
        UserError: the model has no logits.
    """

    def __init__(self, model: Any):
        if model.decoder.adaptive_softmax is not None:
            raise UserError(
                "relevance starts from logits, which a model with adaptive softmax does not have",
                todo="give --no-relevance",
            )
        self.model = model
        self.sums: dict[Attention, Tensor] = {}
        #: The largest share of a batch's relevance that was lost or made on the way.
        self.deviation = 0.0

    def add(self, sample: dict[str, Any]) -> None:
        """Count a batch of fairseq's, on the model's device.

        Raises:
            UserError: relevance is not conserved, by far.
        """
        net_input = sample["net_input"]
        with (
            torch.enable_grad(),
            relevance_rules(self.model),
            trained_alone(self.model, _is_bias) as biases,
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
        relevance = {
            attention: per_head(output.detach() * unit, attention.module.num_heads).sum((0, 1))
            for (attention, output), unit in zip(outputs.items(), found, strict=False)
        }
        for attention, total in relevance.items():
            self.sums[attention] = self.sums.get(attention, 0) + total.double().cpu()  # (H,)
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
        return by_site({found: _shares(total) for found, total in self.sums.items()})


@contextmanager
def embeddings(model: Any) -> Iterator[list[Tensor]]:
    """While it lasts, a forward pass fills the list with embeddings of tokens and positions."""
    seen: list[Tensor] = []

    def keep(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        seen.append(output.detach().requires_grad_())
        return seen[-1]

    sides = (model.encoder, model.decoder)
    found = {getattr(side, name) for side in sides for name in ("embed_tokens", "embed_positions")}
    handles = [module.register_forward_hook(keep) for module in found if module is not None]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def per_unit(logits: Tensor) -> Tensor:
    """Relevance 1 for each, per unit of activation."""
    return 1 / (logits + torch.where(logits < 0, -EPSILON, EPSILON))


def _shares(relevance: Tensor) -> Tensor:
    """``(H,)`` over the sum of its absolute values; 0 stays 0."""
    total = relevance.abs().sum()
    return relevance / total if total > 0 else relevance


def _is_bias(name: str) -> bool:
    return name.endswith("bias")


def _total(pairs: Iterable[tuple[Tensor, Tensor]]) -> float:
    """All relevance of pairs of an activation and its relevance per unit."""
    return sum(float((x.detach().double() * unit).sum()) for x, unit in pairs)
