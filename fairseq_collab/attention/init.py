"""Initial weights of projections, as fairseq draws them: one seed gives both the same model."""

from __future__ import annotations

import math

from torch import nn

#: Initial projections: fairseq's at every size, or with the jump in gain of the authors' fork of
#: arXiv 2006.16362 (gain 1/sqrt(2) where all projections are square, and else 1).
INITS = ("constant", "fork")


def init_projection(projection: nn.Linear, same_dims: bool) -> None:
    """Initialise as fairseq does: Xavier, with gain 1/sqrt(2) where all inputs have size ``d``."""
    nn.init.xavier_uniform_(projection.weight, gain=1 / math.sqrt(2) if same_dims else 1.0)


def init_output(projection: nn.Linear) -> None:
    """Initialise an output projection as fairseq does: Xavier, bias zero."""
    nn.init.xavier_uniform_(projection.weight)
    nn.init.zeros_(projection.bias)
