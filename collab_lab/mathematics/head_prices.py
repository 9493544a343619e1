"""Prices of removed heads, after ``out_proj`` has compensated as well as it can.

``out_proj`` reads the outputs of all heads side by side: a head is a group of its inputs
(:mod:`.removal`).  ``C`` is the covariance of what it reads, ``Delta`` the Fisher information of
its output (:mod:`collab_lab.statistics.moments`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from collab_lab.mathematics import removal
from collab_lab.statistics.gram import ridged
from collab_lab.statistics.moments import Statistics
from collab_lab.trained.attentions import HeadMaps, removed_together


def head_removals(module: Any, statistics: Statistics) -> Iterator[tuple[float, list[int]]]:
    """Yield all heads in order of removal, always the cheapest remaining: its price, and the heads.

    Heads that share a key or a value are removed together; in most attentions each goes by itself.
    """
    weight, covariance, fisher, size = _of_heads(module, statistics)
    together = removed_together(module)
    for rise, group in removal.group_removals(weight, covariance, fisher, size * together):
        yield rise, [*range(group * together, (group + 1) * together)]


def head_prices(module: Any, statistics: Statistics) -> list[float]:
    """The price of removing each head of an attention while the others stay, in bits: ``(H,)``."""
    return removal.prices(*_of_heads(module, statistics))


def head_noises(module: Any, statistics: Statistics) -> list[float]:
    """The standard error of each of :func:`head_prices`, from two halves of the sentences.

    It is half of the difference between the halves, or NaN if there was a single sentence.
    """
    return _noises([head_prices(module, half) for half in statistics.halves()], module.num_heads)


def _noises(halves: list[list[float]], number: int) -> list[float]:
    return [abs(a - b) / 2 for a, b in zip(*halves, strict=True)] if halves else [math.nan] * number


def _of_heads(module: Any, statistics: Statistics) -> tuple[Tensor, Tensor, Tensor, int]:
    """``W (d, H h_v)``, ``C``, ``Delta`` and ``h_v``."""
    out = HeadMaps.of(module).out  # (H, d, h_v)
    weight, covariance = out.transpose(0, 1).flatten(1), ridged(statistics.head_covariance)
    return weight, covariance, statistics.output_fisher, out.size(2)
