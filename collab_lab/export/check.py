"""``export --check``: translate sentences of the validation set here and in the other engine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from fairseq.data import data_utils
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from collab_common.errors import UserError
from collab_common.progress import bar
from collab_lab.export.engine_support import longest_output, other_attention
from collab_lab.export.vocabulary import Vocabulary, vocabulary
from collab_lab.metrics.generate import BEAM
from collab_lab.metrics.length_limit import LENGTH_LIMIT
from collab_lab.trained.checkpoint import Trained, open_model
from collab_lab.trained.sentences import dataset_of, fitting

logger = logging.getLogger(__name__)

#: From sources ``(B, S)`` and previous target words ``(B, T)`` to attention ``(B, T, S)``.
BatchAttention = Callable[[Tensor, Tensor], Tensor]
#: Sentences of a batch.
BATCH = 16
#: Share of the limit of a length that counts as near it.
NEAR = 0.05
#: Attention weights that differ by less are equal: of all numbers from 0 to 1, in single precision.
ATTENTION = 1e-3


def sources_to_check(trained: Trained, number: int) -> list[Tensor]:
    """The first sources of the validation set that the model can read, as indices with ``</s>``.

    Raises:
        UserError: there is no such source, or :func:`.vocabulary` cannot find the languages.
    """
    if not trained.is_language_model:
        vocabulary(trained)
    try:
        indices = fitting(trained, "valid")
    except FileNotFoundError as error:
        problem = "has no validation set to check translations on"
        raise UserError(problem, trained.cfg.task.data, "give its data folder") from error
    dataset = dataset_of(trained, "valid")
    if left_out := len(dataset) - len(indices):
        logger.warning(
            "%d of %d sentences are longer than the model's positions: not checked",
            *(left_out, len(dataset)),
        )
    return [dataset[index]["source"] for index in indices[:number]]


def compare(
    trained: Trained, folder: Path, format_: str, sources: Sequence[Tensor]
) -> tuple[list[str], bool]:
    """Compare translations and attention weights of the exported folder with fairseq's.

    Returns:
        Lines of text to print, and whether all translations and weights are equal.
    """
    words = vocabulary(trained)
    sources = sorted(
        sources, key=len
    )  # the longest translation of a batch sets its number of steps
    ours = by_fairseq(trained.model, words, sources)
    if format_ == "fairseq":
        exported = open_model(folder / "model.pt", trained.cfg.task.data).model
        theirs = by_fairseq(exported, words, sources)
        attend = batch_attention(exported, words)
    else:
        engine = import_module(f"collab_lab.export.{format_}")
        theirs = engine.translate(trained.model, words, folder, sources)
        attend = engine.batch_attention(folder, words)
    pairs = list(zip(ours, theirs, strict=True))
    same = sum(a == b for a, b in pairs)
    lines = [f"check: {same} of {len(pairs)} translations equal fairseq's, token for token"]
    for pair in [pair for pair in pairs if pair[0] != pair[1]][:1]:
        lines += [
            f"{name}: {words.target.string(torch.tensor(tokens))}"
            for name, tokens in zip(("first other, fairseq", format_), pair, strict=True)
        ]
    lines += lines_at_limit(trained.model, sources, ours, theirs)
    are_equal = same == len(pairs)
    if not other_attention(trained, format_):  # else the export has said so
        both = batch_attention(trained.model, words), attend
        difference = largest_difference(*(attention(one, words, sources, ours) for one in both))
        lines.append(f"check: attention of equal words differs by {difference:.1g} at most")
        are_equal = are_equal and difference < ATTENTION
    if format_ == "hf":
        is_kept = engine.survives_saving(folder)
        found = "is the same model" if is_kept else "is another model"
        lines.append(f"check: saved after {engine.SAVE_ALL} and loaded again, it {found}")
        are_equal = are_equal and is_kept
    return lines, are_equal


def lines_at_limit(
    translator: Any,
    sources: Sequence[Sequence[int] | Tensor],
    ours: Sequence[Sequence[int]],
    theirs: Sequence[Sequence[int]],
    what: str = "translations",
) -> list[str]:
    """A line for translations that are as long as the search lets them be, if there are any.

    Those of either engine count that are shorter by up to :data:`NEAR`: next to a limit, a search
    prefers what just ends before it.
    """
    number = 0
    for start in range(0, len(sources), BATCH):
        rows = slice(start, start + BATCH)
        longest = longest_output(translator, max(map(len, sources[rows])))
        pairs = zip(ours[rows], theirs[rows], strict=True)
        number += sum(max(map(len, pair)) >= (1 - NEAR) * longest for pair in pairs)
    if not number:
        return []
    limit = "2 tokens for each of the source and 20, within the model's positions"
    return [
        f"warning: {number} of {len(ours)} {what} end at or near the limit of their length "
        f"({limit}): behind it, nothing was compared, and near it engines may differ"
    ]


def largest_difference(expected: Sequence[Tensor], found: Sequence[Tensor]) -> float:
    """The largest difference between any two numbers; NaN if one of them is NaN."""
    pairs = zip(expected, found, strict=True)
    differences = [(a - b).abs().flatten() for a, b in pairs if a.numel()]
    return float(torch.cat([torch.zeros(1), *differences]).max())


def by_fairseq(translator: Any, words: Vocabulary, sources: Sequence[Tensor]) -> list[list[int]]:
    """Translate by fairseq's search within :data:`.LENGTH_LIMIT`; indices without ``</s>``."""
    prefix = [] if words.target_tag is None else [words.target.index(words.target_tag)]
    search = SequenceGenerator([translator], words.target, beam_size=BEAM, **LENGTH_LIMIT)
    found = []
    for tokens in batches(sources, words.source.pad(), left_pad=True):
        batch = {"src_tokens": tokens, "src_lengths": tokens.ne(words.source.pad()).sum(1)}
        tags = tokens.new_tensor(prefix).repeat(len(tokens), 1) if prefix else None
        best = search.generate([translator], {"net_input": batch}, prefix_tokens=tags)
        found += [hypotheses[0]["tokens"][:-1].tolist() for hypotheses in best]
    return found


