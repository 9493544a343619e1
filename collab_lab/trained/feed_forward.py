"""All feed-forward blocks of a model, fairseq's own or ours: their places and their inner values.

    h = act(x W1^T + b1),      o = h W2^T + b2

Shapes: ``x (T, B, d)``, ``h (T, B, F)``, ``o (T, B, d)``; ``W1 (F, d)`` is ``fc1``, ``W2 (d, F)``
is ``fc2``.  A *unit* is one of the F numbers of h.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from collab_lab.trained.attentions import OnePass

_NAME = re.compile(r"(?P<side>encoder|decoder)\.layers\.(?P<layer>\d+)")


@dataclass(frozen=True)
class FeedForward:
    """A feed-forward block: its side, its layer (counted from 0), the layer's module, its name.

    Two blocks are equal if they have the same place, as with :class:`.Attention`.
    """

    side: str
    layer: int
    module: Any = field(compare=False, repr=False)
    name: str

    def __str__(self) -> str:
        return f"{self.side} {self.layer} feed-forward"

    @property
    def width(self) -> int:
        """F, the number of units: a gated block of a plug-in has an ``fc1`` twice as wide."""
        return int(self.module.fc2.in_features)


def feed_forwards(model: nn.Module) -> list[FeedForward]:
    """All feed-forward blocks of a translation or language model, encoder first."""
    unsorted = []
    for name, module in model.named_modules(remove_duplicate=False):
        if (match := _NAME.fullmatch(name)) and hasattr(module, "fc1"):
            unsorted.append(FeedForward(match["side"], int(match["layer"]), module, name))
    return sorted(unsorted, key=lambda block: (block.side != "encoder", block.layer))


@contextmanager
def recorded(model: nn.Module) -> Iterator[dict[FeedForward, tuple[Tensor, Tensor]]]:
    """Context whose mapping records, by block, ``h`` of one pass and a tensor of zeros.

    The zeros are added to ``o``, so that their gradient is the gradient of ``o`` even if all
    weights are frozen.

    Raises:
        UserError: a block is called several times: see :class:`.OnePass`.
    """
    calls = OnePass[FeedForward, tuple[Tensor, Tensor]]()

    def hook(block: FeedForward) -> Any:
        def after(_module: Any, args: Any, output: Tensor) -> Tensor:
            zeros = torch.zeros_like(output, requires_grad=True)
            calls[block] = args[0].detach(), zeros
            return output + zeros

        return block.module.fc2.register_forward_hook(after)

    with ExitStack() as hooks:
        for block in feed_forwards(model):
            hooks.enter_context(hook(block))
        yield calls
