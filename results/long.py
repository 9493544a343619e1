"""What is measured of long texts: losses by position in the translation, and translations.

The rise of the loss is in bits per target token, of every document of the held-out sets.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from collab_common import BREAK
from collab_lab.metrics.cost import cache_share
from collab_lab.metrics.generate import BEAM, translate
from collab_lab.metrics.loss import cross_entropy, predicted
from collab_lab.metrics.translation_scores import score
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.contexts import in_evaluation
from collab_lab.trained.sentences import batches
from fairseq_collab.attention.rounding import group_sizes
from results.records import Content
from results.work import DOCUMENTS, SETS, Case, Text

#: Resamplings of documents, and documents up to which the rise of each is kept.
DRAWS, KEPT = 2000, 100
Parts = tuple[int, ...]
HeldOut = Mapping[str, Sequence[Mapping[str, Any]]]


class Loss(NamedTuple):
    """Bits ``(documents, parts)``, and target tokens, of the documents of all sets in order."""

    bits: Tensor
    tokens: Tensor

    @property
    def by_part(self) -> Tensor:
        return self.bits.sum(0) / self.tokens.sum(0)


@torch.no_grad()
def losses(
    model: Trained, held_out: Mapping[str, Sequence[Mapping[str, Any]]], ends: Parts
) -> Loss:
    """The loss of every document, by position.

    Args:
        ends: of the parts of a translation, in target tokens.
    """
    edges = torch.tensor(ends)
    bits, tokens = list[Tensor](), list[Tensor]()
    with in_evaluation(model.model):
        for name in SETS:
            rows = dict[int, Any]()
            for sample in held_out[name]:
                loss = cross_entropy(model.model, sample).double() / math.log(2)  # (B, T)
                counted = predicted(model.model.decoder, sample).double()
                part = torch.bucketize(torch.arange(loss.size(1)), edges, right=True)
                of_part = torch.nn.functional.one_hot(part, len(ends)).double()  # (T, parts)
                pairs = zip(loss @ of_part, counted @ of_part, strict=True)
                rows |= dict(zip(sample["id"].tolist(), pairs, strict=True))
            ordered = [rows[index] for index in sorted(rows)]
            bits += [row for row, _ in ordered]
            tokens += [row for _, row in ordered]
    seen = 1 + int(torch.stack(tokens).sum(0).nonzero().max())  # parts that a text reaches
    return Loss(torch.stack(bits)[:, :seen], torch.stack(tokens)[:, :seen])


def interval(rise: Tensor, tokens: Tensor) -> list[list[float]]:
    """95% of the rises of each part, and of all, under resampling of documents."""
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randint(len(rise), (DRAWS, len(rise)), generator=generator)
    sums = torch.stack([x[drawn].sum(1) for x in (rise, tokens)])  # (2, draws, parts)
    sums = torch.cat([sums, sums.sum(-1, keepdim=True)], -1)
    found = (sums[0] / sums[1]).quantile(torch.tensor([0.025, 0.975], dtype=sums.dtype), 0)
    return [[round(float(x), 5) for x in pair] for pair in found.T]


@functools.lru_cache(1)
def own_losses(text: Text, ends: Parts) -> Loss:
    """Of the trained model."""
    return losses(text.model, text.held_out, ends)


def by_part(case: Case, ends: Parts) -> Content:
    """The rise of the loss by position, that of all, intervals, and the rises of other texts."""
    text, model = case.work.main, case.made.model
    before, after = own_losses(text, ends), losses(model, text.held_out, ends)
    rise, tokens = after.bits - before.bits, after.tokens
    parts = torch.cat([rise.sum(0), rise.sum().view(1)])
    parts = parts / torch.cat([tokens.sum(0), tokens.sum().view(1)])
    others = {name: of for name, of in case.work.texts.items() if name != DOCUMENTS}
    found = {
        "by_part": [round(float(x), 5) for x in parts[:-1]],
        "lost": round(float(parts[-1]), 5),
        "interval": interval(rise, tokens),
        **{f"lost_{name}": round(of.whole(model) - of.own, 5) for name, of in others.items()},
    }
    if len(rise) <= KEPT:
        found["rises"] = [[round(float(x), 3) for x in row] for row in rise]
    return found


def about_documents(case: Case, ends: Parts) -> Content:
    """The trained model: its losses on all texts, and those by position."""
    text = case.work.main
    own = own_losses(text, ends)
    found: Content = {
        **{f"{name}_bits": round(of.own, 5) for name, of in case.work.texts.items()},
        "parts": ends[: len(own.by_part)],
        "d": text.width,
        "parameters": sum(p.numel() for p in text.model.model.parameters()),
        "by_part": [round(float(x), 5) for x in own.by_part],
        "texts": len(own.tokens),
    }
    if len(own.tokens) <= KEPT:
        found["tokens"] = own.tokens.int().tolist()
    return found


def share(case: Case, bits: float | None = None, norms: bool = False) -> Content:
    """Bytes of the KV cache, of those of the standard cache in 16-bit numbers.

    Args:
        bits: of a number of a simulated cache, on average.
        norms: whether it has one scale a token; as a rounded cache of ours, a scale and an offset
            a group.
    """
    found = cache_share(case.made.model.model)
    if bits is not None:
        width = case.work.main.width
        found = (bits + (16 if norms else 32 * group_sizes(width)[0]) / width) / 16
    return {"share": round(found, 5)}


# ---- translations --------------------------------------------------------------------------------


def documents(case: Case, number: int) -> Content:
    """Documents of the test set, spread evenly, translated; their breaks are no words."""
    model = case.made.model
    every = range(len(case.text.model.task.dataset("test")))
    chosen = [every[i * len(every) // number] for i in range(number)]
    options = {"beam": BEAM, "max_len_a": 1.5, "max_len_b": 10}
    samples = batches(model, "test", chosen, max_sentences=16)
    found = translate(model.model, model.task, samples, options, "sentencepiece")
    ours, theirs = ([" ".join(line.split(BREAK)) for line in side] for side in (found[0], found[1]))
    scores = score(ours, theirs)
    return {
        "documents": number,
        "bleu": round(scores.bleu, 2), "bleu_signature": scores.bleu_signature,
        "chrf": round(scores.chrf, 2), "chrf_signature": scores.chrf_signature,
        "length_ratio": round(scores.length_ratio, 3),
        "repeated": round(repeated(ours), 4),
        "repeated_in_references": round(repeated(theirs), 4),
        "at_limit": found.at_limit,
        "breaks": [_breaks(found.hypotheses), _breaks(found.targets)],
    }  # fmt: skip


def _breaks(lines: Sequence[str]) -> int:
    return sum(line.count(BREAK) for line in lines)


def repeated(lines: Sequence[str], n: int = 4) -> float:
    """The share of n-grams that stand in their document before."""
    again = every = 0
    for line in lines:
        words = line.split()
        grams = [*zip(*(words[i:] for i in range(n)), strict=False)]
        every += len(grams)
        again += len(grams) - len({*grams})
    return again / max(1, every)
