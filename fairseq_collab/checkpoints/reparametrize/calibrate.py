"""Means and covariances of what every attention of a model reads, on real sentences.

    mean = E x,     covariance = E (x - E x)^T (x - E x)      over all tokens, padding left out

Shapes: ``mean (d)``, ``covariance (d, d)``, in double precision.  Queries of an attention come from
its own side; keys of cross-attention are the encoder's output.  Nothing is kept but sums: as many
sentences as you like, in ``O(d^2)`` memory.

For keys the mean is that of the *sentence*: the softmax compares keys of one sentence, and what all
of them have in common cancels.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from fairseq import utils
from fairseq.data import data_utils
from torch import Tensor, nn

from fairseq_collab.attention.checks import check_choice
from fairseq_collab.checkpoints.attentions import Attention
from fairseq_collab.checkpoints.opener import Trained, spread

#: What the factorisation minimises the error of.  ``scores``: of the centred scores, by the
#: covariances.  ``weights``: of the weights.  ``root``: halfway, by the covariances' square roots.
#: On Multi30k ``root`` loses least: scores count common words most, and weights none.
WEIGHTINGS = ("root", "scores", "weights")
#: Tokens of a batch, at most (but one sentence at least).
MAX_TOKENS = 4096


@dataclass(frozen=True)
class Moments:
    """Statistics of one attention's inputs: ``query_mean (d)``, covariances ``(d, d)``."""

    query_mean: Tensor
    query_covariance: Tensor
    key_covariance: Tensor

    def metrics(self, weighting: str) -> tuple[Tensor | None, Tensor | None]:
        """``Cx (d, d)`` and ``Cy (d_y, d_y)`` for one of :data:`WEIGHTINGS`; None for weights."""
        check_choice("weighting", weighting, WEIGHTINGS)
        if weighting == "weights":
            return None, None
        if weighting == "scores":
            return self.query_covariance, self.key_covariance
        return square_root(self.query_covariance), square_root(self.key_covariance)


def square_root(matrix: Tensor) -> Tensor:
    """The symmetric root of a symmetric, positive semi-definite matrix ``(d, d)``."""
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.clamp_min(0).sqrt()) @ vectors.T


class Sums:
    """Running sums of ``x (N, d)``: count, sum, and sum of ``x^T x`` about some centre."""

    def __init__(self) -> None:
        self.count = 0
        self.first: Tensor | float = 0.0
        self.second: Tensor | float = 0.0

    def add(self, x: Tensor) -> None:
        x = x.double()
        self.count += len(x)
        self.first = self.first + x.sum(0)
        self.second = self.second + x.T @ x

    def mean(self) -> Tensor:
        return torch.as_tensor(self.first) / self.count

    def covariance(self) -> Tensor:
        mean = self.mean()
        return torch.as_tensor(self.second) / self.count - torch.outer(mean, mean)


def sentences(trained: Trained, subset: str, number: int) -> list[dict[str, Any]]:
    """Batches of the model's inputs for ``number`` sentences, evenly spread over ``subset``.

    Sentences of like length share a batch.
    """
    dataset, chosen = spread(trained, subset, number)
    order = np.array(sorted(chosen, key=lambda index: int(dataset.num_tokens(index))))
    most = max(MAX_TOKENS, int(dataset.num_tokens(order[-1])))
    batches = data_utils.batch_by_size(order, dataset.num_tokens, max_tokens=most)
    return [dataset.collater([dataset[int(i)] for i in batch])["net_input"] for batch in batches]


def moments(
    trained: Trained,
    inputs: Sequence[dict[str, Any]],
    places: Sequence[Attention],
    progress: Callable[[Sequence[Any]], Sequence[Any]] = lambda items: items,
) -> dict[Attention, Moments]:
    """Run the model on ``inputs``; the statistics of each of the ``places``."""
    queries = {place: Sums() for place in places}
    keys = {place: Sums() for place in places}

    def see(place: Attention, x: Tensor, y: Tensor, x_real: Tensor, y_real: Tensor) -> None:
        queries[place].add(x[x_real])
        weights = y_real.to(y).unsqueeze(2)  # (S, B, 1)
        centre = (y * weights).sum(0) / weights.sum(0).clamp_min(1)  # (B, d)
        keys[place].add((y - centre)[y_real])

    pad = trained.task.source_dictionary.pad()
    with torch.inference_mode():
        for net_input in progress(inputs):
            moved = utils.move_to_cuda(net_input) if trained.device.type == "cuda" else net_input
            with watched(places, moved, pad, see):
                trained.model(**moved)
    return {
        place: Moments(seen.mean(), seen.covariance(), keys[place].covariance())
        for place, seen in queries.items()
    }


@contextmanager
def watched(
    places: Sequence[Attention],
    net_input: dict[str, Any],
    pad: int,
    see: Callable[[Attention, Tensor, Tensor, Tensor, Tensor], None],
) -> Iterator[None]:
    """While it lasts, each of the ``places`` that runs on ``net_input`` calls ``see``.

    With itself, queries' inputs ``x (T, B, d)``, keys' inputs ``y (S, B, d_y)``, and where they are
    no padding: ``(T, B)`` and ``(S, B)``, true at real tokens.
    """
    encoder = net_input["src_tokens"].ne(pad).T  # (S, B)
    decoder = net_input.get("prev_output_tokens", net_input["src_tokens"]).ne(pad).T  # (T, B)

    def hook(place: Attention) -> Callable[[nn.Module, Any, Any], None]:
        x_real = encoder if place.site == "encoder" else decoder
        y_real = decoder if place.site == "decoder" else encoder

        def called(module: Any, args: Any, kwargs: Any) -> None:
            given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
            x, y = given["query"], given.get("key")
            see(place, x, x if y is None or place.site != "cross" else y, x_real, y_real)

        return called

    handles = [
        place.module.register_forward_pre_hook(hook(place), with_kwargs=True) for place in places
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
