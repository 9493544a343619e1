"""Translations of a model in memory, by fairseq's generator, and their BLEU.

Shapes: ``B`` sentences in a batch, ``T`` target tokens.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple

from fairseq import utils
from fairseq.data import Dictionary, data_utils
from omegaconf import OmegaConf
from sacrebleu.metrics import BLEU
from torch import Tensor

from collab_common.errors import UserError
from collab_lab.metrics.bleu import subword_marks, tokenizer
from collab_lab.trained.opener import collated, dataset_of

BEAM = 5


class Translations(NamedTuple):
    """Text with subwords joined, in the order of the corpus.

    Attributes:
        targets: the target side of the binarised data.
        seconds: of the search alone.
    """

    hypotheses: list[str]
    targets: list[str]
    seconds: float


def translate(
    model: Any,
    task: Any,
    batches: Iterable[dict[str, Any]],
    options: Mapping[str, Any],
    subwords: str | None,
) -> Translations:
    """Translate batches, as fairseq-generate does.

    Args:
        batches: on the model's device.
        options: of fairseq's section ``generation``.
        subwords: how words are joined from subwords, as fairseq's ``--post-process``.
    """
    generator = task.build_generator([model], OmegaConf.create(dict(options)))
    strip = getattr(generator, "symbols_to_strip_from_output", {generator.eos})
    words = task.target_dictionary

    def text(tokens: Tensor, **more: Any) -> str:
        line: str = words.string(tokens.int(), subwords, extra_symbols_to_ignore=strip, **more)
        return line

    found: dict[int, tuple[str, str]] = {}
    seconds = 0.0
    for sample in batches:
        start = time.perf_counter()
        hypotheses = task.inference_step(generator, [model], sample)
        seconds += time.perf_counter() - start
        places = sample["id"].tolist()
        for place, beams, target in zip(places, hypotheses, sample["target"].cpu(), strict=True):
            # An unknown word of the reference must not match one of the translation.
            reference = text(utils.strip_pad(target, words.pad()), escape_unk=True)
            found[place] = text(beams[0]["tokens"].cpu()), reference
    ordered = [found[place] for place in sorted(found)]
    return Translations([one for one, _ in ordered], [other for _, other in ordered], seconds)


def words_of(dictionary: Dictionary, tokens: Tensor) -> list[str]:
    """The symbols of a line, without padding and ends of sentences."""
    left_out = (dictionary.pad(), dictionary.eos())
    return [dictionary[token] for token in tokens.tolist() if token not in left_out]


def check_translation(task: Any, where: str | PathLike[str], todo: str) -> None:
    """Raises UserError for a model that does not translate: it has no BLEU.

    Args:
        where: the option or checkpoint that the error names.
    """
    options = task.cfg or task.args  # of a task of today, of an older one
    if not hasattr(task, "target_dictionary") or not hasattr(options, "target_lang"):
        what = f"{type(task).__name__} does not translate, so that it has no BLEU"
        raise UserError(what, where, todo)


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """sacreBLEU of lines (0 to 100)."""
    bleu = BLEU(tokenize=tokenizer(references), force=True)
    return bleu.corpus_score(hypotheses, [references]).score


def translations(model: Any, task: Any, subset: str) -> tuple[list[str], list[str]]:
    """Translations of ``subset`` and its target side, subwords joined, in the corpus' order."""
    dataset = dataset_of(task, subset)
    with data_utils.numpy_seed(1):
        order = dataset.ordered_indices()
    batches = collated("translation", dataset, order, model)
    subwords = subword_marks(task.target_dictionary.symbols)
    found = translate(model, task, batches, {"beam": BEAM}, subwords)
    return found.hypotheses, found.targets