def batch_attention(translator: Any, words: Vocabulary) -> BatchAttention:
    """A function that computes fairseq's attention: the mean over the heads of the last layer."""

    def mean(tokens: Tensor, previous: Tensor) -> Tensor:
        lengths = tokens.ne(words.source.pad()).sum(1)
        weights: Tensor = translator(tokens, lengths, previous)[1]["attn"][0]
        return weights

    return mean


@torch.no_grad()
def attention(
    attend: BatchAttention,
    words: Vocabulary,
    sources: Sequence[Tensor],
    translations: Sequence[Sequence[int]],
) -> list[Tensor]:
    """The attention ``(T, S)`` of translations to the words of their sources, without ``</s>``."""
    found = []
    pairs = zip(sources, translations, strict=True)
    previous = [torch.tensor([words.target.eos(), *tokens]) for tokens in translations]
    starts = range(0, len(sources), BATCH)
    inputs = batches(sources, words.source.pad())
    for start, tokens in zip(starts, inputs, strict=True):
        targets = data_utils.collate_tokens(previous[start : start + BATCH], words.target.pad())
        found += [*attend(tokens, targets)]
    return [
        weights[: len(target), : len(source) - 1]
        for weights, (source, target) in zip(found, pairs, strict=True)
    ]


def batches(sources: Sequence[Tensor], pad: int, left_pad: bool = False) -> Iterator[Tensor]:
    """Yield batches of padded sources: ``(B, S)``."""
    for start in bar("sentences", range(0, len(sources), BATCH)):
        rows = [source.long() for source in sources[start : start + BATCH]]
        yield data_utils.collate_tokens(rows, pad, left_pad=left_pad)
