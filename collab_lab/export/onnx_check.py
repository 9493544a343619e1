"""``export --format onnx --check``: the same sentences by fairseq and by the folder's program.

A language model continues the first halves of its validation sentences.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fairseq.data import data_utils
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from collab_lab.export.check import BATCH, batches, by_fairseq, lines_at_limit
from collab_lab.export.engine_support import longest_output, most_tokens
from collab_lab.export.plain import is_rounded
from collab_lab.export.translate import Translator
from collab_lab.export.vocabulary import vocabulary
from collab_lab.metrics.generate import BEAM
from collab_lab.metrics.length_limit import LENGTH_LIMIT
from collab_lab.metrics.translation_scores import score
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.sentences import dataset_of, fitting

Lines = list[list[int]]
#: Why engines may differ that sum in other orders.
BORDER = (
    "the KV cache is rounded: a number next to the border of two codes gets another code if a sum "
    "differs in its last bit, so a few translations may differ (with --no-cache-bits, none)"
)
#: Bits per token by which such codes may change the loss on 200 sentences.
CODES = 1e-3


class Sentences(NamedTuple):
    """Indices of words of each sentence.

    Attributes:
        sources: what is translated, with ``</s>``, or continued.
        targets: references, or whole sentences, without ``</s>``; None if the set has none.
    """

    sources: Lines
    targets: Lines | None


def compare(trained: Trained, folder: Path, number: int) -> tuple[list[str], bool]:
    """Compare translations of the first sentences of the validation set.

    Returns:
        Lines of text, and whether the folder passes: weights in floats find equal translations, or
        with a rounded cache equal bits; with integers some differ, and the lines say how many, and
        what it costs.
    """
    program = Translator(folder, torch.get_num_threads())
    sentences = sentences_to_check(trained, number)
    ours = continued(trained, sentences.sources)
    theirs = translations(program, trained, sentences.sources)
    pairs = list(zip(ours, theirs, strict=True))
    same = sum(a == b for a, b in pairs)
    what = "continuations" if trained.is_language_model else "translations"
    lines = [f"check: {same} of {len(pairs)} {what} equal fairseq's, token for token"]
    lines += lines_at_limit(trained.model, sentences.sources, ours, theirs, what)
    is_int8 = program.config["weights"] == "int8"
    if same == len(pairs) and not is_int8:
        return lines, True
    if is_int8:
        lines.append(f"check: {1 - same / len(pairs):.1%} of the {what} change with int8")
    else:
        first = next((a, b) for a, b in pairs if a != b)
        for name, tokens in zip(("first other, fairseq", "onnx"), first, strict=True):
            lines.append(f"{name}: {program.decode(tokens)}")
        if not is_rounded(trained):
            return lines, False
        lines.append(BORDER)
    targets = sentences.targets
    if targets is None:
        return lines, is_int8
    if is_int8 and not trained.is_language_model:
        references = [program.decode(line) for line in targets]
        texts = ([program.decode(line) for line in of] for of in (ours, theirs))
        bleu = [score(text, references).bleu for text in texts]
        lines.append(f"check: BLEU {bleu[0]:.2f} in fairseq, {bleu[1]:.2f} here")
    bits = (
        bits_of_model(trained, sentences),
        bits_of_folder(program, sentences.sources, targets),
    )
    lines.append(f"check: bits per target token {bits[0]:.4f} in fairseq, {bits[1]:.4f} here")
    if number := trained.ignored_prefix:  # a search that is forced has one sum for a sentence
        unlearnt = f"the first {number} of each sentence, which were not learnt"
        lines[-1] += f", with {unlearnt} (--ignore-prefix-size)"
    return lines, is_int8 or abs(bits[0] - bits[1]) < CODES


def sentences_to_check(trained: Trained, number: int) -> Sentences:
    """The first sentences of the validation set, or of its blocks; short ones first."""
    dataset = dataset_of(trained, "valid")
    indices = sorted(fitting(trained, "valid")[:number], key=lambda i: dataset.num_tokens(i))
    samples = [dataset[index] for index in indices]
    if trained.is_language_model:
        end, most = trained.task.target_dictionary.eos(), most_tokens(trained.model)
        blocks = [sample["target"].tolist()[:most] for sample in samples]
        # A block may have several sentences, or begin with the end of one.
        whole = [list(takewhile(lambda word: word != end, block)) for block in blocks]
        whole = [line for line in whole if line]
        return Sentences([line[: (len(line) + 1) // 2] for line in whole], whole)
    sources = [sample["source"].tolist() for sample in samples]
    if samples[0]["target"] is None:
        return Sentences(sources, None)
    return Sentences(sources, [sample["target"].tolist()[:-1] for sample in samples])


def continued(trained: Trained, sources: Lines) -> Lines:
    """fairseq's best translation of each source, or its best continuation, without ``</s>``."""
    if not trained.is_language_model:
        words = vocabulary(trained)
        return by_fairseq(trained.model, words, [torch.tensor(source) for source in sources])
    words, found = trained.task.target_dictionary, []
    search = SequenceGenerator([trained.model], words, beam_size=BEAM, **LENGTH_LIMIT)
    for rows in batches([torch.tensor(source) for source in sources], words.pad()):
        batch = {"src_tokens": rows, "src_lengths": rows.ne(words.pad()).sum(1)}
        best = search.generate(
            [trained.model], {"net_input": batch}, prefix_tokens=rows, bos_token=start_of(trained)
        )
        found += [hypotheses[0]["tokens"][:-1].tolist() for hypotheses in best]
    return found


