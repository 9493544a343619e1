"""``export --check``: sentences of the validation set, translated here and by the other engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from fairseq.data import data_utils
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from collab_common.errors import UserError
from collab_common.progress import bar
from collab_lab.export import model
from collab_lab.export.model import Vocabulary
from collab_lab.metrics.translate import BEAM
from collab_lab.trained.checkpoint import (
    Trained,
    check_direction,
    dataset_of,
    fitting,
    open_model,
)

#: Sentences of a batch.
BATCH = 16


def sources_to_check(trained: Trained, number: int) -> list[Tensor]:
    """The first sources of the validation set that the model can read, as indices with ``</s>``.

    Raises:
        UserError: there is none.
    """
    check_direction(trained.task, trained.path, "leave --check out")
    try:
        indices = fitting(trained, "valid")
    except FileNotFoundError as error:
        problem = "has no validation set to check translations on"
        raise UserError(problem, trained.cfg.task.data, "give its data folder") from error
    dataset = dataset_of(trained.task, "valid")
    return [dataset[index]["source"] for index in indices[:number]]


def compare(
    trained: Trained, folder: Path, format_: str, sources: Sequence[Tensor]
) -> tuple[list[str], bool]:
    """How many translations of the exported folder are fairseq's: in words, and whether all are."""
    words = model.vocabulary(trained)
    ours = by_fairseq(trained.model, words, sources)
    if format_ == "fairseq":
        exported = open_model(folder / "model.pt", trained.cfg.task.data)
        theirs = by_fairseq(exported.model, words, sources)
    else:
        engine = import_module(f"collab_lab.export.{format_}")
        theirs = engine.translate(trained.model, words, folder, sources)
    pairs = list(zip(ours, theirs, strict=True))
    same = sum(a == b for a, b in pairs)
    lines = [f"check: {same} of {len(pairs)} translations equal fairseq's, token for token"]
    for pair in [pair for pair in pairs if pair[0] != pair[1]][:1]:
        lines += [
            f"{name}: {words.target.string(torch.tensor(tokens))}"
            for name, tokens in zip(("first other, fairseq", format_), pair, strict=True)
        ]
    return lines, same == len(pairs)


def by_fairseq(translator: Any, words: Vocabulary, sources: Sequence[Tensor]) -> list[list[int]]:
    """Translations by ``fairseq-generate``'s search, as indices without ``</s>``."""
    limits = {"beam_size": BEAM, "max_len_b": model.MAX_LENGTH}
    search = SequenceGenerator([translator], words.target, **limits)
    found = []
    for tokens in batches(sources, words.source.pad(), left_pad=True):
        batch = {"src_tokens": tokens, "src_lengths": tokens.ne(words.source.pad()).sum(1)}
        best = search.generate([translator], {"net_input": batch})
        found += [hypotheses[0]["tokens"][:-1].tolist() for hypotheses in best]
    return found


def batches(sources: Sequence[Tensor], pad: int, left_pad: bool = False) -> Iterator[Tensor]:
    """Sources side by side: ``(B, S)``."""
    for start in bar("sentences", range(0, len(sources), BATCH)):
        rows = [source.long() for source in sources[start : start + BATCH]]
        yield data_utils.collate_tokens(rows, pad, left_pad=left_pad)
