"""Moments of what every attention of a model reads, on real sentences.

    X = E [x 1]^T [x 1],      Y = E (y - mean of the sentence)^T (y - mean of the sentence),
    Z = E (y - E y)^T (y - E y)      over all tokens, padding left out

``X`` weighs queries, ``Y`` keys, ``Z`` values.  The softmax compares keys of one sentence, and what
all of them have in common cancels; values do not cancel.

Shapes: ``X (d + 1, d + 1)``, ``Y, Z (d_y, d_y)``, in double precision.  Queries of an attention
come from its own side; keys and values of cross-attention are the encoder's output.  Only sums are
kept: ``O(d^2)`` memory for any number of sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from collab_common.progress import bar
from fairseq_collab.trained.attentions import Attention, inputs_of
from fairseq_collab.trained.opener import Trained, collated, spread


@dataclass(frozen=True)
class Moments:
    """Statistics of one attention's inputs: ``X``, ``Y``, ``Z``; mean of values ``(d_y)``."""

    query: Tensor
    key: Tensor
    value: Tensor
    value_mean: Tensor


class InputSums:
    """Running sums of what one attention reads: of queries, keys and values."""

    def __init__(self) -> None:
        self.queries, self.keys, self.values = Sums(), Sums(), Sums()

    def add(self, x: Tensor, x_real: Tensor, y: Tensor, y_real: Tensor, time: int) -> None:
        """Count the inputs of queries ``x`` and of keys ``y`` where ``real`` masks are true.

        Shapes: ``(T, B, d)``, ``(T, B)``, ``(S, B, d_y)``, ``(S, B)`` with dimension 0 for
        ``time``, or batch first with dimension 1.
        """
        weights = y_real.to(y).unsqueeze(2)
        centre = (y * weights).sum(time, keepdim=True)
        centre = centre / weights.sum(time, keepdim=True).clamp_min(1)
        self.queries.add(x[x_real])
        self.keys.add((y - centre)[y_real])
        self.values.add(y[y_real])

    def moments(self) -> Moments:
        """``X``, ``Y``, ``Z`` and the mean of values so far."""
        keys, values = self.keys.covariance(), self.values.covariance()
        return Moments(self.queries.with_constant(), keys, values, self.values.mean())


class Sums:
    """Running sums over tokens ``x (N, d)``: how many, of ``x``, and of ``x^T x``."""

    def __init__(self) -> None:
        self.count, self.first, self.second = 0, torch.tensor(0.0), torch.tensor(0.0)

    def add(self, x: Tensor) -> None:
        x = x.double()
        self.count += len(x)
        self.first = self.first.to(x) + x.sum(0)
        self.second = self.second.to(x) + x.T @ x

    def mean(self) -> Tensor:
        return self.first / self.count

    def with_constant(self) -> Tensor:
        """``E [x 1]^T [x 1] (d + 1, d + 1)``."""
        mean = self.mean()
        rows = torch.cat([self.second / self.count, mean.unsqueeze(0)])
        return torch.cat([rows, torch.cat([mean, mean.new_ones(1)]).unsqueeze(1)], 1)

    def covariance(self) -> Tensor:
        mean = self.mean()
        return self.second / self.count - torch.outer(mean, mean)


def batches(trained: Trained, subset: str, number: int) -> list[dict[str, Any]]:
    """Batches with targets of ``number`` sentences, chosen as in :func:`.opener.spread`.

    Sentences of like length share a batch, which is on the model's device.
    """
    dataset, chosen = spread(trained, subset, number)
    order = sorted(chosen, key=lambda index: int(dataset.num_tokens(index)))
    return list(collated("sentences", dataset, order, trained.model))


def moments(
    trained: Trained, inputs: Sequence[dict[str, Any]], places: Sequence[Attention]
) -> dict[Attention, Moments]:
    """Run the model on ``inputs``; the statistics of each of the ``places``."""
    sums = {place: InputSums() for place in places}
    pad = trained.task.source_dictionary.pad()
    real: dict[str, Tensor] = {}  # where this batch has tokens on each side: (T, B)

    def see(place: Attention, module: nn.Module, args: Any, kwargs: Any) -> None:
        x, key = inputs_of(module, args, kwargs)  # (T, B, d), (S, B, d_y)
        y = key if place.type == "cross" else x
        x_real = real["encoder" if place.type == "encoder" else "decoder"]
        y_real = real["decoder" if place.type == "decoder" else "encoder"]
        sums[place].add(x, x_real, y, y_real, time=0)

    with torch.inference_mode(), ExitStack() as hooks:
        for place in places:
            hook = partial(see, place)
            hooks.enter_context(place.module.register_forward_pre_hook(hook, with_kwargs=True))
        for net_input in bar("calibration", inputs):
            source = net_input["src_tokens"]
            real["encoder"] = source.ne(pad).T
            real["decoder"] = net_input.get("prev_output_tokens", source).ne(pad).T
            trained.model(**net_input)
    return {place: one.moments() for place, one in sums.items()}
