"""Published scores, to stand beside ours where an experiment has a counterpart.

Source: Cordonnier, Loukas, Jaggi, "Multi-Head Attention: Collaborate Instead of Concatenate", 2020,
arXiv 2006.16362, key-dimension table: WMT14 English-German, transformer base (d = 512, 8 heads).
The figures were taken from a third party's summary.  The parameter counts agree with our own count
of those models (vocabulary of 32,768); the BLEU scores have not been confirmed independently.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MODEL_DIM = 512
COLUMN = f"paper's BLEU (WMT14, d = {MODEL_DIM}, same d/K)"
SOURCE = (
    "Cordonnier, Loukas, Jaggi 2020, arXiv 2006.16362: another corpus (WMT14 English-German), "
    f"another model (transformer base, d = {MODEL_DIM}) and an unstated kind of BLEU; rows are "
    "matched by the ratio of model dimension d to key dimension K (its code's choices of scale and "
    "initialisation are those of fork_collab and fork_concatenated). Figures as in a third party's "
    "summary, BLEU not confirmed independently"
)


@dataclass(frozen=True)
class Published:
    """A row of the paper's table; ``parameters`` in millions, as printed."""

    method: str
    key_dim: int
    bleu: float
    parameters: float


ROWS = (
    Published("concatenated", 512, 27.40, 60.9),
    Published("collab", 512, 27.58, 61.0),
    Published("concatenated", 256, 27.10, 56.2),
    Published("collab", 256, 27.41, 56.2),
    Published("concatenated", 128, 26.89, 53.8),
    Published("collab", 128, 27.40, 53.8),
    Published("concatenated", 64, 26.77, 52.6),
    Published("collab", 64, 27.31, 52.7),
)


def counterpart(method: str, reduction: float) -> Published | None:
    """The published row of a method at the ratio ``reduction`` = d/K; None if there is none."""
    for row in ROWS:
        if row.method == method and math.isclose(MODEL_DIM / row.key_dim, reduction):
            return row
    return None
