"""Forced scoring: how probable a model finds a given translation.

    total = sum_t log p(y_t | x, y_<t),      mean = total / |y|,      end of sentence included

Shapes: ``B`` sentences, ``T`` target symbols, ``V`` symbols of the dictionary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq import utils
from fairseq.data import LanguagePairDataset

from collab_common.errors import UserError
from fairseq_collab.trained.opener import collated


class Scores(NamedTuple):
    """Natural logarithms: of the whole translation's probability, and their mean a symbol."""

    total: float
    mean: float


@torch.no_grad()
def score(model: Any, task: Any, pairs: Sequence[tuple[str, str]]) -> list[Scores]:
    """Score sources with their targets, in the order in which they are given.

    Args:
        pairs: in the model's subwords, joined by blanks; unknown ones are ``<unk>``.
    """
    dataset = _dataset(task, pairs)
    order = dataset.ordered_indices()
    longest = utils.resolve_max_positions(task.max_positions(), model.max_positions())
    fitting, too_long = dataset.filter_indices_by_size(order, longest)
    if len(too_long):
        source, target = pairs[int(too_long[0])]
        what = f"{len(too_long)} sentences are longer than its {longest} positions, such as"
        raise UserError(f"{what} {min(source, target, key=len)[:60]!r}", todo="leave them out")
    found: list[Scores] = [Scores(0.0, 0.0)] * len(pairs)
    for sample in collated("contrastive pairs", dataset, fitting, model):
        output = model(**sample["net_input"])
        log_p = model.get_normalized_probs(output, log_probs=True)  # (B, T, V)
        target = sample["target"]  # (B, T)
        there = target.ne(task.target_dictionary.pad())
        chosen = log_p.gather(2, target.unsqueeze(2)).squeeze(2).double() * there  # (B, T)
        totals, lengths = chosen.sum(1), there.sum(1)
        for place, total, length in zip(
            sample["id"].tolist(), totals.tolist(), lengths.tolist(), strict=True
        ):
            found[place] = Scores(total, total / length)
    return found


def _dataset(task: Any, pairs: Sequence[tuple[str, str]]) -> LanguagePairDataset:
    dictionaries = task.source_dictionary, task.target_dictionary
    sides, sizes = [], []
    for symbols, lines in zip(dictionaries, zip(*pairs, strict=True), strict=True):
        encoded = [symbols.encode_line(line, add_if_not_exist=False).long() for line in lines]
        sides.append(encoded)
        sizes.append(np.array([len(line) for line in encoded]))
    return LanguagePairDataset(
        sides[0], sizes[0], dictionaries[0], sides[1], sizes[1], dictionaries[1],
        left_pad_source=task.cfg.left_pad_source, left_pad_target=task.cfg.left_pad_target,
        shuffle=False,
    )  # fmt: skip
