"""Translations of a model in memory, by fairseq's generator, and their BLEU.

Shapes: ``B`` sentences in a batch, ``T`` target tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fairseq import utils
from fairseq.data import Dictionary
from omegaconf import OmegaConf
from torch import Tensor

#: Hypotheses of a sentence, in this package.
BEAM = 5


class Translations(NamedTuple):
    """Text with subwords joined, in the order of the corpus.

    Attributes:
        targets: the target side of the binarised data.
    """

    hypotheses: list[str]
    targets: list[str]


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

    pairs: dict[int, tuple[str, str]] = {}
    for sample in batches:
        hypotheses = task.inference_step(generator, [model], sample)
        indices, targets = sample["id"].tolist(), sample["target"].cpu()
        for index, beams, target in zip(indices, hypotheses, targets, strict=True):
            # An unknown word of the reference must not match one of the translation.
            reference = text(utils.strip_pad(target, words.pad()), escape_unk=True)
            pairs[index] = text(beams[0]["tokens"].cpu()), reference
    ordered = [pairs[index] for index in sorted(pairs)]
    ours, theirs = (list(side) for side in zip(*ordered, strict=True))
    return Translations(ours, theirs)


def words_of(dictionary: Dictionary, tokens: Tensor) -> list[str]:
    """The symbols of a line, without padding and ends of sentences."""
    left_out = (dictionary.pad(), dictionary.eos())
    return [dictionary[token] for token in tokens.tolist() if token not in left_out]
