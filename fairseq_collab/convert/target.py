"""What trained heads can become: a kind of heads, and a size for each attention."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from torch import Tensor

from fairseq_collab.convert.calibrate import Moments
from fairseq_collab.convert.heads import Weighed
from fairseq_collab.models.base import Variant
from fairseq_collab.trained.attentions import Attention

#: The state dict of a new attention but for its signature, and how well it fits.
Converted = tuple[dict[str, Tensor], dict[str, Any]]


class Target:
    """A kind of heads, with the options of the command."""

    #: Its architectures, and what a model of them is said to have.
    variant: ClassVar[Variant]
    heads: ClassVar[str]
    #: The option of its size (``--key-dim``, ``--key-dim-in-SITE``), and what that is.
    size: ClassVar[str]
    what: ClassVar[str]
    #: What of concatenated heads must have the size d/H.
    even: tuple[str, ...] = ()
    #: The weights of a trained attention that do not stay as they are.
    changed: tuple[str, ...] = tuple(f"{name}_proj.weight" for name in ("q", "k", "v", "out"))
    #: Options that the results have whatever their sizes.
    options: Mapping[str, Any] = MappingProxyType({})
    #: Options of the variant that mean the same in the trained model, if it has them.
    inherited: tuple[str, ...] = ()

    def __init__(self, args: Namespace):
        self.args = args

    @staticmethod
    def largest(module: Any) -> int:
        """The size that is exact for an attention."""
        raise NotImplementedError

    @classmethod
    def kept(cls, module: Any) -> int:
        """The size of an attention that is left as it is."""
        return cls.largest(module)

    @staticmethod
    def converts(module: Any) -> bool:
        """Whether an attention that keeps its size is converted all the same."""
        return False

    def check(self, place: Attention, path: Path) -> None:
        """Refuse options, other than sizes, that do not fit an attention; raises UserError."""

    @classmethod
    def out_of_range(cls, module: Any, size: int) -> str | None:
        """Which sizes an attention can have, if ``size`` is none of them."""
        largest = cls.largest(module)
        return None if 1 <= size <= largest else f"give one from 1 to {largest}, which is exact"

    def part(self, module: Any, seen: Moments | None) -> Any:
        """What all sizes of an attention have in common; ``seen`` is None without sentences."""
        return Weighed.of(module, seen, self.args.weighting)

    def convert(self, module: Any, part: Any, size: int) -> Converted:
        """The new attention in place of ``module``."""
        raise NotImplementedError
