"""``export --format onnx --check``: translate the same sentences by fairseq and by the folder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from collab_lab.export import model
from collab_lab.export.check import BATCH, by_fairseq
from collab_lab.export.translate import Translator
from collab_lab.metrics.generate import BEAM
from collab_lab.metrics.translation_scores import score
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.sentences import dataset_of, fitting

Lines = list[list[int]]


def compare(trained: Trained, folder: Path, number: int) -> tuple[list[str], bool]:
    """Compare translations of the first sentences of the validation set.

    Returns:
        Lines of text to print, and whether the folder passes.  With float weights all translations
        must be equal; with integers the lines say how many differ, and the cost in BLEU and bits.
    """
    program = Translator(folder, torch.get_num_threads())
    dataset = dataset_of(trained, "valid")
    indices = sorted(fitting(trained, "valid")[:number], key=lambda i: dataset.num_tokens(i))
    samples = [dataset[index] for index in indices]
    sources: Lines = [sample["source"].tolist() for sample in samples]
    words = model.vocabulary(trained)
    ours = by_fairseq(trained.model, words, [sample["source"] for sample in samples])
    theirs = translations(program, trained, sources)
    pairs = list(zip(ours, theirs, strict=True))
    same = sum(a == b for a, b in pairs)
    lines = [f"check: {same} of {len(pairs)} translations equal fairseq's, token for token"]
    is_int8 = program.config["weights"] == "int8"
    if not is_int8:
        for name, tokens in zip(
            ("first other, fairseq", "onnx"), next(((a, b) for a, b in pairs if a != b), ()),
            strict=False,
        ):  # fmt: skip
            lines.append(f"{name}: {program.decode(tokens)}")
        return lines, same == len(pairs)
    lines.append(f"check: {1 - same / len(pairs):.1%} of the translations change with int8")
    if samples[0]["target"] is None:
        return lines, True
    targets: Lines = [sample["target"].tolist()[:-1] for sample in samples]
    texts = [[program.decode(line) for line in of] for of in (ours, theirs, targets)]
    bleu = [score(texts[side], texts[2]).bleu for side in (0, 1)]
    bits = bits_of_model(trained, samples), bits_of_folder(program, sources, targets)
    lines.append(f"check: BLEU {bleu[0]:.2f} in fairseq, {bleu[1]:.2f} here")
    lines.append(f"check: bits per target token {bits[0]:.4f} in fairseq, {bits[1]:.4f} here")
    return lines, True


def translations(program: Translator, trained: Trained, sources: Lines) -> Lines:
    """The best translation of each source, as indices without ``</s>``.

    fairseq limits the length by the longest source of a batch, the program by each source.  Here
    both use fairseq's limit, so that a search that does not end is cut off at the same word.
    """
    found: Lines = []
    for start in range(0, len(sources), BATCH):
        batch = sources[start : start + BATCH]
        limit = model.longest_output(trained.model, max(map(len, batch)))
        hypotheses = program.search(batch, BEAM, max_len_a=0, max_len_b=limit)
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
def bits_of_model(trained: Trained, samples: Sequence[dict[str, Any]]) -> float:
    """Mean bits per target token, computed by the model itself."""
    dataset, total, tokens = dataset_of(trained, "valid"), 0.0, 0
    for start in range(0, len(samples), BATCH):
        batch = dataset.collater(list(samples[start : start + BATCH]))
        output = trained.model(**batch["net_input"])
        scores = trained.model.get_normalized_probs(output, log_probs=True)
        target = batch["target"]
        is_word = target.ne(trained.task.target_dictionary.pad())
        total -= float(scores.gather(-1, target[..., None])[..., 0][is_word].sum())
        tokens += int(is_word.sum())
    return total / math.log(2) / tokens
