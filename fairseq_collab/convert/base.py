"""Targets of a conversion: a kind of heads, and a size for each attention."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor

from fairseq_collab.convert.calibrate import Moments
from fairseq_collab.convert.low_rank import Roots, relative_error, root
from fairseq_collab.models.base import Variant
from fairseq_collab.trained.attentions import Attention, HeadMaps

#: The state dict of a new attention without its signature, and its errors.
Converted = tuple[dict[str, Tensor], dict[str, Any]]


class Part:
    """One trained attention: its maps, and the weights of their errors.

    Args:
        seen: moments of its inputs; without them all inputs have equal weights.
    """

    def __init__(self, module: Any, seen: Moments | None):
        self.module, self.heads = module, HeadMaps.of(module)
        self.value_mean = None if seen is None else seen.value_mean
        if seen is None:
            self.roots = Roots.ones(self.heads)
            self.value_roots = self.roots.key, self.roots.key_inverse
        else:
            self.roots, self.value_roots = Roots.of(seen.query, seen.key), root(seen.value)

    def state(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Weights in the precision of the trained attention."""
        dtype = self.module.k_proj.weight.dtype
        return {name: one.detach().to(dtype).contiguous() for name, one in weights.items()}

    def kept(self, *names: str) -> dict[str, Tensor]:
        """Weights and biases of projections that stay as they are."""
        own = self.module.state_dict()
        return {name: weight for name, weight in own.items() if name.startswith(names)}

    def score_error(self, queries: Tensor, keys: Tensor) -> float:
        """Relative error of the centred scores; see :func:`.relative_error`."""
        return relative_error(self.heads, self.roots, queries, keys)

    def lost(self, values: Tensor, out: Tensor) -> Tensor:
        """What other values ``(H, d_y, h_v)`` and outputs ``(H, d, h_v)`` lose: ``(H, d_y, d)``."""
        return self.heads.values[:, :-1] @ self.heads.out.mT - values @ out.mT

    def value_error(self, values: Tensor, out: Tensor) -> float:
        """Relative error of the heads' outputs with other values and output projections."""
        metric, heads = self.value_roots[0], self.heads
        whole = torch.linalg.vector_norm(metric @ heads.values[:, :-1] @ heads.out.mT)
        lost = torch.linalg.vector_norm(metric @ self.lost(values, out))
        return float(lost / whole) if whole else 0.0

    def out_bias(self, values: Tensor, out: Tensor) -> Tensor:
        """The output's bias ``(d)`` for other values, which have no bias, and outputs.

        Attention weights sum to one.  So it contains the biases of the trained values exactly, and
        makes good what the mean of all inputs loses.
        """
        heads = self.heads
        found = heads.out_bias + torch.einsum("hdk,hk->d", heads.out, heads.values[:, -1])
        if self.value_mean is None:
            return found
        return found + self.value_mean @ self.lost(values, out).sum(0)


class Target:
    """A kind of heads, with the options of the command."""

    #: Its architectures, and the name of its heads in messages.
    variant: ClassVar[Variant]
    heads: ClassVar[str]
    #: The option of its size (``--key-dim``, ``--key-dim-in-TYPE``), and the name of that size.
    size: ClassVar[str]
    what: ClassVar[str]
    #: Parts of standard heads that must have the size d/H: keys, values.
    even: tuple[str, ...] = ()
    #: Options of the result, whatever its sizes.
    options: Mapping[str, Any] = MappingProxyType({})
    #: Options of the variant that are taken over from the trained model, if it has them.
    inherited: tuple[str, ...] = ()

    def __init__(self, args: Namespace):
        self.args = args

    def largest(self, module: Any) -> int:
        """The size that is exact for an attention: of keys, all that its heads have."""
        return int(module.k_proj.out_features)

    def kept(self, module: Any) -> int:
        """The size of an attention that is left as it is."""
        return self.largest(module)

    @staticmethod
    def converts(module: Any) -> bool:
        """Whether an attention that is left as it is must be converted, too, at its own size."""
        return False

    def check(self, place: Attention, path: Path) -> None:
        """Raise UserError for options, other than sizes, that do not fit an attention."""

    def out_of_range(self, module: Any, size: int) -> str | None:
        """The sizes that an attention can have, if ``size`` is none of them."""
        largest = self.largest(module)
        return None if 1 <= size <= largest else f"give one from 1 to {largest}, which is exact"

    def convert(self, part: Part, size: int) -> Converted:
        """The new attention in place of ``part.module``."""
        raise NotImplementedError
