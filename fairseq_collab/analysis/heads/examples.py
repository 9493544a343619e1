"""Sentences whose attention weights are kept, to be looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from collab_common.errors import UserError
from fairseq_collab.analysis.heads.source import Loaded, to_device
from fairseq_collab.analysis.heads.weights import attend

#: The longest sentence that is short, in tokens of either side: its map can still be read.
LONGEST = 20
#: Decimals of a weight.
DIGITS = 3


def short_lines(dataset: Any, number: int) -> list[int]:
    """So many lines of a data set with short sentences, evenly spread; fewer if there are fewer."""
    short = [i for i in range(len(dataset)) if max(dataset.size(i)) <= LONGEST]
    number = min(number, len(short))
    return [short[i * len(short) // number] for i in range(number)]


def check_lines(dataset: Any, lines: Sequence[int]) -> None:
    """The lines, from 0, must be there.

    Raises:
        UserError: one is not.
    """
    for line in lines:
        if line >= len(dataset):
            raise UserError(f"there are {len(dataset)} sentences, no {line + 1}", "--example-lines")


def examples(loaded: Loaded, subset: str, lines: Sequence[int]) -> list[dict[str, Any]]:
    """Tokens and all heads' weights of some sentences of a data set that is loaded.

    The source and the target end in the end of sentence, weights ``H x T x S`` are rounded; the
    rows of the decoder are those of the target shifted right, whose first is the end of sentence.
    """
    dataset, task = loaded.task.dataset(subset), loaded.task
    found = []
    for line in lines:
        sample = to_device(dataset.collater([dataset[line]]), loaded.device)
        batch = attend(loaded.model, sample)
        source, target = sample["net_input"]["src_tokens"][0], sample["target"][0]
        found.append(
            {
                "line": line + 1,
                "source": [task.source_dictionary[i] for i in source.tolist()],
                "target": [task.target_dictionary[i] for i in target.tolist()],
                "weights": {
                    site: [rounded(layer[0]) for layer in layers]
                    for site, layers in batch.weights.items()
                },
            }
        )
    return found


def rounded(weights: torch.Tensor) -> list[Any]:
    """Nested lists, with as many decimals as can be seen."""
    # In double precision, or the lists would hold the many digits of the nearest single.
    listed: list[Any] = weights.double().mul(10**DIGITS).round().div(10**DIGITS).tolist()
    return listed