def start_of(trained: Trained) -> int:
    """The symbol that a decoder starts with."""
    words, task = trained.task.target_dictionary, trained.cfg.task
    has_own = trained.is_language_model and getattr(task, "add_bos_token", False)
    return int(words.bos() if has_own else words.eos())


def translations(program: Translator, trained: Trained, sources: Lines) -> Lines:
    """The best translation of each source, or its best continuation, without ``</s>``.

    fairseq limits the length by the longest source of a batch, the program by each source.  Here
    both use fairseq's limit, so that a search that does not end is cut off at the same word.
    """
    found: Lines = []
    for start in range(0, len(sources), BATCH):
        batch = sources[start : start + BATCH]
        limit = longest_output(trained.model, max(map(len, batch)))
        prefixes = batch if trained.is_language_model else None
        hypotheses = program.search(batch, BEAM, prefixes=prefixes, max_len_a=0, max_len_b=limit)
        found += [best.tokens for best, *_ in hypotheses]
    return found


def bits_of_folder(program: Translator, sources: Lines, targets: Lines) -> float:
    """Mean bits per target token, including ``</s>``, by a search that is forced to the targets."""
    end, total = program.config["eos"], 0.0
    for start in range(0, len(sources), BATCH):
        ways = [[*line, end] for line in targets[start : start + BATCH]]
        longest = max(map(len, ways))
        found = program.search(
            sources[start : start + BATCH], 1, prefixes=ways,
            max_len_a=0, max_len_b=longest, lenpen=0,
        )  # fmt: skip
        total -= sum(hypotheses[0].score for hypotheses in found)
    return total / math.log(2) / sum(len(line) + 1 for line in targets)


@torch.no_grad()
def bits_of_model(trained: Trained, sentences: Sentences) -> float:
    """The same loss as the model computes it, in bits per target token."""
    total, tokens, words = 0.0, 0, trained.task.target_dictionary
    for inputs, target in forced(trained, sentences):
        output = trained.model(**inputs)
        scores = trained.model.get_normalized_probs(output, log_probs=True)
        is_word = target.ne(words.pad())
        total -= float(scores.gather(-1, target[..., None])[..., 0][is_word].sum())
        tokens += int(is_word.sum())
    return total / math.log(2) / tokens


def forced(trained: Trained, sentences: Sentences) -> Iterator[tuple[dict[str, Any], Tensor]]:
    """Batches of a model's inputs, with the targets ``(B, T)``."""
    words, first = trained.task.target_dictionary, start_of(trained)
    assert sentences.targets is not None

    def padded(lines: Sequence[Sequence[int]]) -> Tensor:
        return data_utils.collate_tokens([torch.tensor(line) for line in lines], words.pad())

    for start in range(0, len(sentences.targets), BATCH):
        targets = sentences.targets[start : start + BATCH]
        previous = padded([[first, *line] for line in targets])
        inputs = {"src_tokens": previous}
        if not trained.is_language_model:
            sources = padded(sentences.sources[start : start + BATCH])
            lengths = sources.ne(words.pad()).sum(1)
            inputs = {"src_tokens": sources, "src_lengths": lengths, "prev_output_tokens": previous}
        yield inputs, padded([[*line, words.eos()] for line in targets])
