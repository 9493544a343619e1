"""BLEU of a model in memory: what re-parametrised and pruned models lose against their source.

sacreBLEU of translations with subwords joined, against the data folder's own target side, joined
alike.  The same for all models, so that differences count; a published figure wants
``fairseq-generate`` and ``fairseq-collab score``.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
import torch
from fairseq.data import data_utils
from omegaconf import OmegaConf
from sacrebleu.metrics import BLEU

from collab_common.errors import UserError
from fairseq_collab.metrics.text import tokenizer
from fairseq_collab.trained.opener import collated

BEAM = 5


def check_translation(
    task: Any, where: str | PathLike[str], todo: str, measure: str = "BLEU"
) -> None:
    """Only models that translate have a BLEU, or another measure of translation.

    Args:
        where: what asks for it: an option, or the checkpoint.
    """
    if not hasattr(task, "target_dictionary") or not hasattr(task.cfg, "target_lang"):
        what = f"{type(task).__name__} does not translate, so that it has no {measure}"
        raise UserError(what, where, todo)


def bleu(model: Any, task: Any, subset: str) -> float:
    """Corpus BLEU (0 to 100) of ``subset``, beam :data:`BEAM`."""
    return corpus_bleu(*translations(model, task, subset))


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """sacreBLEU of lines (0 to 100)."""
    bleu = BLEU(tokenize=tokenizer(references), force=True)
    return bleu.corpus_score(hypotheses, [references]).score


def translations(
    model: Any, task: Any, subset: str, chosen: Sequence[int] | None = None
) -> tuple[list[str], list[str]]:
    """Translations of ``subset`` and its target side, subwords joined, in the same order.

    Args:
        chosen: places of the sentences; all unless given.
    """
    task.load_dataset(subset)
    dataset = task.dataset(subset)
    with data_utils.numpy_seed(1):
        order = dataset.ordered_indices()
    if chosen is not None:
        order = order[np.isin(order, chosen)]
    generator = task.build_generator([model], OmegaConf.create({"beam": BEAM}))
    words, hypotheses, references = task.target_dictionary, [], []
    for sample in collated("translation", dataset, order, model):
        found = task.inference_step(generator, [model], sample)
        for beams, target in zip(found, sample["target"], strict=True):
            hypotheses.append(joined(words_of(words, beams[0]["tokens"])))
            # As fairseq has it: an unknown word is none that a translation could have right.
            references.append(joined(words_of(words, target, unknown=f"<{words.unk_word}>")))
    return hypotheses, references


def words_of(dictionary: Any, tokens: torch.Tensor, unknown: str | None = None) -> list[str]:
    """A line of symbols without padding and ends of sentences.

    Args:
        unknown: in place of the symbol of unknown words.
    """
    left_out = (dictionary.pad(), dictionary.eos())
    named = {} if unknown is None else {dictionary.unk(): unknown}
    kept = (token for token in tokens.tolist() if token not in left_out)
    return [named.get(token, dictionary[token]) for token in kept]


def joined(words: Sequence[str]) -> str:
    """Text of subwords, whichever of fairseq's markers they have."""
    line = " ".join(words)
    marker = "sentencepiece" if "\u2581" in line else "@@ "
    return data_utils.post_process(line, marker).strip()
