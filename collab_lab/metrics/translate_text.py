"""Translate a few sentences of ordinary text, for notebooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from collab_common import BREAK
from collab_common.encodings import are_of_other_tokens
from collab_common.errors import UserError, check_whole
from collab_common.folder import manifest
from collab_common.progress import say
from collab_lab.metrics.generate import BEAM, MADE_UP, say_how_many_are_cut
from collab_lab.metrics.generate import translate as translated
from collab_lab.metrics.length_limit import LENGTH_LIMIT
from collab_lab.trained.checkpoint import Trained, check_model, say_if_unlearnt
from collab_lab.trained.checks import check_direction
from collab_lab.trained.contexts import in_evaluation
from collab_lab.trained.sentences import say_if_unknown, to_device
from data_prep.subwords import CODES, MODEL, by_sentence, cut_tags, pieces_of, units_of

#: fairseq's name of the subwords of tokenised text.
SUBWORD_NMT = "subword_nmt"


def translate(model: Trained, sentences: Sequence[str], *, beam: int = BEAM) -> list[str]:
    """Translate sentences of ordinary text with the subword model of the model's data folder.

    Args:
        sentences: texts of one sentence each; of a model of documents, sentences with <break>
            between them.
        beam: number of hypotheses per sentence in the beam search.

    Returns:
        The best translation of each sentence, of at most 2 tokens for each of its own and 20 more.

    Raises:
        UserError: the model is a language model, its data folder has no subword model for ordinary
            text, or a sentence is empty or longer than the model's positions.
    """
    check_model(model)
    check_whole(beam=beam)
    if beam < 1:
        raise UserError(f"must be above 0, not {beam}", "`beam`")
    sentences = sentences if isinstance(sentences, str) else [*sentences]  # a generator ends
    if isinstance(sentences, str) or not all(isinstance(line, str) for line in sentences):
        raise UserError(f"must be a list of texts, not {sentences!r:.60}", "`sentences`")
    if model.is_language_model:
        raise UserError("is a language model, which does not translate", model.path)
    todo = "open it with open_model(..., source_lang=LANG, target_lang=LANG)"
    check_direction(model.cfg.task, model.path, todo)
    task, words = model.task, model.task.source_dictionary
    segment, joined_by = _subwords(Path(model.cfg.task.data.split(":")[0]))
    if model.cfg.task._name == "translation":  # others may put tags of their own there
        file = MODEL if joined_by == "sentencepiece" else CODES
        if line := cut_tags(words.symbols, segment, file):
            say(f"warning: {line}")
    segment = by_sentence(segment)
    if joined_by == SUBWORD_NMT and are_of_other_tokens(sentences, words.symbols):
        say(
            f"warning: the model was trained on tokens, and most of the {len(sentences)} sentences "
            "end in a word with its mark: tokenise them as its training text was"
        )
    limit = min(task.max_positions()[0], model.model.max_positions()[0])
    lines, subwords = [], []
    for number, text in enumerate(sentences):
        if len(text.splitlines()) > 1:
            raise UserError("has several lines: give one sentence each", f"`sentences[{number}]`")
        if BREAK in text and BREAK not in words.indices:
            problem = f"contains {BREAK}, a symbol that this model lacks: give one sentence each"
            raise UserError(problem, f"`sentences[{number}]`")
        units = segment(text)
        if not 0 < len(units) < limit:
            problem = f"has {len(units)} subwords; the model reads 1 to {limit - 1}"
            raise UserError(problem, f"`sentences[{number}]`")
        # Words that are symbols of fairseq's are unknown words of a text.
        ids = [words.unk() if unit in words.symbols[: words.nspecial] else words.index(unit)
               for unit in units]  # fmt: skip
        lines.append(torch.tensor([*ids, words.eos()]))
        subwords.append(units)
    if not lines:
        return []
    say_if_unknown(subwords, words)
    say_if_unlearnt(model, MADE_UP, model.made_up)
    lengths = np.array([len(line) for line in lines])
    dataset = task.build_dataset_for_inference(lines, lengths)
    # fairseq limits translations by the longest sentence of a batch: here all are as long.
    equal = (np.flatnonzero(lengths == length) for length in np.unique(lengths))
    batches = (
        to_device(dataset.collater([dataset[int(i)] for i in rows]), model.device)
        for group in equal
        for rows in np.array_split(group, -(-len(group) // 64))
    )
    with in_evaluation(model.model):
        found = translated(model.model, task, batches, {"beam": beam, **LENGTH_LIMIT}, joined_by)
    say_how_many_are_cut(found)
    return found.hypotheses


def _subwords(data: Path) -> tuple[Callable[[str], list[str]], str]:
    """A segmenter of ordinary text, and how words are joined from its subwords."""
    if (data / MODEL).is_file():
        return pieces_of(data / MODEL), "sentencepiece"
    form = manifest(data).get("form")
    if (data / CODES).is_file() and form and not form["moses"]:  # tokens between blanks
        return units_of(data / CODES), SUBWORD_NMT
    todo = "tokenise the text like the training text, and translate it with fairseq-interactive"
    raise UserError(f"has no subword model {MODEL} for ordinary text", data, todo)
