"""Translate with a model in memory by fairseq's generator, exactly as ``fairseq-generate`` does.

Shapes: ``B`` sentences in a batch, ``T`` target tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fairseq import utils
from fairseq.data import Dictionary
from omegaconf import OmegaConf
from torch import Tensor

from collab_common.progress import say
from fairseq_collab.decoding.beam_search import max_len

#: Hypotheses of a sentence, in this package.
BEAM = 5


#: What :func:`translate` does if a model has not learnt how a target begins, and what to do then.
MADE_UP = "it makes up the beginning; to give it, use fairseq-generate --prefix-size"


class Translations(NamedTuple):
    """Translations with joined subwords, in the order of the corpus.

    Attributes:
        targets: the target side of the binarised data; empty texts if there is none.
        at_limit: the number of hypotheses that reach the limit of their length.
    """

    hypotheses: list[str]
    targets: list[str]
    at_limit: int = 0


def translate(
    model: Any,
    task: Any,
    batches: Iterable[dict[str, Any]],
    options: Mapping[str, Any],
    subwords: str | None,
) -> Translations:
    """Translate batches as ``fairseq-generate`` does.

    Args:
        batches: batches on the model's device.
        options: options of fairseq's section ``generation``.
        subwords: kind of the subwords to join, as in fairseq's ``--post-process``.
    """
    generator = task.build_generator([model], OmegaConf.create(dict(options)))
    strip = getattr(generator, "symbols_to_strip_from_output", {generator.eos})
    words = task.target_dictionary

    def text(tokens: Tensor, **more: Any) -> str:
        line: str = words.string(tokens.int(), subwords, extra_symbols_to_ignore=strip, **more)
        return line

    pairs: dict[int, tuple[str, str]] = {}
    at_limit = 0
    for sample in batches:
        hypotheses = task.inference_step(generator, [model], sample)
        indices, targets = sample["id"].tolist(), sample["target"]
        if targets is None:
            targets = sample["net_input"]["src_tokens"].new_empty(len(indices), 0)
        limit = longest(generator, sample)
        for index, beams, target in zip(indices, hypotheses, targets, strict=True):
            # An unknown word of the reference must not match one of the translation.
            reference = text(utils.strip_pad(target.cpu(), words.pad()), escape_unk=True)
            best = beams[0]["tokens"].cpu()
            at_limit += len(best) > limit
            pairs[index] = text(best), reference
    ordered = [pairs[index] for index in sorted(pairs)]
    ours, theirs = (list(side) for side in zip(*ordered, strict=True))
    return Translations(ours, theirs, at_limit)


def say_how_many_are_cut(translations: Translations) -> None:
    """Print a warning if translations end at the limit of their length."""
    if translations.at_limit:
        number = f"{translations.at_limit} of {len(translations.hypotheses)}"
        say(f"warning: {number} translations end at the limit of their length and may be cut off")


def longest(generator: Any, sample: Mapping[str, Any]) -> int:
    """The most tokens that the search allows for a translation in a batch, without ``</s>``."""
    if generator.match_source_len:
        return int(sample["net_input"]["src_lengths"].max())
    return max_len(generator, sample["net_input"]["src_tokens"])


def words_of(dictionary: Dictionary, tokens: Tensor) -> list[str]:
    """The symbols of a line, without padding and without ``</s>``."""
    left_out = (dictionary.pad(), dictionary.eos())
    return [dictionary[token] for token in tokens.tolist() if token not in left_out]
