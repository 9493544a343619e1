"""All that is measured of a model's heads on one subset: the parts of ``heads.json``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor
from tqdm import tqdm

from collab_common.errors import UserError
from fairseq_collab.analysis.heads import conllu
from fairseq_collab.analysis.heads.importance import Importance, normalised
from fairseq_collab.analysis.heads.measures import (
    FREQUENT,
    OFFSETS,
    Confidence,
    Entropy,
    Positional,
    RareTokens,
    WeightDistance,
    projection_cosines,
    with_all_sites,
)
from fairseq_collab.analysis.heads.relevance import Relevance
from fairseq_collab.analysis.heads.source import Loaded, batches, to_device
from fairseq_collab.analysis.heads.subwords import Segmenter, align
from fairseq_collab.analysis.heads.syntax import SyntaxScores, as_sample, tree_batches
from fairseq_collab.analysis.heads.weights import attend

#: Of a batch of trees, where neither the command nor the training says.
MAX_TOKENS = 4096
#: The longest sentence that is short, in tokens of either side: its map can still be read.
LONGEST = 20
#: Decimals of a weight of an example.
DIGITS = 3


def measure(
    loaded: Loaded, subset: str, max_tokens: int | None, with_gradients: bool
) -> dict[str, Any]:
    """All that is measured on the sentences of a subset.

    Args:
        max_tokens: of a batch, padding included; as in the training if None.
        with_gradients: relevance and importance, too.

    Raises:
        UserError: see :func:`fairseq_collab.analysis.heads.source.batches`.
    """
    model, heads = loaded.model, loaded.heads
    confidence, widths, positions = Confidence(heads), Entropy(heads), Positional(heads)
    rare = RareTokens(heads, loaded.task.source_dictionary)
    alike = WeightDistance(heads)
    importance = Importance(model)
    relevance = Relevance(model) if with_gradients else None
    counts = dict.fromkeys(("sentences", "source_tokens", "target_tokens"), 0)
    for sample in batches(loaded, subset, max_tokens):
        batch = attend(model, sample)
        for found in (confidence, widths, positions, rare, alike):
            found.add(batch)
        if relevance is not None:
            relevance.add(sample)
            importance.add(sample)
        counts["sentences"] += len(batch.source_padding)
        counts["source_tokens"] += int((~batch.source_padding).sum())
        counts["target_tokens"] += int((~batch.target_padding).sum())
    measures: dict[str, Any] = {
        "confidence": confidence.result(),
        "positional": positions.result(),
        "rare": rare.result(),
        "rare_of_two": rare.of_two(),
        "entropy": widths.result(),
    }
    if relevance is not None:
        measures |= {
            "relevance": relevance.result(),
            "importance_token": importance.per_token(),
            "importance_sample": importance.per_sample(),
            "importance_token_normalised": normalised(importance.per_token()),
        }
    return {
        **counts,
        "relevance_conservation": None if relevance is None else relevance.deviation,
        "measures": {name: with_all_sites(found) for name, found in measures.items()},
        "offsets": {"offsets": list(OFFSETS), **positions.offsets()},
        "rare": {"frequent": FREQUENT, **rare.about()},
        "similarity": {"weights": alike.result(), "projections": projection_cosines(model)},
    }


def score_syntax(
    loaded: Loaded,
    trees: Path,
    segment: Segmenter,
    relations: Sequence[str],
    max_tokens: int | None = None,
) -> dict[str, Any]:
    """The part ``syntax``: the encoder alone reads the sentences of ``trees``.

    Raises:
        UserError: the file is not CoNLL-U, or has no sentence that the model can read.
    """
    model, dictionary = loaded.model, loaded.task.source_dictionary
    longest = min(loaded.task.max_positions()[0], model.max_positions()[0])
    max_tokens = max_tokens or loaded.cfg.dataset.max_tokens or MAX_TOKENS
    # All in memory: even the largest treebanks are small beside a training corpus.
    sentences = tqdm(conllu.read(trees), desc="trees", unit="tree", disable=None, leave=False)
    read = [tree for sentence in sentences if (tree := align(sentence, segment)).symbols]
    fitting = [tree for tree in read if len(tree.symbols) < longest]  # and the end of sentence
    if not fitting:
        raise UserError("has no sentence that the model can read", trees)
    scores = SyntaxScores(loaded.heads, relations)
    batched = list(tree_batches(fitting, max_tokens))
    for batch in tqdm(batched, desc="batches of trees", unit="batch", disable=None, leave=False):
        sample = to_device(as_sample(batch, dictionary), loaded.device)
        scores.add(attend(model, sample), batch)
    subwords = [dictionary.index(symbol) for tree in fitting for symbol in tree.symbols]
    return {
        "trees": trees.name,
        "sentences": len(fitting),
        "side": "source",
        "too_long": len(read) - len(fitting),
        "subwords": len(subwords),
        "unknown": subwords.count(dictionary.unk()),
        "pairs_within_a_unit": sum(tree.lost for tree in fitting),
        "relations": scores.result(),
    }


def chosen_lines(dataset: Any, lines: Sequence[int] | None, number: int) -> list[int]:
    """Lines of a data set, from 0, whose attention is shown.

    Args:
        lines: those that are wanted, from 1.
        number: else so many short sentences, evenly spread; fewer if there are fewer.

    Raises:
        UserError: a line that is wanted is not there.
    """
    for line in lines or ():
        if line > len(dataset):
            raise UserError(f"there are {len(dataset)} sentences, no {line}", "--example-lines")
    if lines:
        return [line - 1 for line in lines]
    short = [i for i in range(len(dataset)) if max(dataset.size(i)) <= LONGEST]
    number = min(number, len(short))
    return [short[i * len(short) // number] for i in range(number)]


def examples(loaded: Loaded, subset: str, lines: Sequence[int]) -> list[dict[str, Any]]:
    """Tokens and all heads' weights of some sentences of a data set that is loaded.

    The source and the target end in the end of sentence, weights ``H x T x S`` are rounded; the
    rows of the decoder are those of the target shifted right, whose first is the end of sentence.
    """
    dataset, task = loaded.task.dataset(subset), loaded.task
    found = []
    for line in lines:
        sample = to_device(dataset.collater([dataset[line]]), loaded.device)
        seen = attend(loaded.model, sample).weights
        source, target = sample["net_input"]["src_tokens"][0], sample["target"][0]
        found.append(
            {
                "line": line + 1,
                "source": [task.source_dictionary[i] for i in source.tolist()],
                "target": [task.target_dictionary[i] for i in target.tolist()],
                "weights": {
                    site: [rounded(one[0]) for one in layers] for site, layers in seen.items()
                },
            }
        )
    return found


def rounded(weights: Tensor) -> list[Any]:
    """Nested lists, with as many decimals as can be seen."""
    # In double precision, or the lists would hold the many digits of the nearest single.
    listed: list[Any] = weights.double().mul(10**DIGITS).round().div(10**DIGITS).tolist()
    return listed
